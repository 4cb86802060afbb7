//! Transitions between states.
use super::IbQp;
use crate::slots::Control;
use crate::sys::types::{IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
use crate::{ah, path};
use catchment_verbs::provider::{MAX_24_BITS, check_transition, random};
use catchment_verbs::{
    Access, Endpoint, ModifyError, Qp as _, QpState, QpTransition, RtrAttr, RtsAttr, Service, timer,
};
use std::fmt::Display;
use std::time::{Duration, Instant};
use std::{io, thread};

/// A queue without requests is drained in this time, on a busy machine too.
const DRAINED_WITHIN: Duration = Duration::from_secs(1);
const DRAINED_POLL: Duration = Duration::from_micros(200);

impl IbQp {
    fn resources(&self, what: &'static str, error: &dyn Display) -> ModifyError {
        ModifyError::Resources { qpn: self.qpn(), what, reason: error.to_string() }
    }

    fn set_state(&self, state: u32, what: &'static str) -> Result<(), ModifyError> {
        self.qp.set_state(state).map_err(|error| {
            let ours = self.slot.state.get();
            let seen = self.qp.query_state();
            let seen = seen.map_or_else(|error| error.to_string(), |state| state.to_string());
            let error = io::Error::new(
                error.kind(),
                format!("{error}; from {ours:?}, for the kernel from state {seen}"),
            );
            self.resources(what, &error)
        })
    }

    fn enter_reset(&mut self, control: &mut Control) -> Result<(), ModifyError> {
        // A different start, so that late packets of the previous connection do not fit.
        let random = random().map_err(|error| self.resources("a new PSN", &error))?;
        self.psn = random & MAX_24_BITS;
        if self.reaches_device() {
            if self.device().quirks.is_rxe && self.slot.state.get() == QpState::Sqd {
                // While it drains, rdma_rxe refuses every state but this. What is flushed is of an
                // earlier epoch.
                self.set_state(IBV_QPS_ERR, "going to RESET through the error state")?;
            }
            self.set_state(IBV_QPS_RESET, "going to RESET")?;
        }
        self.slot.clear();
        self.sending = None;
        self.rate.forget_set();
        control.peer = None;
        Ok(())
    }

    fn enter_init(&self, access: Access) -> Result<(), ModifyError> {
        // Some drivers refuse rights that UC does not have.
        let access = match self.limits.service {
            Service::Uc => access & (Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            Service::Rc | Service::Ud => access,
        };
        let result = path::init(&self.qp, self.device().place.port, access);
        result.map_err(|error| self.resources("going to INIT", &error))
    }

    fn enter_init_ud(&self, qkey: u32) -> Result<(), ModifyError> {
        let result = path::init_ud(&self.qp, self.device().place.port, qkey);
        result.map_err(|error| self.resources("going to INIT", &error))
    }

    fn enter_error(&self) -> Result<(), ModifyError> {
        let state = self.slot.state.get();
        if state == QpState::Err || !self.reaches_device() {
            return Ok(());
        }
        if state == QpState::Reset {
            // Linux has no other path from RESET to the error state.
            match self.limits.service {
                Service::Rc | Service::Uc => self.enter_init(Access::empty())?,
                Service::Ud => self.enter_init_ud(0)?,
            }
        }
        self.set_state(IBV_QPS_ERR, "going to the error state")
    }

    fn enter_rtr(&self, control: &mut Control, attr: &RtrAttr) -> Result<(), ModifyError> {
        let most = self.device().caps.max_rd_atomic;
        self.check_rd_atomic("max_dest_rd_atomic", attr.max_dest_rd_atomic, most)?;
        let connection = path::Connection {
            max_dest_rd_atomic: attr.max_dest_rd_atomic as u8,
            rnr_timer: timer::rnr_timer_code(attr.min_rnr_timer),
            ..self.connection(&attr.remote)?
        };
        self.connect(control, &attr.remote, &connection)
    }

    fn enter_rtr_uc(&self, control: &mut Control, remote: &Endpoint) -> Result<(), ModifyError> {
        self.connect(control, remote, &self.connection(remote)?)
    }

    fn enter_rtr_ud(&self) -> Result<(), ModifyError> {
        self.set_state(IBV_QPS_RTR, "going to RTR")
    }

    fn connection(&self, remote: &Endpoint) -> Result<path::Connection, ModifyError> {
        let mtu = ah::check_port(self.device(), &remote.into());
        Ok(path::Connection {
            qpn: remote.qpn,
            psn: remote.psn,
            mtu: mtu.map_err(|reason| self.peer_error(remote, reason))?,
            max_dest_rd_atomic: 0,
            rnr_timer: 0,
        })
    }

    fn connect(
        &self,
        control: &mut Control,
        remote: &Endpoint,
        connection: &path::Connection,
    ) -> Result<(), ModifyError> {
        let route = ah::route(self.device(), remote.gid);
        let route = route.map_err(|reason| self.peer_error(remote, reason))?;
        path::ready_to_receive((&self.qp, self.limits.service), &route, connection)
            .map_err(|error| self.unreachable(remote, &error))?;
        control.peer = Some(*remote);
        Ok(())
    }

    fn peer_error(&self, remote: &Endpoint, reason: String) -> ModifyError {
        ModifyError::Peer { qpn: self.qpn(), peer: remote.gid.ip().to_string(), reason }
    }

    fn unreachable(&self, remote: &Endpoint, error: &io::Error) -> ModifyError {
        let place = &self.device().place;
        let advice = match error.raw_os_error() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
                "no route leads there from this device's interface (`ip route get`)"
            }
            Some(libc::ETIMEDOUT | libc::ENODATA | libc::EAGAIN) => {
                "no host answers for that address on the link (`ip neighbour`): the peer is down, or \
                 in another network"
            }
            Some(libc::EINVAL) => {
                "the kernel or the driver rejects the GID, the path MTU or a limit"
            }
            _ => "see the kernel's log (dmesg)",
        };
        let reason = format!(
            "{error}, from {} port {} with GID {}: {advice}",
            place.device, place.port, place.gid
        );
        self.peer_error(remote, reason)
    }

    fn check_rd_atomic(
        &self,
        what: &'static str,
        value: u32,
        most: u32,
    ) -> Result<(), ModifyError> {
        if value <= most {
            return Ok(());
        }
        Err(ModifyError::Attribute {
            qpn: self.qpn(),
            what,
            value: value.into(),
            range: "0 to the device's max_rd_atomic",
        })
    }

    fn enter_rts(&mut self, attr: &RtsAttr) -> Result<(), ModifyError> {
        let most = self.device().caps.max_rd_atomic;
        self.check_rd_atomic("max_rd_atomic", attr.max_rd_atomic, most)?;
        let mut wire = *attr;
        if self.device().quirks.is_rxe && wire.retry_cnt == 7 {
            wire.retry_cnt = 6;
        }
        let from = self.slot.state.get();
        let result = match from {
            QpState::Rtr => path::ready_to_send(&self.qp, self.psn, &wire),
            QpState::Sqd => self.resume(&wire),
            QpState::Rts if self.sending == Some(*attr) => self.qp.set_state(IBV_QPS_RTS),
            QpState::Rts | QpState::Reset | QpState::Init | QpState::Sqe | QpState::Err => {
                return Err(ModifyError::Attribute {
                    qpn: self.qpn(),
                    what: "an attribute of RTS",
                    value: 0,
                    range: "unchanged while in RTS: go through SQD",
                });
            }
        };
        result.map_err(|error| self.resources("going to RTS", &error))?;
        self.sending = Some(*attr);
        Ok(())
    }

    fn enter_rts_unreliable(&self) -> Result<(), ModifyError> {
        let result = match self.slot.state.get() {
            QpState::Rtr => path::ready_to_send_unreliably(&self.qp, self.psn),
            QpState::Sqd => self.leave_sqd(),
            QpState::Rts | QpState::Reset | QpState::Init | QpState::Sqe | QpState::Err => {
                self.qp.set_state(IBV_QPS_RTS)
            }
        };
        result.map_err(|error| self.resources("going to RTS", &error))
    }

    fn resume(&self, attr: &RtsAttr) -> io::Result<()> {
        if self.sending.is_some_and(|sending| sending != *attr) {
            path::change_sending(&self.qp, attr)?;
        }
        self.leave_sqd()
    }

    fn leave_sqd(&self) -> io::Result<()> {
        if !self.device().quirks.is_rxe {
            return self.qp.set_state(IBV_QPS_RTS);
        }
        self.await_drained()?;
        self.qp.set_state(IBV_QPS_RTS)?;
        self.qp.ring_soft_doorbell()
    }

    /// Until rdma_rxe has seen that the queue is drained, also one in which nothing was, it refuses
    /// to leave SQD, with only EINVAL.
    fn await_drained(&self) -> io::Result<()> {
        let begin = Instant::now();
        while self.qp.is_draining()? {
            if begin.elapsed() > DRAINED_WITHIN {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    "requests from before SQD are not done: wait for their completions first",
                ));
            }
            // Only a query reports it.
            thread::sleep(DRAINED_POLL);
        }
        Ok(())
    }

    pub(super) fn change(
        &mut self,
        control: &mut Control,
        transition: &QpTransition,
    ) -> Result<(), ModifyError> {
        let to = transition.target();
        check_transition((self.qpn(), self.limits.service), self.slot.state.get(), transition)?;
        match transition {
            QpTransition::ToReset => self.enter_reset(control)?,
            QpTransition::ToErr => self.enter_error()?,
            _ if !self.reaches_device() => {
                return Err(ModifyError::Resources {
                    qpn: self.qpn(),
                    what: "its device",
                    reason: "the device is lost".to_owned(),
                });
            }
            QpTransition::ToInit { access } => self.enter_init(*access)?,
            QpTransition::ToRtr(attr) => self.enter_rtr(control, attr)?,
            QpTransition::ToRts(attr) => self.enter_rts(attr)?,
            QpTransition::ToInitUd { qkey } => self.enter_init_ud(*qkey)?,
            QpTransition::ToRtrUc(remote) => self.enter_rtr_uc(control, remote)?,
            QpTransition::ToRtrUd => self.enter_rtr_ud()?,
            QpTransition::ToRtsUnreliable => self.enter_rts_unreliable()?,
            QpTransition::ToSqd => self.set_state(IBV_QPS_SQD, "going to SQD")?,
        }
        self.slot.state.set(to);
        self.settle_rate().map_err(|error| self.resources("limiting the rate", &error))
    }
}
