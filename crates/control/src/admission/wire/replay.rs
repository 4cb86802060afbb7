//! Which datagrams have come: a window of 1,024 behind the newest.

/// Datagrams older than this behind the newest are refused.
pub(super) const WINDOW: u64 = 1024;

/// The newest number, and which of those before it have come.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// One more than the newest; 0 before the first.
    end: u64,
    /// A bit for each number of the window, at its remainder by 1,024.
    seen: [u64; (WINDOW / 64) as usize],
}

impl Window {
    pub(super) const fn new() -> Self {
        Self { end: 0, seen: [0; (WINDOW / 64) as usize] }
    }

    /// Returns whether a number is new, without noting it.
    pub(super) const fn is_new(&self, number: u64) -> bool {
        if number >= self.end {
            return true;
        }
        self.end - number <= WINDOW && self.seen[Self::word(number)] & Self::bit(number) == 0
    }

    /// Notes that a number has come.
    pub(super) fn note(&mut self, number: u64) {
        if number >= self.end {
            if number - self.end >= WINDOW {
                self.seen.fill(0);
            } else {
                (self.end..number).for_each(|one| self.seen[Self::word(one)] &= !Self::bit(one));
            }
            self.end = number + 1;
        }
        self.seen[Self::word(number)] |= Self::bit(number);
    }

    const fn word(number: u64) -> usize {
        (number % WINDOW / 64) as usize
    }

    const fn bit(number: u64) -> u64 {
        1 << (number % 64)
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
        fn each_number_is_new_once_and_old_ones_never(
            steps in prop::collection::vec((0..3000_u64, 0..2100_u64), 1..300),
        ) {
            let (mut window, mut known, mut base) = (Window::new(), BTreeSet::new(), 0);
            for (ahead, back) in steps {
                base += ahead % 700;
                let number = base.saturating_sub(back % 1500).max(u64::from(ahead > 2900) * (base + 5000));
                let newest = known.last().copied().unwrap_or(0_u64);
                let too_old = number + WINDOW <= newest;
                let new = !too_old && !known.contains(&number);
                prop_assert_eq!(window.is_new(number), new, "{} newest {}", number, newest);
                if new {
                    window.note(number);
                    known.insert(number);
                }
            }
        }
    }
}
