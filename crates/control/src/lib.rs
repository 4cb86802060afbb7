//! Controllers without I/O: numbers go in, decisions come out.
//!
//! - [`drum`]: rates of applications that share hosts, fair and optimal, by distributed ADMM.
//!
//! Nothing here opens a socket, reads a clock or draws a random number.
#![forbid(unsafe_code)]

pub mod drum;
