//! Transitions between states.
use super::ShmQp;
use crate::connection::Connection;
use crate::inbox::Inbox;
use crate::inner::Peer;
use crate::link::CallError;
use crate::proto::{Refusal, Reply, Request};
use catchment_verbs::{Gid, ModifyError, QpState, QpTransition, RtrAttr, RtsAttr};
use std::sync::Arc;

impl ShmQp {
    /// Makes a transition that the current state allows.
    pub(super) fn change(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        match transition {
            QpTransition::ToReset => self.enter_reset()?,
            QpTransition::ToInit { access } => {
                let mut inner = self.core.lock();
                inner.access = access;
                self.core.set_state(QpState::Init, &inner);
            }
            QpTransition::ToRtr(attr) => self.enter_rtr(&attr)?,
            QpTransition::ToRts(attr) => self.enter_rts(attr)?,
            QpTransition::ToInitUd { .. }
            | QpTransition::ToRtrUc(_)
            | QpTransition::ToRtrUd
            | QpTransition::ToRtsUnreliable => {
                // Of services that are not offered: refused above.
            }
            QpTransition::ToSqd => {
                let mut inner = self.core.lock();
                inner.hold_from = self.posted;
                self.core.set_state(QpState::Sqd, &inner);
            }
            QpTransition::ToErr => {
                let mut inner = self.core.lock();
                self.core.set_state(QpState::Err, &inner);
                self.core.flush(&mut inner);
                self.core.announce(inner);
            }
        }
        Ok(())
    }

    fn modify_error(&self, peer: Gid, error: &CallError) -> ModifyError {
        ModifyError::Peer { qpn: self.core.qpn, peer: peer.redacted(), reason: error.to_string() }
    }

    fn enter_reset(&mut self) -> Result<(), ModifyError> {
        let resources = |error: catchment_verbs::mem::MemError| ModifyError::Resources {
            qpn: self.core.qpn,
            what: "a new inbox",
            reason: error.to_string(),
        };
        let inbox = Inbox::alloc(self.core.limits.max_recv_wr).map_err(resources)?;
        self.core.reset(&mut self.core.lock(), inbox);
        self.connection = None;
        self.remotes.get_mut().clear();
        self.core.sq.free_before(self.posted);
        self.core.rq.free_before(self.recv_posted);
        Ok(())
    }

    fn enter_rtr(&mut self, attr: &RtrAttr) -> Result<(), ModifyError> {
        let gid = attr.remote.gid;
        let core = &self.core;
        let link = core.context.link(gid).map_err(|error| self.modify_error(gid, &error))?;
        let (facts, inbox_fd) = {
            let mut inner = core.lock();
            // The peer's process may have failed before this.
            if core.state() != QpState::Init {
                return Err(self.illegal(QpState::Rtr));
            }
            let Some(inbox_fd) = inner.inbox_fd.clone() else {
                return Err(self.modify_error(gid, &CallError::Stale));
            };
            inner.peer = Some(Peer {
                endpoint: attr.remote,
                link: Some(Arc::clone(&link)),
                comes: false,
                asker: None,
            });
            inner.rnr_timer = attr.min_rnr_timer;
            core.set_state(QpState::Rtr, &inner);
            (core.facts(&inner), inbox_fd)
        };
        let request = Request::OpenQp { target: attr.remote.qpn, caller: facts };
        let answer = link.call(&request, &core.descriptors(&inbox_fd));
        let mut inner = core.lock();
        let result = match answer {
            Ok((Reply::Qp(theirs), descriptors)) => {
                Connection::new(Some(link), theirs, descriptors)
            }
            // The peer's request was faster.
            Ok((Reply::Known, _)) if inner.connection.is_some() => return Ok(()),
            Ok((Reply::Known, _)) => Err(CallError::Stale),
            Ok(_) => Err(CallError::Protocol),
            // The peer connects to us when it reaches this state.
            Err(CallError::Refused(Refusal::NotReady)) => {
                if let Some(peer) = &mut inner.peer {
                    peer.comes = true;
                }
                return Ok(());
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(connection) => {
                inner.connect(connection);
                Ok(())
            }
            Err(error) => {
                core.set_state(QpState::Init, &inner);
                inner.peer = None;
                Err(self.modify_error(gid, &error))
            }
        }
    }

    fn enter_rts(&mut self, attr: RtsAttr) -> Result<(), ModifyError> {
        let mut inner = self.core.lock();
        if !self.core.state().may_become(QpState::Rts) {
            drop(inner);
            return Err(self.illegal(QpState::Rts));
        }
        inner.attributes = attr;
        inner.hold_from = u64::MAX;
        self.core.set_state(QpState::Rts, &inner);
        drop(inner);
        self.core.progress(true, true);
        Ok(())
    }

    fn illegal(&self, to: QpState) -> ModifyError {
        ModifyError::Illegal { qpn: self.core.qpn, from: self.core.state(), to }
    }
}
