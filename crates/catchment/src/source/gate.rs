//! Separates "committed on this link" from "the link was closed before".
//!
//! A filling thread that commits a block and the control thread that collects what a dead link still
//! holds must agree which of the two applies to each frame. A filling thread enters the gate for the
//! commit; closing waits for the threads inside and rejects all later ones.
use std::sync::atomic::{AtomicUsize, Ordering};

const CLOSED: usize = 1 << (usize::BITS - 1);

/// Open until closed; entering never waits.
#[derive(Debug, Default)]
pub(super) struct Gate(AtomicUsize);

/// A thread inside.
pub(super) struct Inside<'a>(&'a Gate);

impl Gate {
    /// Goes in, unless the gate is closed.
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        let inside = Inside(self);
        if self.0.fetch_add(1, Ordering::Acquire) & CLOSED == 0 { Some(inside) } else { None }
    }

    /// Closes for good and waits until no thread is inside. Threads inside only commit a block, so the
    /// wait is short.
    pub(super) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
        while self.0.load(Ordering::Acquire) != CLOSED {
            std::thread::yield_now();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_closed_gate_admits_no_thread() {
        let gate = Gate::default();
        drop(gate.enter().unwrap());
        gate.close();
        assert!(gate.enter().is_none() && gate.is_closed());
        gate.close();
    }

    #[test]
    fn nothing_happens_inside_after_close_returned() {
        for _ in 0..200 {
            let gate = Arc::new(Gate::default());
            let entered = Arc::new(AtomicU64::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (gate, entered) = (gate.clone(), entered.clone());
                    std::thread::spawn(move || {
                        while let Some(_inside) = gate.enter() {
                            entered.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            while entered.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            gate.close();
            let at_close = entered.load(Ordering::Relaxed);
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(entered.load(Ordering::Relaxed), at_close);
        }
    }
}
