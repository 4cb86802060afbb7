//! Goodput on links that lose packets: a table in virtual time.
//!
//! One queue pair writes without a pause over a link that loses packets in both directions. Goodput
//! is what the responder puts in place in a span that begins after a warm-up, as a fraction of what
//! the link could carry if nothing were lost and every packet were a full one:
//!
//! ```text
//! payload bits in place / (span * rate * path MTU / (path MTU + 80))
//! ```
//!
//! 80 bytes are IPv6 40, UDP 8, BTH 12, RETH 16, ICRC 4. With a loss of p nobody can reach more than
//! 1 - p. Settings are the defaults of the crate.
mod cell;
mod options;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use cell::{Cell, Row};
pub use options::{LossOptions, run};
