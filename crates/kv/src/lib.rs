//! A key-value store in registered memory: clients read and write it over verbs, one-sided.
//!
//! - In: keys of up to 1 KiB, values of up to 1 MiB; GET, PUT, DELETE, and PUT of a version.
//! - Out: values with versions; errors that name the limit.
//! - Promises: linearizable for each key. Nothing is evicted, and nothing is on a disk: when the server ends, all is
//!   gone.
//!
//! `docs/spec/kv.md` has the bytes and the argument. Without I/O are [`layout`], [`item`], [`operation`] (what a
//! client does) and [`store`] (the server's books); [`Server`] and [`Client`] carry them out over a provider.
#![forbid(unsafe_code)]
mod client;
mod error;
pub mod item;
pub mod layout;
pub mod load;
pub mod memory;
pub mod operation;
mod protocol;
mod request;
mod server;
pub mod store;

pub use client::{Client, ClientConfig, Replaced, Value};
pub use error::{KvError, ServeError};
pub use protocol::Sided;
pub use server::{Config as ServerConfig, Server};
