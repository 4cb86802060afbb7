//! What is due when: a heap in which every timer knows its place, so that it can be taken out.
use super::{NONE, quad};
use std::num::NonZeroU32;

/// A timer that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerId(NonZeroU32);

impl TimerId {
    pub(super) const NONE: Self = Self(NonZeroU32::MAX);

    /// One more than its place, so that an option of it takes no more memory.
    const fn new(id: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(id))
    }

    const fn id(self) -> u32 {
        self.0.get() - 1
    }
}

/// What has a rank among those that are due at the same time: the lowest first.
pub(super) trait Ranked {
    fn rank(&self) -> u32;
}

/// Timers that say `T` when they are due; of several that are due at once the lowest rank comes first.
#[derive(Debug)]
pub(super) struct Timers<T> {
    /// When, the rank, and the timer, in one number.
    heap: Vec<u128>,
    /// By timer: its place in the heap; of an unused one the next unused one.
    places: Vec<u32>,
    whats: Vec<T>,
    unused: u32,
}

const fn due_ns(entry: u128) -> u64 {
    (entry >> 64) as u64
}

const fn timer(entry: u128) -> u32 {
    entry as u32
}

impl<T: Copy + Ranked> Timers<T> {
    pub(super) const fn new() -> Self {
        Self { heap: Vec::new(), places: Vec::new(), whats: Vec::new(), unused: NONE }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|entry| due_ns(*entry))
    }

    pub(super) fn set(&mut self, due_ns: u64, what: T) -> TimerId {
        let id = if self.unused == NONE {
            self.places.push(NONE);
            self.whats.push(what);
            u32::try_from(self.places.len() - 1).expect("fewer than 2^32 timers")
        } else {
            let id = self.unused;
            self.unused = self.places[id as usize];
            self.whats[id as usize] = what;
            id
        };
        let rank = u128::from(what.rank()) << 32;
        let entry = (u128::from(due_ns) << 64) | rank | u128::from(id);
        self.heap.push(entry);
        let (last, places) = (self.heap.len() - 1, &mut self.places);
        quad::rise(&mut self.heap, last, entry, |entry, at| note(places, entry, at));
        TimerId::new(id)
    }

    /// Returns when a timer comes that has not come.
    pub(super) fn due_ns(&self, timer: TimerId) -> u64 {
        due_ns(self.heap[self.places[timer.id() as usize] as usize])
    }

    /// Sets a timer that has not come to another time.
    pub(super) fn reset(&mut self, timer: TimerId, due_ns: u64) {
        let place = self.places[timer.id() as usize] as usize;
        let entry = self.heap[place];
        let moved = (u128::from(due_ns) << 64) | (entry & u128::from(u64::MAX));
        let (heap, places) = (&mut self.heap, &mut self.places);
        let put = |entry, at| note(places, entry, at);
        if moved < entry {
            quad::rise(heap, place, moved, put);
        } else {
            quad::sink(heap, place, moved, put);
        }
    }

    /// Takes a timer out that has not come.
    pub(super) fn remove(&mut self, one: TimerId) {
        let place = self.places[one.id() as usize] as usize;
        let there = self.heap.get(place).is_some_and(|entry| timer(*entry) == one.id());
        debug_assert!(there, "a timer is taken out once");
        if there {
            self.take(place);
        }
    }

    /// Takes the first one out if it is due.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<T> {
        let entry = *self.heap.first()?;
        if due_ns(entry) > now_ns {
            return None;
        }
        self.take(0);
        Some(self.whats[timer(entry) as usize])
    }

    fn take(&mut self, place: usize) {
        let places = &mut self.places;
        let entry = quad::take(&mut self.heap, place, |entry, at| note(places, entry, at));
        let id = timer(entry);
        self.places[id as usize] = std::mem::replace(&mut self.unused, id);
    }
}

fn note(places: &mut [u32], entry: u128, place: usize) {
    places[timer(entry) as usize] = place as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    impl Ranked for u32 {
        fn rank(&self) -> u32 {
            *self
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn timers_come_in_order_and_those_taken_out_do_not_come(
            steps in prop::collection::vec((0..50_u64, 0..4_u8), 1..200),
        ) {
            let (mut timers, mut set, mut ids) = (Timers::new(), BTreeSet::new(), Vec::new());
            for (what, (due_ns, kind)) in (0_u32..).zip(steps) {
                let at = due_ns as usize % ids.len().max(1);
                match kind {
                    2 if !ids.is_empty() => {
                        let (due_ns, what, id) = ids.swap_remove(at);
                        timers.remove(id);
                        set.remove(&(due_ns, what));
                    }
                    3 if !ids.is_empty() => {
                        let (before_ns, what, id) = ids.swap_remove(at);
                        timers.reset(id, due_ns);
                        set.remove(&(before_ns, what));
                        set.insert((due_ns, what));
                        ids.push((due_ns, what, id));
                    }
                    _ => {
                        ids.push((due_ns, what, timers.set(due_ns, what)));
                        set.insert((due_ns, what));
                    }
                }
                prop_assert_eq!(timers.next_ns(), set.first().map(|(due_ns, _)| *due_ns));
            }
            for (due_ns, what) in set {
                prop_assert_eq!(timers.pop(due_ns), Some(what));
            }
            prop_assert_eq!(timers.pop(u64::MAX), None);
        }
    }
}
