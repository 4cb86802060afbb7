//! Plain types of verbs: the one vocabulary of applications, providers and the RoCE protocol.
//!
//! The crate defines what a queue pair is asked to do ([`SendWr`], [`RecvWr`], [`SendOp`], [`Sge`]),
//! what it answers ([`Completion`], [`WcStatus`]), the states that it goes through ([`QpState`],
//! [`QpTransition`]) and the errors of doing so ([`ModifyError`], [`PostError`]). `catchment-verbs`
//! adds the traits of providers and registered memory, and re-exports everything here;
//! `catchment-roce` implements the protocol with the same types, so a work request needs no
//! translation between an application and the wire.
//!
//! Data comes in and goes out by value or by borrow: nothing here allocates, does I/O, reads a clock,
//! or holds memory of an application. The names are those of the InfiniBand architecture
//! specification (IBTA) and of `libibverbs`.
//!
//! What the crate promises:
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
pub use endpoint::{Endpoint, EndpointParseError, Gid, GidParseError, NetEnd};
pub use error::{ModifyError, PostError, PostFailure};
pub use limits::{Limits, MAX_24_BITS, QpCapacity};
pub use rate::{Flow, RateError, RateRange, TokenBucket};
pub use service::{Destination, GRH_BYTES, MAX_QKEY, PortAddr, Service, Services, source_gid};
pub use state::{QpState, QpTransition, RtrAttr, RtsAttr};
pub use work::{Payload, RecvWr, RemoteAddr, SendOp, SendWr, Sge};
