//! What is due when: a heap in which every timer knows its place, so that it can be taken out.

const GONE: u32 = u32::MAX;

/// A timer that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerId(u32);

/// Timers that say `T` when they are due; of several that are due at once the least `T` comes first.
#[derive(Debug)]
pub(super) struct Timers<T> {
    heap: Vec<(u64, T, u32)>,
    /// By timer: its place in the heap.
    places: Vec<u32>,
    unused: Vec<u32>,
}

impl<T: Copy + Ord> Timers<T> {
    pub(super) const fn new() -> Self {
        Self { heap: Vec::new(), places: Vec::new(), unused: Vec::new() }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|(due_ns, _, _)| *due_ns)
    }

    pub(super) fn set(&mut self, due_ns: u64, what: T) -> TimerId {
        let id = self.unused.pop().unwrap_or_else(|| {
            self.places.push(GONE);
            u32::try_from(self.places.len() - 1).expect("fewer than 2^32 timers")
        });
        self.heap.push((due_ns, what, id));
        self.rise(self.heap.len() - 1);
        TimerId(id)
    }

    /// Takes a timer out that has not come.
    pub(super) fn remove(&mut self, TimerId(id): TimerId) {
        let place = self.places[id as usize];
        debug_assert!(place != GONE, "a timer is taken out once");
        if place != GONE {
            self.take(place as usize);
        }
    }

    /// Takes the first one out if it is due.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<T> {
        let (due_ns, what, _) = *self.heap.first()?;
        if due_ns > now_ns {
            return None;
        }
        self.take(0);
        Some(what)
    }

    fn take(&mut self, place: usize) {
        let (_, _, id) = self.heap.swap_remove(place);
        self.places[id as usize] = GONE;
        self.unused.push(id);
        if place < self.heap.len() {
            self.rise(place);
            self.sink(place);
        }
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 4] {
            self.heap.swap(place, (place - 1) / 4);
            self.note(place);
            place = (place - 1) / 4;
        }
        self.note(place);
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let first = 4 * place + 1;
            let children = first..(first + 4).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { break };
            if self.heap[place] <= self.heap[least] {
                break;
            }
            self.heap.swap(place, least);
            self.note(place);
            place = least;
        }
        self.note(place);
    }

    fn note(&mut self, place: usize) {
        let (_, _, id) = self.heap[place];
        self.places[id as usize] = u32::try_from(place).expect("as many as timers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn timers_come_in_order_and_those_taken_out_do_not_come(
            steps in prop::collection::vec((0..50_u64, 0..3_u8), 1..200),
        ) {
            let (mut timers, mut set, mut ids) = (Timers::new(), BTreeSet::new(), Vec::new());
            for (what, (due_ns, kind)) in (0_u32..).zip(steps) {
                match kind {
                    0 | 1 => {
                        ids.push((due_ns, what, timers.set(due_ns, what)));
                        set.insert((due_ns, what));
                    }
                    _ if !ids.is_empty() => {
                        let at = due_ns as usize % ids.len();
                        let (due_ns, what, id) = ids.swap_remove(at);
                        timers.remove(id);
                        set.remove(&(due_ns, what));
                    }
                    _ => {}
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
