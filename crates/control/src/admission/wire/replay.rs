//! Which datagrams have come: a window of 1,024 behind the newest.

/// Datagrams older than this behind the newest are refused.
pub(super) const WINDOW: u64 = 1024;

/// The newest number, and which of those before it have come.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// One more than the newest; 0 before the first.
    end: u64,
    /// A bit for each number of the window, at its remainder by 1,024; none while all of them have come, as they do where
    /// nothing is lost.
    seen: Option<Box<[u64; WORDS]>>,
}

const WORDS: usize = (WINDOW / 64) as usize;

impl Window {
    pub(super) const fn new() -> Self {
        Self { end: 0, seen: None }
    }

    /// Returns the newest number that has come; 0 before the first.
    pub(super) const fn newest(&self) -> u64 {
        self.end.saturating_sub(1)
    }

    /// Returns whether a number is new, without noting it.
    pub(super) fn is_new(&self, number: u64) -> bool {
        if number >= self.end {
            return true;
        }
        let has_come = |seen: &[u64; WORDS]| seen[Self::word(number)] & Self::bit(number) != 0;
        self.end - number <= WINDOW && !self.seen.as_deref().is_none_or(has_come)
    }

    /// Notes that a number has come.
    pub(super) fn note(&mut self, number: u64) {
        if number == self.end && self.seen.is_none() {
            self.end += 1;
            return;
        }
        let seen = self.seen.get_or_insert_with(|| Box::new([u64::MAX; WORDS]));
        if number >= self.end {
            if number - self.end >= WINDOW {
                seen.fill(0);
            } else {
                (self.end..number).for_each(|one| seen[Self::word(one)] &= !Self::bit(one));
            }
            self.end = number + 1;
        }
        seen[Self::word(number)] |= Self::bit(number);
    }

    /// Needs little memory again: what has not come within the window is not taken any more, if all of the last half
    /// of it has.
    pub(super) fn rest(&mut self) {
        let recent = self.end.saturating_sub(WINDOW / 2)..self.end;
        if recent.into_iter().all(|number| !self.is_new(number)) {
            self.seen = None;
        }
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

    #[test]
    fn at_rest_it_takes_nothing_twice_and_what_may_still_come() {
        let mut window = Window::new();
        (0..3000).for_each(|number| window.note(number));
        assert!(window.seen.is_none(), "all has come in order");
        window.note(3001);
        window.rest();
        assert!(window.is_new(3000), "it may still come");
        (3002..3600).for_each(|number| window.note(number));
        assert!(window.is_new(3000) && window.seen.is_some());
        window.rest();
        assert!(window.seen.is_none() && (0..3600).all(|number| !window.is_new(number)));
        assert!(window.is_new(3600));
    }

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
