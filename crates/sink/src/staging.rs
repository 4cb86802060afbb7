//! Memory for frames that go over several blocks, of all devices together.
//!
//! Such a frame is copied together outside of the rings, up to 1 GiB of it. Without a limit, many
//! devices that each begin one would use up the host's memory.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that may be used.
#[derive(Debug)]
pub struct Staging {
    most_bytes: u64,
    used_bytes: AtomicU64,
}

/// Room for one frame, until it is dropped.
#[derive(Debug)]
pub struct Staged {
    staging: Arc<Staging>,
    bytes: u64,
}

impl Staging {
    /// Makes room for `most_bytes`.
    pub fn new(most_bytes: u64) -> Arc<Self> {
        Arc::new(Self { most_bytes, used_bytes: AtomicU64::new(0) })
    }

    /// Returns room for a whole frame of `bytes`, if there is any. One frame always fits: a stream that has
    /// room can finish, so waiting for it ends.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Staged> {
        let grown =
            |used: u64| (used == 0 || used + bytes <= self.most_bytes).then(|| used + bytes);
        let order = Ordering::Relaxed;
        let reserved = self.used_bytes.fetch_update(order, order, grown);
        reserved.is_ok().then(|| Staged { staging: self.clone(), bytes })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let used = &self.staging.used_bytes;
        used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_fit_up_to_the_limit_and_one_always_does() {
        let staging = Staging::new(100);
        let large = staging.reserve(1_000).unwrap();
        assert!(staging.reserve(1).is_none());
        drop(large);
        let half = staging.reserve(50).unwrap();
        let other = staging.reserve(50).unwrap();
        assert!(staging.reserve(1).is_none());
        drop(half);
        assert!(staging.reserve(51).is_none());
        assert!(staging.reserve(50).is_some());
        drop(other);
    }
}
