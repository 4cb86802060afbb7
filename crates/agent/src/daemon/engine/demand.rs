//! What an application asks for, as other hosts are told.

/// Least demand, in bytes a second: a request that comes now and then is sent at once.
pub(super) const LEAST_DEMAND: f64 = 1e6;
/// What is told of who comes: he has sent nothing.
pub(super) const FIRST_DEMAND: Demand =
    Demand { bytes: 0, emptied: 0, held_ns: 0, told: Some(LEAST_DEMAND) };

/// What an application asked for when it was last looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) bytes: u64,
    pub(super) emptied: u64,
    pub(super) held_ns: u64,
    /// As it was told; nothing: more than it gets.
    pub(super) told: Option<f64>,
}
