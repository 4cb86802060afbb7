//! Independent runs on all processors, results in order.
use rayon::prelude::*;

/// Runs of a batch for each processor: enough that few of them idle at its end.
const RUNS_PER_PROCESSOR: u64 = 4;

/// Calls `work` with 0 to `count` - 1 on all processors, in batches, and passes the results to
/// `take` in order. Once `take` returns false, no further batch begins.
pub(crate) fn in_order<R: Send>(
    count: u64,
    work: impl Fn(u64) -> R + Sync,
    mut take: impl FnMut(u64, R) -> bool,
) {
    let batch = RUNS_PER_PROCESSOR * rayon::current_num_threads() as u64;
    for first in (0..count).step_by(batch as usize) {
        let numbers = (first..count.min(first + batch)).into_par_iter();
        let results: Vec<R> = numbers.map(&work).collect();
        if !(first..).zip(results).all(|(number, result)| take(number, result)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn results_come_in_order_and_all_of_them() {
        let mut seen = Vec::new();
        in_order(
            100,
            |n| n * n,
            |n, square| {
                seen.push((n, square));
                true
            },
        );
        assert!(seen.iter().copied().eq((0..100).map(|n| (n, n * n))), "{seen:?}");
    }

    #[test]
    fn no_work_begins_after_a_refusal() {
        let begun = AtomicU64::new(0);
        in_order(1_000_000, |_| begun.fetch_add(1, Ordering::Relaxed), |n, _| n < 3);
        assert!((4..1_000_000).contains(&begun.into_inner()));
    }
}
