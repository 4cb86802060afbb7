//! Measures the path between two processes in the manner of the perftest programs: a [`Server`] waits,
//! a [`Client`] measures WRITEs, READs, SENDs and blocks of given sizes, for `catchment bench`.
//!
//! The path is chosen as for frames: the client stands where a source stands, the server where a
//! collector does. All the rest is the measuring engine's, [`catchment_perf`].
//!
//! The control connection is plain TCP. It carries keys to memory that holds nothing and lives as long
//! as the connection; any client that reaches the server can measure, one at a time.
mod client;
mod greeting;
mod server;

pub use catchment_perf::blocks::{
    Active, BlockMechanism, BlockPlan, Passive, STATUS_BYTE, Shape, find_mechanism,
};
pub use catchment_perf::stats::percentile;
pub use catchment_perf::{
    Amount, Bandwidth, ChildProcess, Figure, Latency, Measured, Operation, PerfError, Plan, Row,
    Test, TestParseError, Waiting,
};
pub use client::Client;
pub use server::{PORT, Served, Server};

use crate::providers::{ProviderSet, Providers};
use crate::session::host::Host;
use crate::session::message::SessionPath;
use catchment_perf::{Control, LocalDevice, PATIENCE};
use catchment_verbs::Context;
use std::sync::Arc;

/// Returns the device of a path for the engine.
fn device(context: Arc<dyn Context>, path: SessionPath) -> LocalDevice {
    LocalDevice {
        agree: Box::new(move |endpoint| path.agreed(endpoint)),
        ..LocalDevice::new(context)
    }
}

fn host() -> Result<Host, PerfError> {
    Host::read().map_err(|error| PerfError::Host(error.to_string()))
}

/// What to measure with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Which providers may be used, and with which settings.
    pub providers: ProviderSet,
    /// What can move blocks, by name.
    pub mechanisms: &'static [&'static dyn BlockMechanism],
}

impl Default for Setup {
    fn default() -> Self {
        Self { providers: ProviderSet::default(), mechanisms: STATUS_BYTE }
    }
}

impl Setup {
    fn providers(&self) -> Providers {
        Providers::new(&self.providers)
    }
}
