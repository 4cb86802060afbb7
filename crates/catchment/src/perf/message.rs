//! What client and server tell each other: JSON, a line each.
//!
//! ```text
//! client                          server
//! Hello      ->
//!            <-  Welcome | Refused
//! Run        ->                                  once for each plan, each with a queue pair of its own
//!            <-  Ready | Refused
//!            (measures)
//! Over       ->
//!            <-  Used
//! Blocks     ->                                  once for each plan of blocks
//!            <-  Ports | Refused
//! Here       ->                                  connected
//!            <-  Here
//! Here       ->                                  ready to send and to take
//!            <-  Here
//!            (measures)
//! Over       ->
//!            <-  Used
//! ```

use super::PerfError;
use super::blocks::{BlockPlan, Ports};
use super::plan::Plan;
use crate::session::host::Host;
use crate::session::message::{ProviderOffer, SessionPath, WhyNot};
use catchment_verbs::{Endpoint, RemoteAddr};
use serde::{Deserialize, Serialize};

/// Of this protocol.
pub(super) const VERSION: u32 = 1;

/// What the client says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum FromClient {
    Hello(Hello),
    Run {
        plan: Plan,
        place: Place,
    },
    /// One plan for blocks, and the client's two ports.
    Blocks {
        plan: BlockPlan,
        ports: Ports,
    },
    /// This side has come so far; the other one says the same.
    Here,
    /// All was sent: so many requests.
    Over {
        requests: u64,
    },
}

/// What the server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum FromServer {
    Welcome(Welcome),
    Refused {
        reason: String,
        remedy: String,
    },
    Ready {
        place: Place,
    },
    /// The server's two ports.
    Ports {
        ports: Ports,
    },
    /// As the client's.
    Here,
    /// The measurement broke at the server.
    Failed {
        error: String,
    },
    /// Processor time of the server during the measurement.
    Used {
        cpu_s: f64,
    },
}

impl FromClient {
    /// The error that this is not what should have come.
    pub(super) fn unexpected(&self, expected: &str) -> PerfError {
        let seen = match self {
            FromClient::Hello(_) => "hello",
            FromClient::Run { .. } => "run",
            FromClient::Blocks { .. } => "blocks",
            FromClient::Here => "here",
            FromClient::Over { .. } => "over",
        };
        PerfError::Protocol {
            seen: seen.to_owned(),
            expected: expected.to_owned(),
        }
    }
}

impl FromServer {
    /// The error that this is not what should have come, or the refusal that it is.
    pub(super) fn unexpected(self, expected: &str) -> PerfError {
        let seen = match self {
            FromServer::Refused { reason, remedy } => {
                return PerfError::Refused { reason, remedy };
            }
            FromServer::Failed { error } => {
                return PerfError::Failed(format!("at the server: {error}"));
            }
            FromServer::Welcome(_) => "welcome",
            FromServer::Ready { .. } => "ready",
            FromServer::Ports { .. } => "ports",
            FromServer::Here => "here",
            FromServer::Used { .. } => "used",
        };
        PerfError::Protocol {
            seen: seen.to_owned(),
            expected: expected.to_owned(),
        }
    }
}

/// Who the client is, and what it has.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) host: Host,
    pub(super) offers: Vec<ProviderOffer>,
    pub(super) missing: Vec<WhyNot>,
}

/// The way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) path: SessionPath,
    pub(super) reason: String,
}

/// A queue pair and a region.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Place {
    /// As [`Endpoint`] is written.
    endpoint: String,
    addr: u64,
    rkey: u32,
}

impl Place {
    pub(super) fn new(endpoint: Endpoint, memory: RemoteAddr) -> Place {
        Place {
            endpoint: endpoint.to_string(),
            addr: memory.addr,
            rkey: memory.rkey,
        }
    }

    pub(super) fn endpoint(&self) -> Result<Endpoint, String> {
        self.endpoint
            .parse()
            .map_err(|error| format!("the peer's queue pair: {error}"))
    }

    pub(super) fn memory(&self) -> RemoteAddr {
        RemoteAddr {
            addr: self.addr,
            rkey: self.rkey,
        }
    }
}
