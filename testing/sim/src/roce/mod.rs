//! Hosts that run the shipped queue pairs: a driver for the simulated network.
mod capture;
mod host;
mod packet;
mod pair;
mod space;
mod station;
mod writer;

pub(crate) use packet::seal;

pub(crate) use capture::Capture;
pub(crate) use host::{Host, HostConfig, Program, QpTable, address};
pub use pair::{Cable, End, Logged, Pair, Side};
pub use space::{Access, Region, Rights, Space};
pub(crate) use station::Station;
pub(crate) use writer::{Writer, connected};
