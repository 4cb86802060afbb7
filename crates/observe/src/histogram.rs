//! A histogram of durations that many threads fill without a lock.
//!
//! Buckets are log-linear: 32 of equal width per power of two, so that a reported percentile is at
//! most 1/32 (3.2 %) above the true one and never below it. The range is 1 ns to 73 minutes; longer
//! durations count in the last bucket and in the exact maximum. A bucket holds the values in
//! `(lower, upper]`, so that counts of "at most 2^k ns" are exact, as Prometheus needs them.
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Values of at most 2^42 ns have a bucket of their own.
const MAX_BITS: u32 = 42;
const BUCKETS: usize = (MAX_BITS - SUB_BITS + 1) as usize * SUB;

/// Durations in nanoseconds, recorded from any thread. About 10 KB from the first one on.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: OnceLock<Box<[AtomicU64]>>,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Histogram {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one duration of `ns` nanoseconds.
    pub fn record(&self, ns: u64) {
        self.buckets.get_or_init(no_counts)[index_of(ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
        // Nearly always false once a stream runs: a load is cheaper than a locked instruction.
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.fetch_max(ns, Relaxed);
        }
    }

    /// Returns the counts at this moment.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let counted = |(i, bucket): (usize, &AtomicU64)| {
            let count = bucket.load(Relaxed);
            (count > 0).then_some((i, count))
        };
        HistogramSnapshot {
            buckets: self
                .buckets
                .get()
                .into_iter()
                .flatten()
                .enumerate()
                .filter_map(counted)
                .collect(),
            sum_ns: self.sum_ns.load(Relaxed),
            max_ns: self.max_ns.load(Relaxed),
        }
    }
}

#[cold]
fn no_counts() -> Box<[AtomicU64]> {
    (0..BUCKETS).map(|_| AtomicU64::new(0)).collect()
}

/// The counts of a [`Histogram`] at one moment: only buckets that are not empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Bucket and its count, ascending.
    buckets: Vec<(usize, u64)>,
    sum_ns: u64,
    max_ns: u64,
}

impl HistogramSnapshot {
    /// Returns how many durations were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|&(_, n)| n).sum()
    }

    /// Returns the sum of all durations in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the longest duration in nanoseconds, 0 when empty.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Returns the smallest duration that at least the share `q` (0 to 1) of all durations does not
    /// exceed, in nanoseconds, rounded up by at most 1/32. `None` when empty.
    pub fn percentile_ns(&self, q: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for &(i, n) in &self.buckets {
            seen += n;
            if seen >= rank {
                return Some(if i == BUCKETS - 1 {
                    self.max_ns
                } else {
                    upper_of(i).min(self.max_ns)
                });
            }
        }
        None
    }

    /// Returns how many durations were at most `2^bits` nanoseconds, exactly, for `bits` of 5 to
    /// 42.
    pub fn count_up_to_power(&self, bits: u32) -> u64 {
        let limit = 1 << bits;
        let within = |&&(i, _): &&(usize, u64)| i < BUCKETS - 1 && upper_of(i) <= limit;
        self.buckets.iter().filter(within).map(|&(_, n)| n).sum()
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for &(i, n) in &other.buckets {
            match self.buckets.binary_search_by_key(&i, |&(j, _)| j) {
                Ok(at) => self.buckets[at].1 += n,
                Err(at) => self.buckets.insert(at, (i, n)),
            }
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns what was recorded after `earlier`, a snapshot of the same histogram. Its maximum is
    /// rounded up by at most 1/32.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |i: usize| match earlier.buckets.binary_search_by_key(&i, |&(j, _)| j) {
            Ok(at) => earlier.buckets[at].1,
            Err(_) => 0,
        };
        let buckets: Vec<_> = self
            .buckets
            .iter()
            .map(|&(i, n)| (i, n.saturating_sub(before(i))))
            .filter(|&(_, n)| n > 0)
            .collect();
        let top = buckets.last().map_or(0, |&(i, _)| upper_of(i));
        Self {
            max_ns: if top > 1 << (MAX_BITS - 1) { self.max_ns } else { top.min(self.max_ns) },
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            buckets,
        }
    }
}

/// Returns the bucket of a duration. Counting from `ns - 1` makes the upper bound of a bucket
/// inclusive.
fn index_of(ns: u64) -> usize {
    let x = ns.saturating_sub(1);
    let shift = (63 - SUB_BITS).saturating_sub((x | 1).leading_zeros());
    let index = shift as usize * SUB + (x >> shift) as usize;
    index.min(BUCKETS - 1)
}

/// Returns the largest duration that belongs into bucket `index`.
fn upper_of(index: usize) -> u64 {
    let shift = (index / SUB).saturating_sub(1);
    let step = (index - shift * SUB) as u64;
    (step + 1) << shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> HistogramSnapshot {
        let histogram = Histogram::new();
        values.iter().for_each(|&v| histogram.record(v));
        histogram.snapshot()
    }

    /// Computes the definition, on the values themselves.
    fn exact(sorted: &[u64], q: f64) -> u64 {
        let rank = ((q * sorted.len() as f64).ceil() as usize).max(1);
        sorted[rank - 1]
    }

    #[test]
    fn every_bucket_ends_where_the_next_begins() {
        for i in 0..BUCKETS - 1 {
            assert_eq!(index_of(upper_of(i)), i, "upper bound of bucket {i}");
            assert_eq!(index_of(upper_of(i) + 1), i + 1, "first value after bucket {i}");
        }
    }

    #[test]
    fn beyond_the_range_keeps_count_and_maximum() {
        let all = of(&[u64::MAX, 5]);
        assert_eq!(all.count(), 2);
        assert_eq!(all.percentile_ns(1.0), Some(u64::MAX));
        assert_eq!(all.count_up_to_power(MAX_BITS), 1);
    }

    #[test]
    fn empty_has_no_percentile() {
        assert_eq!(of(&[]).percentile_ns(0.5), None);
        assert_eq!(of(&[]).max_ns(), 0);
    }

    /// Magnitudes from 1 ns to about an hour, all equally likely.
    fn durations() -> impl Strategy<Value = Vec<u64>> {
        let one =
            (0u32..42, any::<u64>()).prop_map(|(bits, r)| (1 << bits) | (r & ((1 << bits) - 1)));
        proptest::collection::vec(one, 1..400)
    }

    proptest! {
        #[test]
        fn percentiles_are_never_low_and_at_most_a_32nd_high(mut values in durations()) {
            let snapshot = of(&values);
            values.sort_unstable();
            for q in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let (got, want) = (snapshot.percentile_ns(q).unwrap(), exact(&values, q));
                prop_assert!(got >= want && got - want <= want / 32 + 1, "q {q}: {got} for {want}");
            }
            prop_assert_eq!(snapshot.max_ns(), *values.last().unwrap());
            prop_assert_eq!(snapshot.sum_ns(), values.iter().sum::<u64>());
        }

        #[test]
        fn merged_is_the_same_as_recorded_together(a in durations(), b in durations()) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }

        #[test]
        fn since_is_what_came_later(a in durations(), b in durations()) {
            let (whole, first, later) = (of(&[a.clone(), b.clone()].concat()), of(&a), of(&b));
            let since = whole.since(&first);
            prop_assert_eq!(&since.buckets, &later.buckets);
            prop_assert_eq!(since.sum_ns(), later.sum_ns());
            prop_assert!(since.max_ns() >= later.max_ns());
        }

        #[test]
        fn counts_up_to_a_power_are_exact(values in durations(), bits in 5u32..42) {
            let want = values.iter().filter(|&&v| v <= 1 << bits).count() as u64;
            prop_assert_eq!(of(&values).count_up_to_power(bits), want);
        }
    }
}
