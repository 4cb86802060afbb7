//! What the live page of a controller shows.
use crate::explain;
use crate::output::metrics;
use catchment::observe::{ExplainError, StatusSource};
use catchment::session::names::{DeviceName, DeviceNameError};
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
    /// Asks the service something that it does not answer when it has ended.
    fn ask<T>(&self, ask: impl FnOnce(&ServiceHandle) -> Option<T>) -> Result<T, String> {
        let service = now(&self.0).ok_or("it is not up yet")?;
        ask(&service).ok_or_else(|| "the thread that grants has ended".to_owned())
    }

    fn look(&self) -> Result<Status, String> {
        self.ask(ServiceHandle::status)
    }
}

impl StatusSource for Shown {
    fn status(&mut self) -> Result<Value, String> {
        serde_json::to_value(self.look()?).map_err(|error| error.to_string())
    }

    fn metrics(&mut self) -> Result<String, String> {
        Ok(metrics::of_controller(&self.look()?))
    }

    fn explain(&mut self, name: &str) -> Result<Option<Vec<String>>, ExplainError> {
        let device: DeviceName =
            name.parse().map_err(|error: DeviceNameError| ExplainError::Name(error.to_string()))?;
        let streams = self.ask(|service| service.explain(device))?;
        Ok(Some(streams.iter().map(explain::stream::text).collect()))
    }
}
