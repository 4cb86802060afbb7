//! A small random generator whose every value follows from its seed.

use std::time::Duration;

/// SplitMix64.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// A generator for one round: other rounds of the same seed give other values.
    pub(crate) fn of_round(seed: u64, round: u64) -> Self {
        let mut mixer = Self { state: seed };
        let state = mixer.next() ^ round.wrapping_mul(0xd134_2543_de82_ef95);
        Self { state }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias is far below what a count of rounds could show.
        self.next().checked_rem(bound).unwrap_or(0)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn time_below(&mut self, bound: Duration) -> Duration {
        let bound_us = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.below(bound_us))
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let at = self.below(choices.len() as u64);
        choices.get(usize::try_from(at).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_from_seed_and_round() {
        let draw = |seed, round| {
            let mut random = Random::of_round(seed, round);
            (0..8).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn values_fill_their_range_and_stay_in_it() {
        let mut random = Random::of_round(0, 0);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[usize::try_from(random.below(5)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| (100..300).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.pick::<u8>(&[]), None);
        assert!(random.time_below(Duration::from_millis(3)) < Duration::from_millis(3));
    }
}
