//! Keys that were handed out once are not handed out again.
//!
//! Devices number their keys in a circle, some a small one. A peer of a former session may still
//! hold a key; it must not give access to memory of the next.
use catchment_verbs::sync::Mutex;
use std::collections::{HashSet, VecDeque};

/// Keys that are remembered; the oldest are forgotten.
const REMEMBERED: usize = 1 << 17;

#[derive(Debug, Default)]
pub(crate) struct RetiredKeys(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    all: HashSet<u32>,
    oldest_first: VecDeque<u32>,
}

impl RetiredKeys {
    /// Returns whether the key was in use before.
    pub(crate) fn contains(&self, key: u32) -> bool {
        self.0.lock().all.contains(&key)
    }

    /// Remembers a key that is about to be revoked.
    pub(crate) fn add(&self, key: u32) {
        let mut keys = self.0.lock();
        if !keys.all.insert(key) {
            return;
        }
        keys.oldest_first.push_back(key);
        if keys.oldest_first.len() > REMEMBERED
            && let Some(oldest) = keys.oldest_first.pop_front()
        {
            keys.all.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_keys_are_remembered() {
        let keys = RetiredKeys::default();
        let last = REMEMBERED as u32;
        for key in 0..=last {
            keys.add(key);
            keys.add(key);
        }
        assert!(!keys.contains(0), "the oldest is forgotten");
        assert!(keys.contains(1) && keys.contains(last));
        assert!(!keys.contains(last + 1));
    }
}
