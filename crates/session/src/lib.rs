//! The session: how a source and a collector negotiate, and stay in touch.
//!
//! One control connection per session carries a few small messages (`docs/spec/session.md`). They
//! negotiate the devices, the providers of both sides and the collector's ring; the frames then go
//! through a queue pair, which is outside this crate.
//!
//! - In: bytes of a connection ([`io`]), decoded and checked by [`wire`]; decisions of the handler
//!   that drives a state machine.
//! - Out: the outputs of a machine, one [`machine::Output`] at a time: a message to send, an event
//!   for the handler, the end, or the time until which there is nothing to do.
//! - Promises: whatever a peer sends, this side neither panics nor allocates without a limit;
//!   connections that never finish block no other; the reason of a path says why no better one was
//!   chosen; the same facts lead to the same choice.
//!
//! The parts:
//!
//! | module | what | reads a clock or does I/O |
//! |---|---|---|
//! | [`message`], [`check`], [`names`], [`refusal`] | the messages and their limits | no |
//! | [`wire`] | framing and JSON | no |
//! | [`source_side`], [`collector_side`], [`machine`] | the two state machines | no |
//! | [`identity`] | the key pair of a source, and its proof | draws random bytes |
//! | [`registry`] | which session owns a device | no |
//! | [`path`] | choice of the provider of each side | no |
//! | [`registration`] | what a source and a controller tell each other before grants | in its functions |
//! | [`datagrams`], [`carried`] | how datagrams of both go: from sockets, or as messages | yes |
//! | [`backoff`], [`lease`] | pauses between attempts, how long a peer may be silent | no |
//! | [`host`] | identity of the host and process | reads files |
//! | [`io`], [`tls`], [`reread`] | sockets, listener, TLS | yes |
//! | `cert` | makes certificates (feature `certificates`) | writes files |
//!
//! It knows nothing of rings, frames, metrics or pages; the crates above translate.
#![forbid(unsafe_code)]

pub mod backoff;
pub mod carried;
#[cfg(feature = "certificates")]
pub mod cert;
pub mod check;
pub mod collector_side;
pub mod datagrams;
pub mod host;
pub mod identity;
pub mod io;
mod json;
pub mod lease;
pub mod machine;
pub mod message;
pub mod names;
pub mod path;
pub mod refusal;
pub mod registration;
pub mod registry;
pub mod reread;
pub mod source_side;
pub mod tls;
pub mod wire;

/// Name and version of this software, as Hello and refusals show it.
pub const SOFTWARE: &str = concat!("catchment ", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod handshake_test;
#[cfg(test)]
mod reconnect_test;
#[cfg(test)]
mod samples;
