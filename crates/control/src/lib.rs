//! Controllers without I/O: who may send how much, when, on what many sources share.
//!
//! Every controller here is a machine with one way in and one way out: `handle(now_ns, input)`, then
//! `poll()` until it returns a timeout. Times are nanoseconds from an origin of the caller's and never go
//! back. Nothing here opens a socket, reads a clock or draws a random number.
//!
//! - [`admission`]: grants the right to send over links that many sources share.
//! - [`drum`]: rates of applications that share hosts, fair and optimal, by distributed ADMM.
#![forbid(unsafe_code)]

pub mod admission;
mod capacity;
pub mod drum;
