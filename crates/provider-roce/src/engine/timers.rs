//! Timers of queue pairs: a heap that is corrected lazily.
//!
//! A timer mostly moves to later, with every acknowledgement. So a queue pair stays in the heap at
//! the earliest time it ever asked for, and when that has come it is asked again. An idle queue
//! pair is not in the heap.
use super::Engine;
use crate::keys::KeyTable;
use catchment_roce::Input;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Timers {
    /// Returns the earliest time in the heap.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, _))| *time)
    }

    fn take_due(&mut self, now_ns: u64) -> Option<(u64, usize)> {
        self.next_ns().filter(|time| *time <= now_ns)?;
        self.heap.pop().map(|Reverse(timer)| timer)
    }
}

impl Engine {
    /// Puts a queue pair into the heap if its timer is earlier than what is there.
    #[inline]
    pub(super) fn set_timer(&mut self, index: usize) {
        let Some(entry) = self.qps.get(index) else { return };
        let Some(next_ns) = entry.qp.next_timeout() else { return };
        if entry.timer_ns.is_none_or(|set| next_ns < set) {
            entry.timer_ns = Some(next_ns);
            self.timers.heap.push(Reverse((next_ns, index)));
        }
    }

    /// Fires the timers that are due; returns whether there was one.
    pub(super) fn fire_timers(&mut self, now_ns: u64, keys: &KeyTable) -> bool {
        let mut fired = false;
        while let Some((time_ns, index)) = self.timers.take_due(now_ns) {
            let Some(entry) = self.qps.get(index) else { continue };
            // Another entry of the heap counts, or this place belonged to a removed queue pair.
            if entry.timer_ns != Some(time_ns) {
                continue;
            }
            entry.timer_ns = None;
            if entry.qp.next_timeout().is_some_and(|due| due <= now_ns) {
                entry.handle(now_ns, Input::Timeout, keys, &mut self.written);
                self.touch(index);
                fired = true;
            } else {
                self.set_timer(index);
            }
        }
        fired
    }
}
