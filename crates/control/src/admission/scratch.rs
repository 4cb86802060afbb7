//! What planning uses again and again, so that it allocates nothing.
use super::TransferId;
use super::queue::Cursor;
use super::transfer::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What planning uses again and again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// What a round gives to each, the most important first.
    pub(super) plan: Vec<(u32, u64)>,
    pub(super) hopeless: Vec<u32>,
    pub(super) changed: Vec<(TransferId, u32)>,
    /// What is left of each link.
    pub(super) rooms: Vec<u64>,
    /// By path: how far a round is.
    pub(super) cursors: Vec<Cursor>,
    /// The next of each path.
    pub(super) heads: BinaryHeap<Reverse<(Key, u32, usize)>>,
}
