//! Which queue pairs have something posted: a set of small numbers that threads add to and the
//! engine empties, without locks.
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that fit.
pub(crate) const MEMBERS: usize = 1 << 16;
const WORDS: usize = MEMBERS / 64;

/// Two levels of bits: a bit of `summary` says that a word of `words` may have one.
pub(crate) struct DirtySet {
    words: Box<[AtomicU64]>,
    summary: [AtomicU64; WORDS / 64],
}

impl DirtySet {
    pub(crate) fn new() -> DirtySet {
        DirtySet {
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            summary: [const { AtomicU64::new(0) }; WORDS / 64],
        }
    }

    /// Adds a number, after what it stands for was stored.
    #[inline]
    pub(crate) fn add(&self, member: usize) {
        let word = member / 64;
        self.words[word].fetch_or(1 << (member % 64), Ordering::Release);
        self.summary[word / 64].fetch_or(1 << (word % 64), Ordering::Release);
    }

    /// Whether there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.summary
            .iter()
            .any(|bits| bits.load(Ordering::Relaxed) != 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_comes_out_once() {
        let set = DirtySet::new();
        let members = [0, 1, 63, 64, 4095, 4096, MEMBERS - 1];
        for member in members.iter().chain(&members) {
            set.add(*member);
        }
        assert!(set.any());
        let mut seen = Vec::new();
        set.take(|member| seen.push(member));
        assert_eq!(seen, members);
        assert!(!set.any());
        set.take(|member| panic!("{member} again"));
    }
}
