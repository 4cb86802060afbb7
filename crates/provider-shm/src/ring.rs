//! The indices of a message ring with one producer and one consumer in different processes.
//!
//! Both sides count bytes without end; a position is the count modulo the ring. Each side keeps its
//! own count privately and only *publishes* it: what the other side wrote is not trusted: it
//! is a claim of its progress, and an impossible claim is an error. The code
//! is generic over the word so that loom can try every interleaving (`tests/loom.rs`).
use std::sync::atomic::{AtomicU64, Ordering};

/// A published count.
pub trait Count {
    /// Makes all earlier stores visible to a reader of this value.
    fn publish(&self, value: u64);
    /// Loads the value, and everything that was stored before it.
    fn observe(&self) -> u64;
}

impl Count for AtomicU64 {
    #[inline]
    fn publish(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    #[inline]
    fn observe(&self) -> u64 {
        self.load(Ordering::Acquire)
    }
}

/// The other side published an impossible count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer's ring index is {seen}, ours {ours}, the ring has {bytes} bytes")]
pub struct BadIndex {
    /// Its count.
    pub seen: u64,
    /// Ours.
    pub ours: u64,
    /// Bytes of the ring.
    pub bytes: u64,
}

/// Returns the free bytes for a producer that wrote `tail` bytes in all.
///
/// # Errors
/// [`BadIndex`].
#[inline]
pub fn free_bytes<C: Count>(head: &C, tail: u64, bytes: u64) -> Result<u64, BadIndex> {
    let seen = head.observe();
    bytes.checked_sub(tail.wrapping_sub(seen)).ok_or(BadIndex { seen, ours: tail, bytes })
}

/// Returns the bytes to read for a consumer that read `head` bytes in all.
///
/// # Errors
/// [`BadIndex`].
#[inline]
pub fn ready_bytes<C: Count>(tail: &C, head: u64, bytes: u64) -> Result<u64, BadIndex> {
    let seen = tail.observe();
    let ready = seen.wrapping_sub(head);
    if ready <= bytes { Ok(ready) } else { Err(BadIndex { seen, ours: head, bytes }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_wrap_and_lies_are_errors() {
        let near_end = u64::MAX - 10;
        let head = AtomicU64::new(near_end);
        assert_eq!(free_bytes(&head, near_end.wrapping_add(64), 64), Ok(0));
        assert_eq!(free_bytes(&head, near_end, 64), Ok(64));
        assert!(free_bytes(&head, near_end.wrapping_add(65), 64).is_err());
        assert!(free_bytes(&head, near_end - 1, 64).is_err());
        let tail = AtomicU64::new(20);
        assert_eq!(ready_bytes(&tail, u64::MAX - 10, 64), Ok(31));
        assert!(ready_bytes(&tail, 21, 64).is_err());
        assert!(ready_bytes(&tail, 20u64.wrapping_sub(65), 64).is_err());
    }
}
