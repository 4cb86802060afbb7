//! Transfers that have ended: their numbers are kept until nothing earlier about them can come any more.
use super::entry::Key;
use std::collections::{BTreeSet, VecDeque};

/// After this many datagrams the replay window refuses all before.
const REORDER: u64 = 2048;
/// Most that are known.
const ENDED_MAX: usize = 1 << 14;

/// What has ended. It is small: a source may end thousands within the replay window; most have ended nothing lately.
#[derive(Debug, Default)]
pub(super) struct Ended(Option<Box<Keys>>);

#[derive(Debug, Default)]
struct Keys {
    keys: BTreeSet<Key>,
    /// The count of datagrams at the end of each, oldest first.
    order: VecDeque<(u64, Key)>,
}

impl Ended {
    pub(super) fn contains(&self, key: Key) -> bool {
        self.0.as_ref().is_some_and(|ended| ended.keys.contains(&key))
    }

    /// Notes one, with the count of datagrams of its source.
    pub(super) fn insert(&mut self, datagrams: u64, key: Key) {
        let ended = self.0.get_or_insert_default();
        if ended.keys.insert(key) {
            ended.order.push_back((datagrams, key));
        }
        if ended.order.len() > ENDED_MAX {
            ended.pop();
        }
    }

    /// Forgets those that ended so long ago that no earlier datagram is opened any more.
    pub(super) fn expire(&mut self, datagrams: u64) {
        let Some(ended) = &mut self.0 else { return };
        while ended.order.front().is_some_and(|(at, _)| at + REORDER < datagrams) {
            ended.pop();
        }
        if ended.order.is_empty() {
            self.0 = None;
        }
    }
}

impl Keys {
    fn pop(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.keys.remove(&key);
        }
    }
}
