//! What can go wrong.

use crate::session::host::HostError;
use catchment_verbs::{CqError, ModifyError, PostError, VerbsError};
use std::io;
use std::net::SocketAddr;

/// A measurement did not come about, or broke.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// The plan is none.
    #[error("{0}")]
    Plan(String),
    /// This host does not tell who it is.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The server cannot listen there.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The server cannot be reached.
    #[error("cannot reach a server at {to}: {source}; is `catchment bench server` running there?")]
    Unreachable {
        /// Where.
        to: String,
        /// What the system said.
        source: io::Error,
    },
    /// The control connection broke, or the other side was silent.
    #[error("the control connection: {0}")]
    Control(#[source] io::Error),
    /// The other side said something that is not allowed here.
    #[error("the other side said {seen}; {expected} was expected")]
    Protocol {
        /// What came, cut.
        seen: String,
        /// What should have come.
        expected: String,
    },
    /// The server refused.
    #[error("the server refused: {reason} ({remedy})")]
    Refused {
        /// Why.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A device refused.
    #[error("{step}: {source}")]
    Verbs {
        /// What was being done.
        step: &'static str,
        /// What it said.
        source: VerbsError,
    },
    /// The queue pair could not be connected.
    #[error("connecting the queue pair: {0}")]
    Connect(#[from] ModifyError),
    /// A request could not be posted.
    #[error(transparent)]
    Post(#[from] PostError),
    /// Completions were lost.
    #[error(transparent)]
    Cq(#[from] CqError),
    /// A request failed, or the queue pair did.
    #[error("{0}")]
    Failed(String),
    /// Waiting failed.
    #[error("sleeping on completions: {0}")]
    Sleep(#[source] io::Error),
    /// Nothing came for so long that nothing will.
    #[error("nothing came from the other side in {seconds} s: is a packet filter in the way?")]
    Silent {
        /// How long.
        seconds: u64,
    },
}

impl PerfError {
    /// Adds the step to what a device said.
    pub(super) fn verbs(step: &'static str) -> impl FnOnce(VerbsError) -> PerfError {
        move |source| PerfError::Verbs { step, source }
    }
}
