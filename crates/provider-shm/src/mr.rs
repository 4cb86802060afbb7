//! The application's registered regions.
use crate::handles::ShmPd;
use crate::region::MrCore;
use catchment_verbs::mem::Region;
use catchment_verbs::{Access, Mr, Watch};
use std::sync::Arc;

/// The application's registered region.
pub(crate) struct ShmMr {
    pub(crate) core: Arc<MrCore>,
    pub(crate) pd: ShmPd,
    /// Of a window: the region that it is bound to.
    pub(crate) _of: Option<Arc<dyn Mr>>,
}

impl Drop for ShmMr {
    fn drop(&mut self) {
        self.core.revoke();
        self.pd.state().keys.remove(self.core.key);
        self.core.wake_all();
    }
}

impl Mr for ShmMr {
    fn region(&self) -> &Arc<Region> {
        &self.core.region
    }

    fn lkey(&self) -> u32 {
        self.core.key
    }

    fn rkey(&self) -> u32 {
        self.core.key
    }

    fn access(&self) -> Access {
        self.core.access
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        let watch = self
            .core
            .watch()
            .inspect_err(|error| tracing::warn!(%error, "cannot create an eventfd for a watch"))
            .ok()?;
        Some(Arc::clone(watch) as Arc<dyn Watch>)
    }

    fn notify(&self) {
        self.core.notify();
    }
}
