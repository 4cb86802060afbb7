//! Random numbers from a seed, the same on every machine.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): 64 bits of state, integers only. It passes the usual test
//! batteries, has published values to check against, and every seed starts a sequence of its own.
use std::time::Duration;

/// A generator of random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Makes a generator whose numbers all follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Makes an independent generator: its use does not affect this one or other forks.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `bound` - 1, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a product: its bias is below bound / 2^64.
        let product = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// Returns a number from `least` to `most`, inclusive; `least` if `most` is smaller.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// As [`below`](Self::below), for an index.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap_or(0)
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        choices.get(self.index(choices.len())).copied()
    }

    /// Draws whether an event of this probability happens.
    pub fn happens(&mut self, chance: Chance) -> bool {
        match chance.threshold {
            0 => false,
            threshold => u128::from(self.next_u64()) < threshold,
        }
    }

    pub fn time_up_to(&mut self, most: Duration) -> Duration {
        let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.between(1.min(most_ns), most_ns))
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chance {
    /// The event happens if 64 random bits are below this: 2^64 is always.
    threshold: u128,
}

impl Chance {
    pub const NEVER: Self = Self { threshold: 0 };
    pub const ALWAYS: Self = Self { threshold: 1 << 64 };

    /// Makes a chance of this probability. Below 0 (or NaN) is never, above 1 is always.
    pub fn of(probability: f64) -> Self {
        // A product with a power of two is exact, and the conversion saturates.
        let threshold = (probability * 18_446_744_073_709_551_616.0) as u128;
        Self { threshold: threshold.min(Self::ALWAYS.threshold) }
    }

    pub fn probability(self) -> f64 {
        self.threshold as f64 / 18_446_744_073_709_551_616.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference_implementation() {
        let mut random = Random::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| random.next_u64()), expected);
    }

    #[test]
    fn numbers_stay_in_their_range_and_fill_it() {
        let mut random = Random::new(1);
        let mut seen = [0; 5];
        for _ in 0..5000 {
            seen[random.index(5)] += 1;
            assert!((7..=9).contains(&random.between(7, 9)));
        }
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.between(4, 2), 4);
        assert_eq!(random.pick::<u8>(&[]), None);
        assert_eq!(random.time_up_to(Duration::ZERO), Duration::ZERO);
        assert_eq!(random.time_up_to(Duration::from_nanos(1)).as_nanos(), 1);
    }

    #[test]
    fn a_chance_happens_as_often_as_it_says() {
        let mut random = Random::new(2);
        let mut hits = |chance| (0..100_000).filter(|_| random.happens(chance)).count();
        assert_eq!(hits(Chance::NEVER), 0);
        assert_eq!(hits(Chance::of(-1.0)), 0);
        assert_eq!(hits(Chance::of(f64::NAN)), 0);
        assert_eq!(hits(Chance::ALWAYS), 100_000);
        assert_eq!(hits(Chance::of(2.0)), 100_000);
        // Five standard deviations of a binomial are 343 here.
        assert!(hits(Chance::of(0.05)).abs_diff(5_000) < 345);
        assert!((Chance::of(0.25).probability() - 0.25).abs() < 1e-15);
    }

    #[test]
    fn forks_do_not_disturb_each_other() {
        let mut parent = Random::new(3);
        let (mut one, mut two) = (parent.fork(), parent.fork());
        let expected = two.clone().next_u64();
        for _ in 0..100 {
            one.next_u64();
        }
        assert_eq!(two.next_u64(), expected);
    }
}
