//! Collects frames from many devices into collectors over RDMA.
#![forbid(unsafe_code)]

pub mod format;
pub mod input;
pub mod observe;

#![forbid(unsafe_code)]

pub mod session;
