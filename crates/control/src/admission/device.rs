//! A device: what it may do, and what it has.
use super::pool::Pool;
use super::transfer::Key;
use super::{DeviceSpec, TransferId};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Device {
    pub(super) spec: DeviceSpec,
    pub(super) pool: Pool,
    /// For each link of the path, up to which level of its reference the device has data.
    pub(super) marks: Vec<f64>,
    /// Transfers that want something, in their order.
    pub(super) queue: VecDeque<(Key, TransferId)>,
    pub(super) head: Option<(Key, TransferId)>,
    pub(super) transfers: u32,
    pub(super) periodic_bps: u64,
}
