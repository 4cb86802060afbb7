//! How fast the way between two processes is, in the manner of the perftest programs: a [`Server`]
//! waits, a [`Client`] measures WRITEs, READs and SENDs of given sizes. Answers behind
//! `catchment bench`.
//!
//! The way is chosen as for frames: the client stands where a source stands, the server where a
//! collector does. Both have one queue pair (RC) and one region, used round and round.
//!
//! - Bandwidth: the client keeps [`Plan::depth`] requests outstanding. The server does nothing for
//!   WRITE and READ; for SEND it posts receives again.
//! - Latency: one request at a time. WRITE and SEND are answered by the same, and half of the round
//!   trip is given; a READ is its own round trip, and all of it is given.
//! - Blocks: a mechanism of the transfer crate moves blocks that the client's program fills from a
//!   buffer of its own and the server's program takes ([`BlockPlan`]).
//!
//! The control connection is plain TCP. It gives keys to memory that holds nothing and lives as long
//! as the connection; whoever reaches the server can measure, one at a time.

mod bandwidth;
mod blocks;
mod client;
mod control;
mod end;
mod error;
mod latency;
mod message;
mod plan;
mod server;
mod wait;

pub use blocks::BlockPlan;
pub use catchment_transfer::mechanism::{Protocol, ProtocolParseError};
pub use client::{Client, PathTaken};
pub use error::PerfError;
pub use plan::{
    Amount, Bandwidth, Figure, Latency, Operation, Plan, Row, Test, TestParseError, Waiting,
};
pub use server::{PORT, Served, Server};

use crate::ibverbs::IbverbsOptions;
use crate::roce::RoceOptions;
use crate::session::{path::PathRules, providers::Providers};

/// Which providers may be used, and how.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Rules of this side.
    pub rules: PathRules,
    /// Settings of RoCEv2 devices.
    pub roce: RoceOptions,
    /// Settings of RDMA devices.
    pub ibverbs: IbverbsOptions,
}

impl Setup {
    fn providers(&self) -> Providers {
        Providers::of(&self.rules, &self.roce, &self.ibverbs)
    }
}
