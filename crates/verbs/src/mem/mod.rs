//! Registered memory: sealed memfd mappings, reached only through volatile and atomic access.
//!
//! The memory of a [`Region`] may be written at any time by another process or a network adapter.
//! Rust's references promise that this cannot happen, so no reference to its bytes is ever made,
//! except to atomics, which allow it. This module is the only one of the crate with `unsafe`.
mod error;
mod fault;
mod region;
mod volatile;

pub use error::MemError;
pub use fault::broken_event;
pub use region::{Region, RegionOptions, RegionSlice};
pub use volatile::VolatileSlice;

/// Bytes that travel together between caches on the machines we run on.
pub const CACHE_LINE_BYTES: usize = 64;
