//! State changes requested by the application.
use super::{Halves, Qp, post};
use crate::config::{InitAttr, RtrAttr, RtsAttr};
use crate::pacing::Pacer;
use catchment_verbs_types::{MAX_24_BITS, ModifyError, QpState};

impl Qp {
    /// Goes to RESET, from any state: drops requests without completions, and unpolled completions.
    pub fn reset(&mut self) {
        self.state = QpState::Reset;
        self.init = InitAttr::default();
        self.dest_qpn = 0;
        self.error = None;
        self.completions.clear();
        self.halves = Halves::new(&self.config);
        self.limits = post::limits(&self.config);
        self.pacer = Pacer::new(self.config.pacing);
    }

    /// Goes to INIT: receives may be posted.
    ///
    /// # Errors
    /// When the state is neither RESET nor INIT.
    pub fn init(&mut self, attr: InitAttr) -> Result<(), ModifyError> {
        self.step(QpState::Init)?;
        self.init = attr;
        Ok(())
    }

    /// Goes to RTR: packets of the peer are processed.
    ///
    /// # Errors
    /// When the state is not INIT, or an attribute is out of range.
    pub fn rtr(&mut self, attr: RtrAttr) -> Result<(), ModifyError> {
        self.in_range("min_rnr_timer", attr.min_rnr_timer.into(), 31, "0..=31")?;
        self.in_range("dest_qpn", attr.dest_qpn, MAX_24_BITS, "24 bits")?;
        self.step(QpState::Rtr)?;
        self.dest_qpn = attr.dest_qpn;
        self.limits = post::connected(&self.config, attr.path_mtu);
        match &mut self.halves {
            Halves::Rc { requester, responder } => {
                requester.connect(&attr);
                responder.connect(&attr, &self.init);
            }
            Halves::Uc { sender, receiver } => {
                sender.connect(&attr);
                receiver.connect(&attr, &self.init);
            }
            Halves::Ud { sender, receiver } => {
                sender.connect(&attr);
                receiver.connect(&attr, &self.init);
            }
        }
        Ok(())
    }

    /// Goes from RTR to RTS: requests are sent.
    ///
    /// # Errors
    /// When the state is not RTR, or an attribute is out of range.
    pub fn rts(&mut self, attr: RtsAttr) -> Result<(), ModifyError> {
        self.in_range("retry_cnt", attr.retry_cnt.into(), 7, "0..=7")?;
        self.in_range("rnr_retry", attr.rnr_retry.into(), 7, "0..=7")?;
        if self.state != QpState::Rtr {
            return Err(self.refused(QpState::Rts));
        }
        self.state = QpState::Rts;
        match &mut self.halves {
            Halves::Rc { requester, .. } => requester.start(&attr),
            Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => sender.start(attr.sq_psn),
        }
        Ok(())
    }

    /// Goes from RTS to SQD: requests not started wait. [`Qp::is_drained`] is true when the others
    /// are done.
    ///
    /// # Errors
    /// When the state is not RTS.
    pub fn sqd(&mut self) -> Result<(), ModifyError> {
        self.step(QpState::Sqd)
    }

    /// Goes from SQD or SQE back to RTS.
    ///
    /// # Errors
    /// When the state is neither.
    pub fn resume(&mut self) -> Result<(), ModifyError> {
        if !matches!(self.state, QpState::Sqd | QpState::Sqe) {
            return Err(self.refused(QpState::Rts));
        }
        self.state = QpState::Rts;
        Ok(())
    }

    /// Goes to ERR, from any state but RESET: everything outstanding is flushed.
    pub fn set_error(&mut self) {
        if self.state != QpState::Reset {
            self.fail(None, None);
        }
    }

    /// A send failed at this side: on UC and UD it goes to SQE, from RTS, where sends are flushed and
    /// receives go on; on RC to ERR.
    pub fn fail_sends(&mut self) {
        match (&mut self.halves, self.state) {
            (
                Halves::Uc { sender, .. } | Halves::Ud { sender, .. },
                QpState::Rts | QpState::Sqe,
            ) => {
                sender.flush(&mut self.completions);
                self.state = QpState::Sqe;
            }
            _ => self.set_error(),
        }
    }

    fn step(&mut self, to: QpState) -> Result<(), ModifyError> {
        if !self.state.may_become(to) {
            return Err(self.refused(to));
        }
        self.state = to;
        Ok(())
    }

    fn refused(&self, to: QpState) -> ModifyError {
        ModifyError::Illegal { qpn: self.config.qpn, from: self.state, to }
    }

    fn in_range(
        &self,
        what: &'static str,
        value: u32,
        most: u32,
        range: &'static str,
    ) -> Result<(), ModifyError> {
        if value <= most {
            return Ok(());
        }
        Err(ModifyError::Attribute { qpn: self.config.qpn, what, value: value.into(), range })
    }
}
