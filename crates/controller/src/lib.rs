//! The transmission controller as a service: a process that grants sources the right to send.
//!
//! - In: the registrations of sources, by TCP or TLS (`catchment_session::registration`); their datagrams.
//! - Out: datagrams with windows. What decides is `catchment_control::admission`, without I/O.
//! - Promises: whatever comes from a socket, nothing panics and nothing grows without a limit; a datagram that
//!   is forged or replayed changes nothing; no state is on disk, so a new process adopts the windows that
//!   its sources report.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | settings: one bottleneck, or a file of strict TOML |
//! | [`admin`] | settings that change, over HTTP |
//! | [`Service`] | the listener, and the thread with the UDP socket; a [`ServiceHandle`] asks it |
//! | [`leader`] | who leads, where several stand in for each other |
//! | [`Status`] | how it stands, for people and programs |
#![forbid(unsafe_code)]

pub mod admin;
mod admit;
pub mod config;
mod grants;
pub mod leader;
mod outbox;
mod reload;
mod serve;
mod service;
mod status;
mod term;

pub use reload::{NewCapacity, ReloadError, Reloaded};
pub use service::{Service, ServiceHandle, StartError};
pub use status::{
    BeforeStatus, ClassStatus, DatagramStatus, LinkStatus, RateStatus, SourceStatus, Status,
    StreamStatus, TransferState, TransferStatus,
};
