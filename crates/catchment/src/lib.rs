//! Collects frames from many devices into collectors over RDMA.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod collector;
pub mod devices;
pub mod doctor;
pub mod duplex;
pub mod explain;
pub mod format;
mod frame;
pub mod ibverbs;
pub mod input;
pub mod observe;
pub mod perf;
pub mod roce;
pub mod session;
pub mod sink;
pub mod source;

pub use frame::Frame;
