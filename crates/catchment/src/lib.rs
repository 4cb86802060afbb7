//! Collects frames from many devices into collectors over RDMA.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod collector;
pub mod format;
mod frame;
pub mod input;
pub mod observe;
pub mod roce;
pub mod session;
pub mod sink;
pub mod source;

pub use frame::Frame;
