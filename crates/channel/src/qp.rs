//! Queue pair management: the way of a queue pair through its states.
//!
//! RESET, INIT (receives may be posted), RTR (the peer is known), RTS (everything goes). From there
//! to SQD and back to let what was posted finish, to ERR when all is over, and to RESET to begin
//! again. A transition that does not exist is refused by the provider and changes nothing.
use catchment_verbs::{
    Access, Endpoint, ModifyError, Pd, PostError, Qp, QpInit, QpState, QpTransition, RecvWr,
    RtrAttr, RtsAttr, SendWr, VerbsError,
};

/// A queue pair whose states are gone through in order.
pub struct ManagedQp {
    qp: Box<dyn Qp>,
}

impl ManagedQp {
    /// Makes one in RESET.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn create(pd: &dyn Pd, init: QpInit) -> Result<ManagedQp, VerbsError> {
        Ok(ManagedQp { qp: pd.create_qp(init)? })
    }

    /// What a peer needs to reach it.
    pub fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// The state it is in.
    pub fn state(&self) -> QpState {
        self.qp.state()
    }

    /// RESET to INIT: the peer may WRITE and READ, no more.
    ///
    /// # Errors
    /// [`ModifyError`]; the state is unchanged then.
    pub fn prepare(&mut self) -> Result<(), ModifyError> {
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        self.qp.modify(QpTransition::ToInit { access })
    }

    /// INIT to RTR to RTS, with this peer.
    ///
    /// # Errors
    /// [`ModifyError`]; the state is that of the last step that went well.
    pub fn connect(&mut self, peer: Endpoint, rts: RtsAttr) -> Result<(), ModifyError> {
        self.qp.modify(QpTransition::ToRtr(RtrAttr::new(peer)))?;
        self.qp.modify(QpTransition::ToRts(rts))
    }

    /// RTS to SQD: what was posted finishes, what is posted waits.
    ///
    /// # Errors
    /// [`ModifyError`]; the state is unchanged then.
    pub fn drain(&mut self) -> Result<(), ModifyError> {
        self.qp.modify(QpTransition::ToSqd)
    }

    /// SQD back to RTS.
    ///
    /// # Errors
    /// [`ModifyError`]; the state is unchanged then.
    pub fn go_on(&mut self, rts: RtsAttr) -> Result<(), ModifyError> {
        self.qp.modify(QpTransition::ToRts(rts))
    }

    /// To ERR: everything outstanding completes as flushed.
    ///
    /// # Errors
    /// What the provider refuses; every state can fail.
    pub fn fail(&mut self) -> Result<(), ModifyError> {
        self.qp.modify(QpTransition::ToErr)
    }

    /// To RESET: everything outstanding vanishes.
    ///
    /// # Errors
    /// What the provider refuses; every state can be reset.
    pub fn reset(&mut self) -> Result<(), ModifyError> {
        self.qp.modify(QpTransition::ToReset)
    }

    pub(super) fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        self.qp.post_send(requests)
    }

    pub(super) fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.qp.post_recv(requests)
    }
}
