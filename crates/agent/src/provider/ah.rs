//! Address handles of an application.
use super::handles::AgentPd;
use crate::protocol::Request;
use catchment_verbs::provider::Handle;
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

/// The address handle that a queue pair used last: to look one up takes a lock.
#[derive(Default)]
pub(super) struct RecentAh(Option<Arc<Handle<u32>>>);

impl RecentAh {
    /// Checks that a datagram of a protection domain can go where it shall.
    pub(super) fn check(&mut self, pd: &AgentPd, to: &Destination) -> Result<(), PostFailure> {
        if self.0.as_ref().is_some_and(|ah| ah.number() == to.ah && ah.is_valid()) {
            return Ok(());
        }
        let found = pd.link().ahs.find(to.ah).filter(|ah| ah.object == pd.number());
        let why = "its protection domain has no address handle of that number";
        self.0 = Some(found.ok_or(PostFailure::Destination(why))?);
        Ok(())
    }
}
