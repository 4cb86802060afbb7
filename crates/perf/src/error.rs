//! What can go wrong.
use catchment_verbs::{CqError, ModifyError, PostError, VerbsError};
use std::io;
use std::net::SocketAddr;

/// A measurement could not start, or broke.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// The plan cannot be carried out.
    #[error("{0}")]
    Plan(String),
    /// This host cannot be identified.
    #[error("{0}")]
    Host(String),
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
        /// Host and port.
        to: String,
        /// What the system said.
        source: io::Error,
    },
    /// The control connection broke, or the other side was silent.
    #[error("control connection: {0}")]
    Control(#[source] io::Error),
    /// The other side sent something that is not allowed here.
    #[error("the other side sent {seen}; expected {expected}")]
    Protocol {
        /// What came, shortened.
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
    /// A request or the queue pair failed.
    #[error("{0}")]
    Failed(String),
    /// Waiting failed.
    #[error("waiting for an event: {0}")]
    Sleep(#[source] io::Error),
    /// Nothing came for so long that nothing will.
    #[error("nothing came from the other side in {0} s: is a packet filter in the way?")]
    Silent(u64),
    /// A child process could not be started, or failed.
    #[error("{name}: {what}")]
    Process {
        /// What the process is.
        name: &'static str,
        /// What went wrong.
        what: String,
    },
}

impl PerfError {
    /// Returns a function that adds the step to what a device said.
    pub(crate) fn verbs(step: &'static str) -> impl FnOnce(VerbsError) -> Self {
        move |source| Self::Verbs { step, source }
    }

    /// Wraps any other error that ends a measurement.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}
