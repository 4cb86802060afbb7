//! Packet numbers of frames that were dropped after they had their numbers.
//!
//! A collector hands out the frames of a device in the order of their numbers, and a frame may say that numbers directly
//! before it were dropped. So the next frame of the device of which nothing was posted says it; what becomes of the
//! numbers behind which nothing comes any more, the source decides when the link ends.
use std::collections::BTreeMap;
use std::ops::Range;

/// By stream: the numbers of a link, in runs.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    runs: BTreeMap<u32, BTreeMap<u64, u64>>,
    /// Nothing is dropped any more: the source has counted what the link held.
    pub(super) is_over: bool,
}

impl Dropped {
    /// Adds numbers; runs that touch become one. Of the runs of a stream at most so many newest are kept.
    pub(super) fn add(&mut self, stream: u32, numbers: Range<u64>, runs_most: usize) {
        let runs = self.runs.entry(stream).or_default();
        let Range { mut start, mut end } = numbers;
        while let Some((first, last)) = runs.range(..=end).next_back().map(|run| (*run.0, *run.1))
            && last >= start
        {
            runs.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        runs.insert(start, end);
        while runs.len() > runs_most.max(1) {
            runs.pop_first();
        }
    }

    /// Returns the last run that ends at this number or before it.
    pub(super) fn before(&self, stream: u32, number: u64) -> Option<Range<u64>> {
        let runs = self.runs.get(&stream)?.range(..number);
        let mut runs = runs.rev().filter(|(_, end)| **end <= number);
        runs.next().map(|(start, end)| *start..*end)
    }

    /// Returns the runs of a stream, in their order.
    pub(super) fn runs(&self, stream: u32) -> Vec<Range<u64>> {
        let runs = self.runs.get(&stream).into_iter().flatten();
        runs.map(|(start, end)| *start..*end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_that_touch_are_one_run_in_whatever_order_they_come() {
        let mut dropped = Dropped::default();
        for numbers in [5..6, 2..3, 3..4, 9..10, 4..5, 8..10] {
            dropped.add(7, numbers, 9);
        }
        assert_eq!(dropped.runs(7), [2..6, 8..10]);
        assert_eq!(
            [2, 6, 8, 9, 10, 99].map(|at| dropped.before(7, at)),
            [None, Some(2..6), Some(2..6), Some(2..6), Some(8..10), Some(8..10),]
        );
        assert_eq!((dropped.runs(1), dropped.before(1, 9)), (vec![], None), "another stream");
        dropped.add(7, 20..21, 2);
        assert_eq!(dropped.runs(7), [8..10, 20..21], "the newest are kept");
    }

    proptest::proptest! {
        #[test]
        fn runs_are_what_was_added(numbers in proptest::collection::vec((0_u64..60, 1_u64..4), 1..40)) {
            let (mut dropped, mut all) = (Dropped::default(), BTreeSet::new());
            for (start, count) in numbers {
                dropped.add(0, start..start + count, 99);
                all.extend(start..start + count);
            }
            let runs = dropped.runs(0);
            proptest::prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
            proptest::prop_assert!(runs.into_iter().flatten().eq(all));
        }
    }
}
