//! Shared memory as sources and collectors use it: one device, opened at once.
use super::set::drain_events;
use super::{Ends, Found, PathProvider, ProviderOptions};
use catchment_provider_shm::{INFO, ShmProvider};
use catchment_verbs::{Context, Provider as _, ProviderInfo};
use std::sync::Arc;

/// Shared memory has no settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShmOptions;

impl ProviderOptions for ShmOptions {
    fn info(&self) -> ProviderInfo {
        INFO
    }

    fn provider(&self) -> Arc<dyn PathProvider> {
        let context = ShmProvider::new().open(catchment_provider_shm::DEVICE);
        Arc::new(Shm { context: context.map_err(|error| error.to_string()) })
    }
}

struct Shm {
    /// The device, or why it cannot be opened.
    context: Result<Arc<dyn Context>, String>,
}

impl PathProvider for Shm {
    fn info(&self) -> ProviderInfo {
        INFO
    }

    fn open_for(&self, _: Ends) -> Result<Found, String> {
        Ok(Found { device: None, context: self.context.clone()? })
    }

    fn take_events(&self) -> bool {
        self.context.iter().fold(false, |any, context| drain_events(&**context) | any)
    }
}
