//! Plain types of verbs: the shared vocabulary of applications, providers and the RoCE protocol.
//!
//! The crate defines requests ([`SendWr`], [`RecvWr`], [`SendOp`], [`Sge`]), their completions
//! ([`Completion`], [`WcStatus`]), the states of a queue pair ([`QpState`], [`QpTransition`]) and the
//! errors ([`ModifyError`], [`PostError`]). `catchment-verbs` adds the traits of providers and
//! registered memory, and re-exports everything here; `catchment-roce` implements the protocol with
//! the same types, so a work request needs no translation between an application and the wire.
//!
//! Data is passed by value or by borrow: nothing here allocates, does I/O, reads a clock, or holds
//! memory of an application. The names are those of the IBTA specification and of `libibverbs`.
//!
//! Guarantees:
//! - [`Limits`] is the only place that decides whether a request may be posted;
//! - types on the hot path stay small: a [`SendOp`] has 40 bytes, a [`Completion`] has 40.
#![forbid(unsafe_code)]

mod access;
mod completion;
mod endpoint;
mod error;
mod limits;
mod rate;
mod service;
mod state;
pub mod timer;
mod work;

pub use access::Access;
pub use completion::{Completion, Failure, Success, WcOpcode, WcStatus};
pub use endpoint::{Endpoint, EndpointParseError, Gid, GidParseError, NetEnd, PacketKey};
pub use error::{ModifyError, PostError, PostFailure};
pub use limits::{Limits, MAX_24_BITS, QpCapacity};
pub use rate::{Delivery, Flow, RateError, RateLimit, RateRange, TokenBucket};
pub use service::{Destination, GRH_BYTES, MAX_QKEY, PortAddr, Service, Services, source_gid};
pub use state::{QpState, QpTransition, RtrAttr, RtsAttr};
pub use work::{Payload, RecvWr, RemoteAddr, SendOp, SendWr, Sge};
