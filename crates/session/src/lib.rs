//! The session: how a source and a collector find that they fit, and stay in touch.
//!
//! One control connection per session carries a few small messages (`docs/spec/session.md`). They
//! agree on the devices, on the providers of both sides and on the collector's ring; the frames then
//! go through a queue pair that is not this crate's business.
//!
//! - In: bytes of a connection ([`io`]), decoded and checked by [`wire`]; decisions of the engine
//!   that drives a state machine.
//! - Out: what a machine asks for, one [`machine::Output`] at a time: a message to send, an event
//!   for the engine, or the time until which there is nothing to do.
//! - Promises: a peer can say whatever it likes and this side neither panics nor allocates without
//!   a limit; connections that never finish block no other; a path is never chosen silently, its
//!   reason says why no better one was; the same facts give the same choice.
//!
//! The parts:
//!
//! | module | what | reads a clock or does I/O |
//! |---|---|---|
//! | [`message`], [`check`], [`names`], [`refusal`] | the messages and their limits | no |
//! | [`wire`] | framing and JSON | no |
//! | [`source_side`], [`collector_side`], [`machine`] | the two state machines | no |
//! | [`registry`] | which session owns a device | no |
//! | [`path`] | choice of the provider of each side | no |
//! | [`backoff`] | pauses between attempts | no |
//! | [`host`] | what distinguishes one host from another | reads files |
//! | [`io`], [`tls`] | sockets, listener, TLS | yes |
//! | `cert` | makes certificates (feature `certificates`) | writes files |
//!
//! It knows nothing of rings, frames, metrics or pages: the crates above translate.
#![forbid(unsafe_code)]

pub mod backoff;
#[cfg(feature = "certificates")]
pub mod cert;
pub mod check;
pub mod collector_side;
pub mod host;
pub mod io;
mod json;
pub mod machine;
pub mod message;
pub mod names;
pub mod path;
pub mod refusal;
pub mod registry;
pub mod source_side;
pub mod tls;
pub mod wire;

#[cfg(test)]
mod handshake_test;
#[cfg(test)]
mod reconnect_test;
#[cfg(test)]
mod samples;
