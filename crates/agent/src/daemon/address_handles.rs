//! The address handles of an application, for its datagrams.
use catchment_verbs::{Ah, SendOp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module. By their numbers at the device, each with its protection domain, by the application's number.
#[derive(Default)]
pub(super) struct AddressHandles(BTreeMap<u32, (u32, Arc<dyn Ah>)>);

impl AddressHandles {
    /// Adds one of a protection domain.
    pub(super) fn add(&mut self, pd: u32, ah: Arc<dyn Ah>) {
        self.0.insert(ah.handle(), (pd, ah));
    }

    /// Removes the one of this number.
    pub(super) fn remove(&mut self, handle: u32) {
        self.0.remove(&handle);
    }

    /// Returns the address handle of a datagram of this protection domain; none for what is no datagram.
    ///
    /// # Errors
    /// Its number, when the domain has none of it.
    #[inline]
    pub(super) fn of(&self, op: &SendOp, pd: u32) -> Result<Option<Arc<dyn Ah>>, u32> {
        let Some(to) = op.destination() else { return Ok(None) };
        let known = self.0.get(&to.ah).filter(|(domain, _)| *domain == pd);
        known.map(|(_, ah)| Some(Arc::clone(ah))).ok_or(to.ah)
    }
}
