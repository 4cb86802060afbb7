//! The queue pair of the device that a connection has for itself. While the connection shares others it stays in
//! INIT, and keeps its number there; its receives are with the connection until it is on its own.
use catchment_verbs::provider::check_transition;
use catchment_verbs::{
    Endpoint, ModifyError, PostError, Qp, QpState, QpTransition, RecvWr, RtrAttr, RtsAttr, SendWr,
    Service,
};

/// What a connection that shares was asked to be.
struct Held {
    host: u32,
    life: u64,
    rtr: RtrAttr,
    rts: Option<RtsAttr>,
    /// The queue pair is in RTR, or failed on its way there.
    receives: bool,
}

/// See the module.
pub(super) struct OwnQp {
    qp: Box<dyn Qp>,
    held: Option<Held>,
    failed: bool,
    /// It will not share: receives are given to the device.
    is_alone: bool,
    may_share: bool,
}

impl OwnQp {
    /// `may_share`: whether it will is known when it is connected.
    pub(super) fn new(qp: Box<dyn Qp>, may_share: bool) -> Self {
        Self { qp, held: None, failed: false, is_alone: !may_share, may_share }
    }

    /// Returns whether receives are given to it.
    #[inline]
    pub(super) fn takes_receives(&self) -> bool {
        self.is_alone || self.state() == QpState::Err
    }

    /// Lets it take receives: it does not share, or not any more.
    pub(super) fn stay_alone(&mut self) {
        self.is_alone = true;
    }

    pub(super) fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// Returns the state of the connection.
    pub(super) fn state(&self) -> QpState {
        match &self.held {
            Some(Held { rts: Some(_), .. }) => QpState::Rts,
            Some(Held { rts: None, .. }) => QpState::Rtr,
            None => self.qp.state(),
        }
    }

    /// Returns the host with which the connection shares queue pairs, and the life of which that is true.
    pub(super) fn shares_with(&self) -> Option<(u32, u64)> {
        self.held.as_ref().map(|held| (held.host, held.life))
    }

    fn check(&self, transition: &QpTransition) -> Result<(), ModifyError> {
        check_transition((self.qp.qpn(), Service::Rc), self.state(), transition)
    }

    /// Makes the connection one that shares queue pairs with a host, as if it were in RTR.
    pub(super) fn hold(
        &mut self,
        (host, life): (u32, u64),
        rtr: RtrAttr,
    ) -> Result<(), ModifyError> {
        self.check(&QpTransition::ToRtr(rtr))?;
        self.held = Some(Held { host, life, rtr, rts: None, receives: false });
        Ok(())
    }

    pub(super) fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        if self.held.is_none() {
            if matches!(transition, QpTransition::ToRtsUnreliable) && self.state() == QpState::Rts {
                // It refused a datagram, which stops the application's queue and not this one.
                return Ok(());
            }
            let resets = matches!(transition, QpTransition::ToReset);
            let result = self.qp.modify(transition);
            self.is_alone &= !(resets && result.is_ok() && self.may_share);
            return result;
        }
        self.check(&transition)?;
        if let QpTransition::ToRts(attr) = transition {
            if let Some(held) = &mut self.held {
                held.rts = Some(attr);
            }
            return Ok(());
        }
        // The peer's queue pair is told of the end by this one.
        self.receive();
        self.held = None;
        self.modify(transition)
    }

    /// Lets it receive: the connection is about to be on its own.
    pub(super) fn receive(&mut self) {
        let Some(held) = self.held.as_mut().filter(|held| !held.receives) else { return };
        held.receives = true;
        if let Err(error) = self.qp.modify(QpTransition::ToRtr(held.rtr)) {
            self.fail_alone(&error);
        }
    }

    fn fail_alone(&mut self, error: &ModifyError) {
        let qpn = self.qp.qpn();
        tracing::warn!(qpn, %error, "a connection that stops sharing cannot go on by itself: its requests are flushed");
        self.failed = self.qp.modify(QpTransition::ToErr).is_ok();
    }

    /// Ends the sharing, and lets it send if the connection does.
    pub(super) fn send(&mut self) {
        self.receive();
        self.is_alone = true;
        if let Some(Held { rts: Some(attr), .. }) = self.held.take()
            && !self.failed
            && let Err(error) = self.qp.modify(QpTransition::ToRts(attr))
        {
            self.fail_alone(&error);
        }
    }

    /// Returns whether it failed on its way, which the application does not know.
    pub(super) fn take_failure(&mut self) -> bool {
        self.held.is_none() && std::mem::take(&mut self.failed)
    }

    /// Ends the sharing in the error state.
    pub(super) fn fail(&mut self) -> bool {
        self.held = None;
        self.qp.modify(QpTransition::ToErr).is_ok()
    }

    pub(super) fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        self.qp.post_send(requests)
    }

    pub(super) fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.qp.post_recv(requests)
    }
}
