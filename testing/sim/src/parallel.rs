//! Independent runs on several threads, results in order.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

/// Calls `work` for 0, 1, ... `count` - 1 on `threads` threads, and `take` with each result in this
/// order, as soon as it is its turn. When `take` gives false, no further work begins.
pub(crate) fn in_order<R: Send>(
    count: u64,
    threads: usize,
    work: impl Fn(u64) -> R + Sync,
    mut take: impl FnMut(u64, R) -> bool,
) {
    let next = AtomicU64::new(0);
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || sender.send((number, work(number))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting = BTreeMap::new();
        let mut turn = 0;
        for (number, result) in results {
            waiting.insert(number, result);
            while let Some(result) = waiting.remove(&turn) {
                if !take(turn, result) {
                    next.store(count, Ordering::Relaxed);
                }
                turn += 1;
            }
        }
    });
}

pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_all_of_them() {
        let mut seen = Vec::new();
        in_order(
            100,
            4,
            |n| n * n,
            |n, square| {
                seen.push((n, square));
                true
            },
        );
        let expected: Vec<_> = (0..100).map(|n| (n, n * n)).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn no_work_begins_after_a_refusal() {
        let begun = AtomicU64::new(0);
        let mut last = 0;
        in_order(
            1_000_000,
            2,
            |_| begun.fetch_add(1, Ordering::Relaxed),
            |n, _| {
                last = n;
                n < 3
            },
        );
        assert!(last >= 3);
        assert!(begun.load(Ordering::Relaxed) < 1_000_000);
    }
}
