//! What planning uses again and again, so that it allocates nothing.
use super::TransferId;
use super::transfer::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What planning uses again and again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// What a round gives to each, the most important first.
    pub(super) plan: Vec<(TransferId, u64)>,
    pub(super) hopeless: Vec<TransferId>,
    pub(super) changed: Vec<TransferId>,
    /// What is left of each link.
    pub(super) rooms: Vec<u64>,
    /// The next of each path.
    pub(super) heads: BinaryHeap<Reverse<(Key, TransferId, usize)>>,
}
