//! RAW, SHARE and DRUM on modelled NICs, in virtual time.
//!
//! Data in: how many connections, what they ask for, by which method. Data out: a [`Came`].
//!
//! | | |
//! |---|---|
//! | `costs` | what processors take, each constant with its source |
//! | `port` | a device with memory, and what is asked of it |
//! | `host` | a host: its connections and what they have outstanding, by any of the methods |
//! | `agent` | DRUM: the scheduler and the shared queue pairs of `catchment-agent`, and the shares of its policy |
//! | `clients` | connections that ask again when they were answered; clients of a store |
//! | `services` | RC, UC and UD on the NIC alone |
//!
//! The NIC is [`catchment_sim::verbs::Rnic`]. What comes out follows from the model; nothing of it was measured.
#![forbid(unsafe_code)]

mod agent;
mod clients;
mod costs;
mod host;
mod port;
mod services;

pub use clients::{Background, Came, Connections, Polled, Store};
pub use costs::{Costs, Method, Window};
pub use services::{Service, services};
