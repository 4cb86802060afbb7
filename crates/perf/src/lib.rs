//! The measuring engine: how fast two processes move bytes over verbs, in the manner of perftest.
//!
//! One side is active, the other passive. Both have a [`LocalDevice`] and one end of a [`Control`]
//! connection. The active side calls [`measure()`] with a [`Plan`] and gets a [`Measured`]; the passive
//! side calls [`serve()`], which carries out what it is asked to until the connection ends. Each plan has
//! a queue pair (RC) and a region of its own on both sides.
//!
//! - Bandwidth (`flow`): the active side keeps [`Plan::depth`] requests outstanding. The passive side
//!   does nothing for WRITE and READ; for SEND it posts receives again.
//! - Latency ([`ping_pong`]): one request at a time. A WRITE or SEND is answered by the same, and half of
//!   the round trip counts; a READ is its own round trip, and all of it counts.
//! - Blocks ([`blocks`]): a mechanism moves blocks that the active side's program fills from a buffer of
//!   its own and the passive side's program takes. The product's mechanism is
//!   [`blocks::STATUS_BYTE`]; a program that compares adds others ([`blocks::BlockMechanism`]).
//!
//! Data in: a device, a plan, the control connection. Data out: [`Row`]s and [`Usage`]s. The front ends
//! (`catchment bench`, `cargo xtask bench`, the lab's table) choose devices, start processes and print.
//!
//! What the engine promises:
//! - Both sides are warm before a clock starts: pages touched, neighbours resolved ([`Plan::warm_up`]).
//! - Processor time is that of all threads of a process, from the same points as the measured time.
//! - The hot loops allocate nothing, and call the system only to read the clock and to wait.
//! - A side that is gone, silent or talks nonsense ends a measurement with an error that says so.
#![forbid(unsafe_code)]

pub mod blocks;
mod control;
mod endpoint;
mod error;
mod flow;
mod message;
mod meter;
mod operation;
pub mod ping_pong;
mod plan;
mod process;
mod role;
mod row;
mod span;
pub mod stats;
mod wait;

pub use control::{Control, PATIENCE};
pub use endpoint::LocalDevice;
pub use error::PerfError;
pub use meter::{Meter, Usage, process_cpu_time};
pub use operation::{Figure, Operation, Test, TestParseError};
pub use plan::{Amount, Plan, Waiting};
pub use process::ChildProcess;
pub use role::{measure, measure_blocks, serve, time_requests};
pub use row::{Bandwidth, Latency, Row};
pub use span::{Measured, Strays};
pub use wait::{patience, wait_for};
