//! Address handles of an application.
use super::handles::AgentPd;
use crate::protocol::Request;
use catchment_verbs::provider::{Handle, RecentHandle};
use catchment_verbs::{Ah, Destination, PortAddr, PostFailure};
use std::sync::Arc;

/// The application's address handle.
pub(super) struct AgentAh {
    /// With the number of its protection domain.
    core: Arc<Handle<u32>>,
    to: PortAddr,
    pd: AgentPd,
}

impl AgentAh {
    /// One that the agent has made, of this number; `None` if there is one of it.
    pub(super) fn of(ah: u32, to: PortAddr, pd: AgentPd) -> Option<Self> {
        Some(Self { core: pd.link().ahs.add_as(ah, pd.number())?, to, pd })
    }
}

impl Drop for AgentAh {
    fn drop(&mut self) {
        let ah = self.core.number();
        self.pd.link().ahs.remove(&self.core);
        let _ = self.pd.link().call(&Request::DropAh { ah }, &[]);
    }
}

impl Ah for AgentAh {
    fn handle(&self) -> u32 {
        self.core.number()
    }

    fn to(&self) -> &PortAddr {
        &self.to
    }
}

/// Checks that a datagram of a protection domain can go where it shall.
pub(super) fn check(
    recent: &mut RecentHandle<u32>,
    pd: &AgentPd,
    to: &Destination,
) -> Result<(), PostFailure> {
    let found = recent.find(&pd.link().ahs, to.ah, |ah_pd| *ah_pd == pd.number());
    found.map(drop).ok_or(PostFailure::UNKNOWN_AH)
}
