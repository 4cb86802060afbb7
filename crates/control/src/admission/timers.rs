//! What is due when: a heap in which every timer knows its place, so that it can be taken out.

const GONE: u32 = u32::MAX;

/// A timer that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerId(u32);

impl TimerId {
    pub(super) const NONE: Self = Self(GONE);
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
    /// By timer: its place in the heap.
    places: Vec<u32>,
    whats: Vec<T>,
    unused: Vec<u32>,
}

const fn due_ns(entry: u128) -> u64 {
    (entry >> 64) as u64
}

const fn timer(entry: u128) -> u32 {
    entry as u32
}

impl<T: Copy + Ranked> Timers<T> {
    pub(super) const fn new() -> Self {
        Self { heap: Vec::new(), places: Vec::new(), whats: Vec::new(), unused: Vec::new() }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|entry| due_ns(*entry))
    }

    pub(super) fn set(&mut self, due_ns: u64, what: T) -> TimerId {
        let id = if let Some(id) = self.unused.pop() {
            self.whats[id as usize] = what;
            id
        } else {
            self.places.push(GONE);
            self.whats.push(what);
            u32::try_from(self.places.len() - 1).expect("fewer than 2^32 timers")
        };
        let rank = u128::from(what.rank()) << 32;
        let entry = (u128::from(due_ns) << 64) | rank | u128::from(id);
        self.heap.push(entry);
        self.rise(self.heap.len() - 1, entry);
        TimerId(id)
    }

    /// Sets a timer that has not come to another time.
    pub(super) fn reset(&mut self, TimerId(id): TimerId, due_ns: u64) {
        let place = self.places[id as usize] as usize;
        let entry = self.heap[place];
        let moved = (u128::from(due_ns) << 64) | (entry & u128::from(u64::MAX));
        self.heap[place] = moved;
        if moved < entry {
            self.rise(place, moved);
        } else {
            self.sink(place, moved);
        }
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
        let entry = *self.heap.first()?;
        if due_ns(entry) > now_ns {
            return None;
        }
        self.take(0);
        Some(self.whats[timer(entry) as usize])
    }

    fn take(&mut self, place: usize) {
        let entry = self.heap.swap_remove(place);
        self.places[timer(entry) as usize] = GONE;
        self.unused.push(timer(entry));
        if let Some(moved) = self.heap.get(place).copied() {
            if moved < entry {
                self.rise(place, moved);
            } else {
                self.sink(place, moved);
            }
        }
    }

    fn rise(&mut self, mut place: usize, entry: u128) {
        while place > 0 {
            let above = (place - 1) / 4;
            if self.heap[above] <= entry {
                break;
            }
            self.put(place, self.heap[above]);
            place = above;
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize, entry: u128) {
        loop {
            let first = 4 * place + 1;
            let last = (first + 4).min(self.heap.len());
            let Some(children) = self.heap.get(first..last).filter(|below| !below.is_empty())
            else {
                break;
            };
            let (mut least, mut at) = (children[0], first);
            for (child, entry) in (first + 1..).zip(&children[1..]) {
                if *entry < least {
                    (least, at) = (*entry, child);
                }
            }
            if entry <= least {
                break;
            }
            self.put(place, least);
            place = at;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: u128) {
        self.heap[place] = entry;
        self.places[timer(entry) as usize] = place as u32;
    }
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
