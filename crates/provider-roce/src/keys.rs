//! The keys of a context's regions.
//!
//! Every key is drawn from the system's random source, so that no peer can guess the key of a region from
//! those of others, and none is used twice in the life of a context.
use crate::region::MrCore;
use catchment_verbs::VerbsError;
use catchment_verbs::provider::KeySlots;
use std::sync::Arc;

/// The keys of one context.
#[derive(Default)]
pub(crate) struct KeyTable(KeySlots<Arc<MrCore>>);

impl KeyTable {
    /// Adds the region that `make` builds under a new key.
    pub(crate) fn insert(
        &mut self,
        make: impl FnOnce(u32) -> MrCore,
    ) -> Result<Arc<MrCore>, VerbsError> {
        self.0.insert(|key| Ok::<_, VerbsError>(Arc::new(make(key)))).cloned()
    }

    /// Revokes a key.
    pub(crate) fn remove(&mut self, key: u32) {
        self.0.remove(key);
    }

    #[inline]
    pub(crate) fn lookup(&self, key: u32) -> Option<&Arc<MrCore>> {
        self.0.get(key)
    }

    /// Returns all regions.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<MrCore>> {
        self.0.values()
    }
}
