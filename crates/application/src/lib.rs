//! For applications of an agent that use no verbs: peers by the names of their services, messages, and named memory that a
//! peer reads and writes by itself.
//!
//! - In: the name of the application in its agent's policy; hosts and services by name; bytes.
//! - Out: [`Connection`]s, over which messages of any length arrive whole, in order and once, and memory of the peer is
//!   read and written one-sidedly, as far as its owner allows that.
//! - Promises: what [`Connection::send`] took arrives, or the peer learns that the connection broke. A peer that breaks
//!   the rules harms its own connection only. No thread, no port and no certificate of its own: agents pass calls of
//!   services on, in the sessions that they have with each other.
//!
//! ```no_run
//! # fn main() -> Result<(), catchment_application::Error> {
//! use catchment_application::Application;
//!
//! let mut frames = Application::open("vision")?.connect("10.0.0.2", "frames")?;
//! frames.send(b"a picture")?;
//! let answer = frames.recv()?;
//! # Ok(())
//! # }
//! ```
//!
//! An [`Application`] has a weight in the policy of its agent, and says with [`Hint`]s what it wants of its rate. A
//! [`Connection`] is a queue pair of RC and 3 MiB of memory; one thread at a time uses it. `docs/guide/applications.md` shows
//! it, `docs/spec/agent.md` has the messages.
#![forbid(unsafe_code)]

mod application;
mod connection;
mod domain;
mod error;
mod service;
mod wire;

pub use application::{Application, Dial, Hint};
pub use connection::Connection;
pub use domain::{Region, Rights};
pub use error::Error;
pub use service::{Caller, Service};
pub use wire::LONGEST_BYTES;
