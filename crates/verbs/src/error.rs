//! Errors, one enum per operation.
use crate::{QpState, Service, Services, WcStatus};

/// Creating or opening a verbs object failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The operating system refused.
    #[error("{what}: {source}")]
    Os {
        /// The call and what it was for.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// There is no device of that name.
    #[error("no device {name:?}; this provider has: {}", .known.join(", "))]
    NoDevice {
        /// The requested name.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The provider cannot work on this machine.
    #[error("{provider} cannot be used: {reason}")]
    Unavailable {
        /// Name of the provider.
        provider: &'static str,
        /// What was found and what to do.
        reason: String,
    },
    /// A value is beyond what the device can do.
    #[error("{what} = {asked} is beyond this device's limit of {limit}")]
    Limit {
        /// The field that is too large.
        what: &'static str,
        /// The requested value.
        asked: u64,
        /// The largest value allowed.
        limit: u64,
    },
    /// Registered memory is locked in RAM, beyond what the system lets this process lock.
    #[error(
        "{provider}: cannot lock {asked_bytes} bytes more: {locked_bytes} are locked already, the \
         limit is {limit_bytes} (RLIMIT_MEMLOCK): raise it, in a shell with `ulimit -l \
         unlimited`, for logins in /etc/security/limits.conf (`* - memlock unlimited`), for a \
         service with LimitMEMLOCK=infinity, for a container with `--ulimit memlock=-1` or the \
         capability IPC_LOCK"
    )]
    MemoryLock {
        /// Name of the provider.
        provider: &'static str,
        /// Requested bytes.
        asked_bytes: u64,
        /// Bytes already locked.
        locked_bytes: u64,
        /// The most that may be locked.
        limit_bytes: u64,
    },
    /// The device has no queue pairs of this service; see [`crate::Caps::services`].
    #[error("this device offers no {asked}: it has {offered}")]
    Service {
        /// The requested service.
        asked: Service,
        /// The services of the device.
        offered: Services,
    },
    /// A combination of arguments that verbs do not allow.
    #[error("{0}")]
    Invalid(String),
    /// The provider does not have this operation; see [`crate::Caps`].
    #[error("{provider} does not support {what}")]
    Unsupported {
        /// Name of the provider.
        provider: &'static str,
        /// The operation.
        what: &'static str,
    },
}

impl VerbsError {
    /// Returns an operating system error with the call that failed.
    pub fn os(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Os { what: what.into(), source: source.into() }
    }
}

impl From<crate::mem::MemError> for VerbsError {
    fn from(error: crate::mem::MemError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// Polling a completion queue failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CqError {
    /// A completion found the queue full; completions are lost and the queue pairs are in error:
    /// capacity of the queue.
    #[error("completion queue overrun: more than {0} completions were not polled")]
    Overrun(u32),
    /// The device could not read the queue; its queue pairs are in error.
    #[error("the device's driver cannot read its completion queue")]
    Broken,
}

/// [`crate::Qp::map_remote`] or [`crate::Qp::watch_remote`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteMapError {
    /// The provider cannot map a peer's memory.
    #[error("this provider cannot map a peer's memory; use WRITE and READ")]
    Unsupported,
    /// The queue pair is not connected.
    #[error("the queue pair is in state {0:?}, not connected")]
    State(QpState),
    /// The peer does not allow it.
    #[error("rkey {rkey:#x}, address {addr:#x}, {len} bytes: {status}")]
    Refused {
        /// The key.
        rkey: u32,
        /// The remote address.
        addr: u64,
        /// The requested length.
        len: u64,
        /// The reason, as a WRITE there would report it.
        status: WcStatus,
    },
}
