//! The transmission controller as shipped, with sources and links in virtual time: loads that it carries.
//!
//! Twelve sources share a link. One has urgent events of a frame, eleven have tolerant ones of fifteen;
//! a frame is 24,883,200 bytes (3840 × 2160 × 3), events come as a Poisson process. An event is on time
//! when all its frames have left within its deadline: 100 ms or 1 s from its generation. The *knee* is the
//! largest load at which both classes have 95 % of their bytes on time.
//!
//! The controller is [`catchment_control::admission::Controller`]. Sources are machines of this module:
//! they ask, obey windows, stop at borders of chunks, and report. WRITEs are units on the links: what
//! leaves a source is on its links at that rate, at that time; packets are not simulated. Methods
//! `fifo` and `priority` are our reading of RDMA-TCM and P-RDMA-TCM, with calibrated delays; the
//! authors' controller was not available.
mod account;
mod added;
mod cell;
mod fair;
mod figures;
mod knee;
mod ladder;
mod many;
mod options;
mod outcome;
mod packet;
mod packets;
mod replay;
mod row;
mod source;
mod speed;
mod step;
mod stream;
#[cfg(test)]
mod tests;
mod trace;
mod untold;
mod world;

pub use figures::{Figures, Knee, Rival, Trial, knees, run as run_trials};
pub use options::{AdmissionOptions, run};
pub use outcome::Judged;
pub use replay::{End, Policy, Trace};
pub use trace::Event;
