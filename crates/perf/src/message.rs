//! What the two sides tell each other: JSON, a line each.
//!
//! ```text
//! active                          passive
//! Run        ->                                  once for each plan, each with a queue pair of its own
//!            <-  Ready | Refused
//!            (warms up)
//! Begin      ->
//!            <-  Begun
//!            (measures)
//! Over       ->
//!            <-  Used
//!
//! Blocks     ->                                  once for each plan of blocks
//!            <-  Ports | Refused
//! Here       ->                                  connected
//!            <-  Here
//! Here       ->                                  ready to send and to take
//!            <-  Here
//!            (measures)
//! Over       ->
//!            <-  Used
//! Here       ->                                  the passive side keeps its memory until then
//! ```
use crate::PerfError;
use crate::blocks::plan::BlockPlan;
use crate::blocks::port::Ports;
use crate::meter::Usage;
use crate::plan::Plan;
use catchment_verbs::{Endpoint, RemoteAddr};
use serde::{Deserialize, Serialize};

/// What the active side says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Request {
    Run {
        plan: Plan,
        place: Place,
    },
    /// One plan for blocks, and the active side's two ports.
    Blocks {
        plan: BlockPlan,
        ports: Ports,
    },
    /// What follows counts.
    Begin,
    /// This side has come so far; the other one says the same.
    Here,
    /// All was sent: so many requests.
    Over {
        requests: u64,
    },
}

/// What the passive side says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Reply {
    Refused {
        reason: String,
        remedy: String,
    },
    Ready {
        place: Place,
    },
    /// The passive side's two ports.
    Ports {
        ports: Ports,
    },
    Begun,
    Here,
    /// The measurement broke at the passive side.
    Failed {
        error: String,
    },
    /// What the passive side used from the beginning to the end.
    Used {
        usage: Usage,
    },
}

impl Request {
    /// Returns the error that this is not what should have come.
    pub(crate) fn unexpected(&self, expected: &str) -> PerfError {
        let seen = match self {
            Self::Run { .. } => "run",
            Self::Blocks { .. } => "blocks",
            Self::Begin => "begin",
            Self::Here => "here",
            Self::Over { .. } => "over",
        };
        PerfError::Protocol { seen: seen.to_owned(), expected: expected.to_owned() }
    }
}

impl Reply {
    /// Returns the error that this is not what should have come, or the refusal that it is.
    pub(crate) fn unexpected(self, expected: &str) -> PerfError {
        let seen = match self {
            Self::Refused { reason, remedy } => {
                return PerfError::Refused { reason, remedy };
            }
            Self::Failed { error } => {
                return PerfError::Failed(format!("at the other side: {error}"));
            }
            Self::Ready { .. } => "ready",
            Self::Ports { .. } => "ports",
            Self::Begun => "begun",
            Self::Here => "here",
            Self::Used { .. } => "used",
        };
        PerfError::Protocol { seen: seen.to_owned(), expected: expected.to_owned() }
    }
}

/// A queue pair and a region.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    /// As [`Endpoint`] is written.
    endpoint: String,
    addr: u64,
    rkey: u32,
}

impl Place {
    pub(crate) fn new(endpoint: Endpoint, memory: RemoteAddr) -> Self {
        Self { endpoint: endpoint.to_string(), addr: memory.addr, rkey: memory.rkey }
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint, PerfError> {
        self.endpoint
            .parse()
            .map_err(|error| PerfError::Failed(format!("the peer's queue pair: {error}")))
    }

    pub(crate) fn memory(&self) -> RemoteAddr {
        RemoteAddr { addr: self.addr, rkey: self.rkey }
    }
}
