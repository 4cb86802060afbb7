//! The turns of a ring of entries in shared memory, with any number of producers and one consumer.
//!
//! Entries are counted without end; entry `n` lies in slot `n % slots`. A slot has a word, its *turn*: the
//! producer of entry `n` fills the slot, then publishes the turn `n + 1`. The consumer keeps its own count,
//! `taken`, and looks at one word only: the turn of the next slot. It is the next entry's or it is not, so
//! no value in it can lead anywhere else. Once it has copied the entry it publishes its count, and that
//! frees the slot.
//!
//! The count of what was claimed is the producers' own and not shared. What the consumer publishes is a
//! claim of its progress, and an impossible one is an error ([`BadIndex`]). Producers keep the count that they
//! saw last and look again only when it leaves no room: the cache line of that count moves between the two
//! processes once in many entries.
//!
//! The code is generic over the words so that loom can try every interleaving (`tests/loom.rs`), and so that a
//! single producer has them without atomic operations ([`Cell`]).
use catchment_provider_shm::ring::free_bytes;
pub use catchment_provider_shm::ring::{BadIndex, Count};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of entries claimed, shared by the producers.
pub trait Claims {
    /// Returns the number.
    fn current(&self) -> u64;
    /// Raises the number by `by` if it is still `seen`; returns whether it was.
    fn advance(&self, seen: u64, by: u64) -> bool;
}

impl Claims for AtomicU64 {
    #[inline]
    fn current(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    #[inline]
    fn advance(&self, seen: u64, by: u64) -> bool {
        let next = seen.wrapping_add(by);
        self.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Of a single producer.
#[derive(Debug, Default)]
pub struct Own(Cell<u64>);

impl Claims for Own {
    #[inline]
    fn current(&self) -> u64 {
        self.0.get()
    }

    #[inline]
    fn advance(&self, seen: u64, by: u64) -> bool {
        self.0.set(seen.wrapping_add(by));
        true
    }
}

impl Count for Own {
    #[inline]
    fn publish(&self, value: u64) {
        self.0.set(value);
    }

    #[inline]
    fn observe(&self) -> u64 {
        self.0.get()
    }
}

/// Claims the next entries for a producer, at most so many, and returns their numbers; none if the ring is
/// full. `seen` is what the producers saw last of `taken`.
///
/// # Errors
/// [`BadIndex`]: what the consumer published is impossible.
#[inline]
pub fn claim(
    claims: &impl Claims,
    seen: &impl Count,
    taken: &impl Count,
    slots: u64,
    most: u64,
) -> Result<Range<u64>, BadIndex> {
    loop {
        let next = claims.current();
        // Read before another producer moved on, `next` may be behind what is seen: then it is of no use.
        let mut free = slots.saturating_sub(next.wrapping_sub(seen.observe()));
        if free < most {
            let newest = taken.observe();
            let known = free_bytes(&Seen(newest), next, slots);
            if claims.current() != next {
                continue;
            }
            free = known?;
            seen.publish(newest);
        }
        let count = free.min(most);
        if count == 0 || claims.advance(next, count) {
            return Ok(next..next.wrapping_add(count));
        }
    }
}

/// A count that was observed already.
struct Seen(u64);

impl Count for Seen {
    fn publish(&self, _: u64) {}

    fn observe(&self) -> u64 {
        self.0
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
        let (claims, seen, taken) = (AtomicU64::new(0), Own::default(), AtomicU64::new(0));
        let claim = |most| claim(&claims, &seen, &taken, 4, most).unwrap();
        assert_eq!((claim(1), claim(2), claim(2), claim(1)), (0..1, 1..3, 3..4, 4..4));
        taken.publish(2);
        assert_eq!((claim(1), claim(9), claim(1)), (4..5, 5..6, 6..6));
    }

    #[test]
    fn a_consumer_that_took_what_was_never_claimed_is_an_error() {
        let (claims, seen, taken) = (AtomicU64::new(5), Own::default(), AtomicU64::new(6));
        seen.publish(1);
        let claim = || claim(&claims, &seen, &taken, 4, 1);
        assert!(claim().is_err());
        taken.publish(0);
        assert!(claim().is_err(), "five are out and the ring has four");
        taken.publish(2);
        assert_eq!(claim(), Ok(5..6), "what was wrong is not kept");
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
