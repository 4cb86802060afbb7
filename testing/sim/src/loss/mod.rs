//! Goodput on links that lose packets: a table in virtual time.
//!
//! One queue pair writes continuously over a link that loses packets in both directions. Goodput is
//! the payload that the responder puts in place in a span after a warm-up, as a fraction of the
//! capacity of the link without loss, in full packets:
//!
//! ```text
//! payload bits in place / (span * rate * path MTU / (path MTU + 80))
//! ```
//!
//! 80 bytes are IPv6 40, UDP 8, BTH 12, RETH 16, ICRC 4. With a loss of p the limit is 1 - p.
//! Settings are the defaults of the crate.
mod cell;
mod options;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use cell::{Cell, Row};
pub use options::{LossOptions, run};
