//! The keys of a context's regions.
//!
//! Inside, a key is `generation << 16 | slot`: a table lookup, and never the same twice. A peer
//! must not guess the key of a region from that of another one, so the public key is that number
//! under a secret permutation of 32 bits, drawn when the device is opened.
use crate::region::MrCore;
use catchment_verbs::VerbsError;
use catchment_verbs::provider::KeySlots;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rounds of the permutation; four make it pseudo-random.
const ROUNDS: usize = 4;

/// A secret permutation of 32 bits (Feistel network over two halves).
#[derive(Debug, Clone, Copy)]
struct Permutation([u32; ROUNDS]);

impl Permutation {
    fn round(secret: u32, half: u16) -> u16 {
        let mixed = (u32::from(half) ^ secret).wrapping_mul(0x9e37_79b1);
        let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca77 | 1);
        (mixed >> 16) as u16
    }

    fn forward(&self, value: u32) -> u32 {
        let start = ((value >> 16) as u16, value as u16);
        let (left, right) = self
            .0
            .iter()
            .fold(start, |(left, right), secret| (right, left ^ Self::round(*secret, right)));
        u32::from(left) << 16 | u32::from(right)
    }

    fn backward(&self, value: u32) -> u32 {
        let start = ((value >> 16) as u16, value as u16);
        let (left, right) = self
            .0
            .iter()
            .rev()
            .fold(start, |(left, right), secret| (right ^ Self::round(*secret, left), left));
        u32::from(left) << 16 | u32::from(right)
    }
}

/// The keys of one context.
pub(crate) struct KeyTable {
    permutation: Permutation,
    slots: KeySlots<Arc<MrCore>>,
    /// The slot that was looked up last: consecutive packets mostly name the same region. Only a
    /// hint, which any thread may write.
    last: AtomicUsize,
}

impl KeyTable {
    /// Creates an empty table with this secret.
    pub(crate) fn new(secret: [u32; ROUNDS]) -> Self {
        Self {
            permutation: Permutation(secret),
            slots: KeySlots::new(1),
            last: AtomicUsize::new(0),
        }
    }

    /// Adds the region that `make` builds under a new key.
    pub(crate) fn insert(
        &mut self,
        make: impl FnOnce(u32) -> MrCore,
    ) -> Result<Arc<MrCore>, VerbsError> {
        let permutation = self.permutation;
        let insert = |key| Ok::<_, VerbsError>(Arc::new(make(permutation.forward(key))));
        self.slots.insert(insert).map(Arc::clone)
    }

    /// Revokes a key.
    pub(crate) fn remove(&mut self, key: u32) {
        self.slots.remove(self.permutation.backward(key));
    }

    #[inline]
    pub(crate) fn lookup(&self, key: u32) -> Option<&Arc<MrCore>> {
        if let Some(mr) = self.at(self.last.load(Ordering::Relaxed), key) {
            return Some(mr);
        }
        let at = KeySlots::<Arc<MrCore>>::slot_of(self.permutation.backward(key));
        let mr = self.at(at, key)?;
        self.last.store(at, Ordering::Relaxed);
        Some(mr)
    }

    /// Returns the region in this slot, if it has this key.
    #[inline]
    fn at(&self, slot: usize, key: u32) -> Option<&Arc<MrCore>> {
        let mr = self.slots.at(slot)?;
        (mr.key == key).then_some(mr)
    }

    /// Returns all regions.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<MrCore>> {
        self.slots.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_permutation_has_an_inverse_and_hides_neighbours() {
        let permutation = Permutation([1, 0xdead_beef, 77, 0x8000_0001]);
        for value in (0..1 << 20).chain([u32::MAX, 1 << 31]) {
            assert_eq!(permutation.backward(permutation.forward(value)), value);
        }
        let near = (0..1000).filter(|n| {
            let (a, b) = (permutation.forward(*n), permutation.forward(n + 1));
            a.abs_diff(b) < 1 << 16
        });
        assert!(near.count() < 10);
    }
}
