//! What a machine can do, and which path frames would take: the answers behind `catchment doctor`,
//! `catchment devices` and `catchment explain`.
//!
//! - In: what the kernel shows under `/proc` and `/sys`, what libibverbs lists, what happens when the
//!   things that a source or collector needs are tried out; for [`explain`] also the answers of a
//!   collector.
//! - Out: plain rows: [`checks::Check`], [`devices::Device`], [`explain::Answer`].
//! - Promises: nothing on the machine is changed; [`checks`] and [`devices`] send nothing to another
//!   host but to a controller that was named; [`explain`] opens a session without devices, so that it takes the path that frames would
//!   take, up to the proof that packets pass. Each problem comes with what to do about it.
#![forbid(unsafe_code)]

pub mod checks;
pub mod devices;
pub mod explain;
