//! A bit for each PSN of a window that only moves forward. SACKs of a long path have tens of thousands of bits, nearly
//! all as they were in the one before: both ends go over them by words.
use std::collections::VecDeque;

const WORD: usize = u64::BITS as usize;

/// See the module. Bits that were never set are 0.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    words: VecDeque<u64>,
    /// Bits of the first word that are before the window.
    skip: usize,
}

impl Bits {
    #[inline]
    pub(crate) fn set(&mut self, index: usize, value: bool) {
        let at = self.skip + index;
        let (word, mask) = (at / WORD, 1 << (at % WORD));
        if word >= self.words.len() {
            if !value {
                return;
            }
            self.words.resize(word + 1, 0);
        }
        if value {
            self.words[word] |= mask;
        } else {
            self.words[word] &= !mask;
        }
    }

    /// Returns 64 bits from this one on, the first one least significant.
    #[inline]
    pub(crate) fn word_at(&self, index: usize) -> u64 {
        let at = self.skip + index;
        let (word, shift) = (at / WORD, at % WORD);
        let of = |word| self.words.get(word).copied().unwrap_or(0);
        let after = if shift == 0 { 0 } else { of(word + 1) << (WORD - shift) };
        of(word) >> shift | after
    }

    /// Moves the window: bit `count` becomes the first.
    #[inline]
    pub(crate) fn advance(&mut self, count: usize) {
        self.skip += count;
        if self.skip >= WORD {
            let gone = self.skip / WORD;
            self.words.drain(..gone.min(self.words.len()));
            self.skip %= WORD;
        }
    }

    /// Shrinks what is empty.
    pub(crate) fn give_back(&mut self, capacity: usize) {
        self.words.clear();
        self.words.shrink_to(capacity / WORD);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

/// Returns the numbers of the bits that are 1, ascending.
pub(crate) fn ones(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros();
            word &= word - 1;
            bit
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_those_of_a_plain_list(
            steps in prop::collection::vec((0usize..300, any::<bool>(), 0usize..200), 1..50),
        ) {
            let (mut bits, mut list) = (Bits::default(), VecDeque::from([false; 1000]));
            for (index, value, count) in steps {
                bits.set(index, value);
                list[index] = value;
                bits.advance(count);
                list.drain(..count);
                list.resize(1000, false);
                for first in [0, 1, 63, 64, 65, 300] {
                    let found: Vec<usize> = ones(bits.word_at(first)).map(|bit| first + bit as usize).collect();
                    let wanted: Vec<usize> = (first..first + 64).filter(|at| list[*at]).collect();
                    prop_assert_eq!(found, wanted);
                }
            }
        }
    }
}
