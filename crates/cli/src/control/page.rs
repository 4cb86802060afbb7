//! What the live page of a controller shows.
use crate::output::metrics;
use catchment::observe::StatusSource;
use catchment_controller::{ServiceHandle, Status};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// The service that runs; none until the first one has begun.
pub(super) type Running = Arc<Mutex<Option<ServiceHandle>>>;

/// Returns the service that runs now.
pub(super) fn now(running: &Running) -> Option<ServiceHandle> {
    running.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// See the module.
pub(super) struct Shown(pub(super) Running);

impl Shown {
    fn look(&self) -> Result<Status, String> {
        let service = now(&self.0).ok_or("it is not up yet")?;
        service.status().ok_or_else(|| "the thread that grants has ended".to_owned())
    }
}

impl StatusSource for Shown {
    fn status(&mut self) -> Result<Value, String> {
        serde_json::to_value(self.look()?).map_err(|error| error.to_string())
    }

    fn metrics(&mut self) -> Result<String, String> {
        Ok(metrics::of_controller(&self.look()?))
    }
}
