//! Collects frames from many devices into collectors over RDMA.

#![forbid(unsafe_code)]

pub mod session;
