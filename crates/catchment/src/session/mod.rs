//! The session: how a source and a collector find that they fit, and stay in touch.
//!
//! One control connection per session carries a few small messages (see `docs/spec/session.md`);
//! the frames go through the queue pair that these messages set up. The parts:
//!
//! - pure: [`message`], [`wire`] (framing), [`source_side`] and [`collector_side`] (state
//!   machines), [`backoff`], [`registry`] (who owns a device), [`path`] (choice of the provider);
//! - with the operating system: [`host`], [`tls`], [`cert`], [`io`] (sockets), `providers`.

pub mod backoff;
pub mod cert;
pub mod check;
pub mod collector_side;
pub mod host;
pub mod io;
mod json;
mod machine;
pub mod message;
pub mod names;
pub mod path;
pub(crate) mod providers;
pub mod refusal;
pub mod registry;
pub mod source_side;
pub mod tls;
pub(crate) mod welcome;
pub mod wire;

#[cfg(test)]
mod handshake_test;
#[cfg(test)]
mod reconnect_test;
#[cfg(test)]
mod samples;
