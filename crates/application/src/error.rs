//! What can go wrong.
use super::Rights;
use catchment_channel::{ChannelError, EndError, OperationError};
use catchment_verbs::VerbsError;
use catchment_verbs::mem::MemError;
use std::time::Duration;

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The agent is not there, or refuses.
    #[error("{0}")]
    Agent(String),
    /// A connection to a service cannot be made.
    #[error("cannot connect to the service {service:?} of {host}: {reason}")]
    Connect {
        /// Its name.
        service: String,
        /// The host, as it was given; or that it is this one.
        host: String,
        /// Why, for people.
        reason: String,
    },
    /// A caller of a service is not connected. Others may be.
    #[error("a caller, application {application:?}, is not connected: {reason}")]
    Caller {
        /// His name in the policy of his agent.
        application: String,
        /// Why, for people.
        reason: String,
    },
    /// A name that no region can have, or that is given already.
    #[error("a region {name:?}: {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The peer has no region of this name for this end.
    #[error("the peer has no region {name:?}; it has: {known}")]
    NoRegion {
        /// The name.
        name: String,
        /// Those that it has.
        known: String,
    },
    /// The owner of a region does not allow that.
    #[error("the region {name:?} may be used to {allowed}, and not to {asked}")]
    Rights {
        /// Its name.
        name: String,
        /// What its owner allows.
        allowed: Rights,
        /// What was asked for.
        asked: Rights,
    },
    /// Bytes that a region does not have.
    #[error("bytes {offset}..+{bytes} of the region {name:?}, which has {available}")]
    Bounds {
        /// Its name.
        name: String,
        /// Where they begin.
        offset: u64,
        /// How many.
        bytes: u64,
        /// How many it has.
        available: u64,
    },
    /// A message that is longer than any may be.
    #[error("a message of {bytes} bytes: at most {longest} are allowed")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// The most.
        longest: u64,
    },
    /// Nothing came, or the peer took nothing, for so long. The connection is as it was.
    #[error("nothing happened within {0:?}")]
    Timeout(Duration),
    /// The peer has closed the connection, or this end has.
    #[error("the connection is closed")]
    Closed,
    /// The connection broke: every later call says so.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl Error {
    pub(crate) fn agent(error: &VerbsError) -> Self {
        Self::Agent(error.to_string())
    }

    /// Returns the same, where it tells of a time, with the time that was waited in all.
    pub(crate) fn after(self, patience: Duration) -> Self {
        if matches!(self, Self::Timeout(_)) { Self::Timeout(patience) } else { self }
    }

    pub(crate) fn broken(error: &impl ToString) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::broken(&error)
    }
}

impl From<EndError> for Error {
    fn from(error: EndError) -> Self {
        Self::broken(&error)
    }
}

impl From<ChannelError> for Error {
    fn from(error: ChannelError) -> Self {
        Self::broken(&error)
    }
}

impl From<OperationError> for Error {
    fn from(error: OperationError) -> Self {
        Self::broken(&error)
    }
}

impl From<MemError> for Error {
    fn from(error: MemError) -> Self {
        Self::broken(&error)
    }
}
