//! The queue pairs with posted requests: a set of small numbers that threads add to and the
//! engine empties, without locks. `tests/loom` tries every interleaving.
use super::sync::{AtomicU64, Ordering};

/// Words of the upper level: for the 65,536 connections that an agent may have (S5.2), and what it has itself.
const GROUPS: usize = 17;
/// Numbers that fit.
pub(crate) const MEMBERS: usize = GROUPS * 64 * 64;

/// Two levels of bits: a bit of `summary` means that a word of `words` may have one.
pub(crate) struct DirtySet<const N: usize = GROUPS> {
    words: Box<[AtomicU64]>,
    summary: [AtomicU64; N],
}

impl<const N: usize> DirtySet<N> {
    /// Creates an empty set of the numbers below `N` times 4096.
    pub(crate) fn new() -> Self {
        Self {
            words: (0..N * 64).map(|_| AtomicU64::new(0)).collect(),
            summary: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Adds a number, after the data it announces was stored.
    #[inline]
    pub(crate) fn add(&self, member: usize) {
        let word = member / 64;
        self.words[word].fetch_or(1 << (member % 64), Ordering::Release);
        self.summary[word / 64].fetch_or(1 << (word % 64), Ordering::Release);
    }

    /// Returns whether there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.summary.iter().any(|bits| bits.load(Ordering::Relaxed) != 0)
    }

    /// Takes all numbers out.
    #[inline]
    pub(crate) fn take(&self, mut each: impl FnMut(usize)) {
        for (i, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for word in Bits(summary.swap(0, Ordering::Acquire)) {
                let word = i * 64 + word;
                let bits = self.words[word].swap(0, Ordering::Acquire);
                Bits(bits).for_each(|bit| each(word * 64 + bit));
            }
        }
    }
}

/// The numbers of the bits that are set.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit)
    }
}
