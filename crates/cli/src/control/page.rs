//! What the live page of a controller shows.
use crate::output::metrics;
use catchment::observe::StatusSource;
use catchment_controller::{Service, Status};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The service that runs; none while a process stands by that knows of no source yet.
pub(super) struct Shown(pub(super) Arc<Mutex<Weak<Service>>>);

impl Shown {
    fn look(&self) -> Result<Status, String> {
        let service = self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let service = service.ok_or("it is not up yet")?;
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
