//! Registered regions of an application.
use super::handles::AgentPd;
use crate::protocol::Request;
use catchment_verbs::mem::Region;
use catchment_verbs::{Access, Mr};
use std::sync::Arc;

/// Memory of the application that its agent has mapped and registered. Its address in requests, here and
/// at peers, is that in the agent.
pub(super) struct AgentMr {
    pub(super) region: Arc<Region>,
    pub(super) access: Access,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    pub(super) addr: u64,
    pub(super) pd: AgentPd,
}

impl Drop for AgentMr {
    fn drop(&mut self) {
        let _ = self.pd.link().call(&Request::Deregister { lkey: self.lkey }, &[]);
    }
}

impl Mr for AgentMr {
    fn region(&self) -> &Arc<Region> {
        &self.region
    }

    fn lkey(&self) -> u32 {
        self.lkey
    }

    fn rkey(&self) -> u32 {
        self.rkey
    }

    fn access(&self) -> Access {
        self.access
    }

    fn addr(&self) -> u64 {
        self.addr
    }
}
