//! The turns of a ring of entries in shared memory, with any number of producers and one consumer.
//!
//! Entries are counted without end; entry `n` lies in slot `n % slots`. A slot has a word, its *turn*: the
//! producer of entry `n` fills the slot, then publishes the turn `n + 1`. The consumer keeps its own count,
//! `taken`, and looks at one word only: the turn of the next slot. It is the next entry's or it is not, so
//! no value in it can lead anywhere else. Once it has copied the entry it publishes its count, and that
//! frees the slot.
//!
//! The count of what was claimed is the producers' own and not shared. What the consumer publishes is a
//! claim of its progress, and an impossible one is an error ([`BadIndex`]).
//!
//! The code is generic over the words so that loom can try every interleaving (`tests/loom.rs`).
use catchment_provider_shm::ring::free_bytes;
pub use catchment_provider_shm::ring::{BadIndex, Count};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of entries claimed, shared by the threads of one process.
pub trait Claims {
    /// Returns the number.
    fn current(&self) -> u64;
    /// Raises the number by one if it is still `seen`; returns whether it was.
    fn advance(&self, seen: u64) -> bool;
}

impl Claims for AtomicU64 {
    #[inline]
    fn current(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    #[inline]
    fn advance(&self, seen: u64) -> bool {
        let next = seen.wrapping_add(1);
        self.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Claims the next entry for a producer, and returns its number; `None` if the ring is full.
///
/// # Errors
/// [`BadIndex`]: what the consumer published is impossible.
#[inline]
pub fn claim(
    claims: &impl Claims,
    taken: &impl Count,
    slots: u64,
) -> Result<Option<u64>, BadIndex> {
    loop {
        let next = claims.current();
        let free = free_bytes(taken, next, slots);
        // Seen before another producer moved on, the number may be far behind what was taken.
        let stale = claims.current() != next;
        match free {
            _ if stale => {}
            Err(error) => return Err(error),
            Ok(0) => return Ok(None),
            Ok(_) if claims.advance(next) => return Ok(Some(next)),
            Ok(_) => {}
        }
    }
}

/// Publishes entry `n`, whose slot is filled, through the turn of that slot.
#[inline]
pub fn publish(turn: &impl Count, n: u64) {
    turn.publish(n.wrapping_add(1));
}

/// Returns whether entry `n` was published through this turn.
#[inline]
pub fn is_published(turn: &impl Count, n: u64) -> bool {
    turn.observe() == n.wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_gives_no_entry_until_one_is_taken() {
        let (claims, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        let claim = || claim(&claims, &taken, 2);
        assert_eq!((claim(), claim(), claim()), (Ok(Some(0)), Ok(Some(1)), Ok(None)));
        taken.publish(1);
        assert_eq!((claim(), claim()), (Ok(Some(2)), Ok(None)));
    }

    #[test]
    fn a_consumer_that_took_what_was_never_claimed_is_an_error() {
        let (claims, taken) = (AtomicU64::new(5), AtomicU64::new(6));
        assert!(claim(&claims, &taken, 4).is_err());
        taken.publish(0);
        assert!(claim(&claims, &taken, 4).is_err(), "five are out and the ring has four");
    }

    #[test]
    fn no_turn_but_the_own_one_publishes_an_entry() {
        let turn = AtomicU64::new(0);
        publish(&turn, 7);
        assert!(is_published(&turn, 7));
        for other in [0, 6, 8, 7 + 4, u64::MAX] {
            assert!(!is_published(&turn, other), "{other}");
        }
        publish(&turn, u64::MAX);
        assert!(is_published(&turn, u64::MAX), "counts may wrap");
    }
}
