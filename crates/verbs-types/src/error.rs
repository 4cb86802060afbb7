//! Errors of posting and of changing the state of a queue pair.
use crate::{QpState, Service};

/// Moving a queue pair to another state failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// IBTA 10.3.1 does not have this transition.
    #[error("queue pair {qpn}: no transition from {from:?} to {to:?}")]
    Illegal {
        /// The queue pair.
        qpn: u32,
        /// The state it is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// The transition is one of another service.
    #[error("queue pair {qpn}: its service is {service}, which has another transition to {to:?}")]
    Service {
        /// The queue pair.
        qpn: u32,
        /// Its service.
        service: Service,
        /// The state asked for.
        to: QpState,
    },
    /// An attribute has a value out of range.
    #[error("queue pair {qpn}: {what} = {value} is out of range ({range})")]
    Attribute {
        /// The queue pair.
        qpn: u32,
        /// The attribute.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What is allowed.
        range: &'static str,
    },
    /// The operating system refused what the new state needs.
    #[error("queue pair {qpn}: {what}: {reason}")]
    Resources {
        /// The local queue pair.
        qpn: u32,
        /// What was needed.
        what: &'static str,
        /// What the system said.
        reason: String,
    },
    /// The peer could not be reached or refused.
    #[error("queue pair {qpn}: cannot reach {peer}: {reason}")]
    Peer {
        /// The local queue pair.
        qpn: u32,
        /// The peer's address.
        peer: String,
        /// What went wrong and what to do.
        reason: String,
    },
}

/// `Qp::post_send` or `Qp::post_recv` posted only some of the requests.
///
/// The requests before `index` are posted, that one and those after it are not (`bad_wr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("work request {index} not posted: {reason}")]
pub struct PostError {
    /// Index of the first request that was not posted.
    pub index: usize,
    /// Why.
    pub reason: PostFailure,
}

/// Why a request was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostFailure {
    /// The queue is full: poll completions, then post again. A normal event, not a fault:
    /// capacity of the queue.
    #[error("the queue is full ({0} requests outstanding)")]
    QueueFull(u32),
    /// The queue pair takes no requests in this state.
    #[error("the queue pair is in state {0:?}")]
    State(QpState),
    /// Too many scatter-gather elements.
    #[error("{asked} scatter-gather elements, at most {limit} are allowed")]
    TooManySges {
        /// Elements in the request.
        asked: usize,
        /// Elements allowed.
        limit: u32,
    },
    /// Too much inline data.
    #[error("{asked} bytes of inline data, at most {limit} are allowed")]
    InlineTooLong {
        /// Bytes in the request.
        asked: usize,
        /// Bytes allowed.
        limit: u32,
    },
    /// The message is longer than the device can send.
    #[error("message of {asked} bytes, at most {limit} are allowed")]
    MessageTooLong {
        /// Bytes in the request.
        asked: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The operation cannot have this payload (READ and atomics cannot be inline, an atomic needs
    /// eight bytes).
    #[error("the payload does not fit the operation: {0}")]
    Payload(&'static str),
    /// Queue pairs of this service do not have the operation.
    #[error("a queue pair of the service {0} does not have this operation")]
    Service(Service),
    /// The device does not have the operation; see `Caps`.
    #[error("this device does not offer {0}")]
    NotOffered(&'static str),
    /// The destination of a datagram is invalid.
    #[error("the destination of the datagram: {0}")]
    Destination(&'static str),
    /// The device refused the request for a reason of its own: the system's error number.
    #[error("the device refused the request: {}", std::io::Error::from_raw_os_error(*.0))]
    Device(i32),
}

impl PostFailure {
    /// A datagram names an address handle that is none of its queue pair's protection domain.
    pub const UNKNOWN_AH: Self =
        Self::Destination("its protection domain has no address handle of that number");
}
