//! A data centre of hosts that share rates: thousands of [`catchment_control::drum::Host`] as shipped, in
//! virtual time, with messages as they are encoded.
//!
//! Messages take half a round trip and jitter, and may be lost, doubled, overtaken, or 100 ms late. After
//! every event that changes a rate, what is in force is held against every capacity it uses. What is not
//! simulated: the data itself; what a host sends is what it has put in force, from that moment on.
//!
//! `soak` draws all of it from a seed, with hosts that die, come back, stand still and are cut off.
mod force;
mod options;
mod population;
mod row;
mod scenario;
mod soak;
#[cfg(test)]
mod tests;
mod trial;
mod world;

pub use options::{DrumOptions, run};
pub use soak::{DrumSoakOptions, run as soak};
