//! Transfers that have ended: their numbers are kept until nothing earlier about them can come any more.
use super::entry::Key;
use std::collections::{BTreeSet, VecDeque};

/// After this many datagrams the replay window refuses all before.
const REORDER: u64 = 2048;
/// Most that are known.
const ENDED_MAX: usize = 1 << 14;

/// What has ended. It is small: a source may end thousands within the replay window.
#[derive(Debug, Default)]
pub(super) struct Ended {
    keys: BTreeSet<Key>,
    /// The count of datagrams at the end of each, oldest first.
    order: VecDeque<(u64, Key)>,
}

impl Ended {
    pub(super) fn contains(&self, key: Key) -> bool {
        self.keys.contains(&key)
    }

    /// Notes one, with the count of datagrams of its source.
    pub(super) fn insert(&mut self, datagrams: u64, key: Key) {
        if self.keys.insert(key) {
            self.order.push_back((datagrams, key));
        }
        if self.order.len() > ENDED_MAX {
            self.pop();
        }
    }

    /// Forgets those that ended so long ago that no earlier datagram is opened any more.
    pub(super) fn expire(&mut self, datagrams: u64) {
        while self.order.front().is_some_and(|(at, _)| at + REORDER < datagrams) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.keys.remove(&key);
        }
    }
}
