//! The least or the greatest value of the last seconds: of delays, which change with their paths.

/// How long a value counts at least; twice that at most.
const REMEMBERED_NS: u64 = 10_000_000_000;

/// A value of two stretches of time, of which `pick` chooses one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    pick: fn(u64, u64) -> u64,
    now: Option<u64>,
    before: Option<u64>,
    until_ns: u64,
}

impl Recent {
    pub(super) const fn least() -> Self {
        Self::of(u64::min)
    }

    pub(super) const fn greatest() -> Self {
        Self::of(u64::max)
    }

    const fn of(pick: fn(u64, u64) -> u64) -> Self {
        Self { pick, now: None, before: None, until_ns: 0 }
    }

    pub(super) fn note(&mut self, now_ns: u64, value: u64) {
        if now_ns >= self.until_ns {
            (self.before, self.now) = (self.now, Some(value));
            self.until_ns = now_ns.saturating_add(REMEMBERED_NS);
        } else {
            self.now = Some(self.now.map_or(value, |known| (self.pick)(known, value)));
        }
    }

    /// Returns it; `None` as long as nothing is known.
    pub(super) fn get(&self) -> Option<u64> {
        match (self.now, self.before) {
            (Some(now), Some(before)) => Some((self.pick)(now, before)),
            (known, other) => known.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_is_older_than_two_stretches_is_forgotten() {
        let (mut least, mut greatest) = (Recent::least(), Recent::greatest());
        assert_eq!((least.get(), greatest.get()), (None, None));
        for (at_s, value, expected) in
            [(0, 30, (30, 30)), (1, 20, (20, 30)), (10, 25, (20, 30)), (20, 25, (25, 25))]
        {
            least.note(at_s * SECOND, value);
            greatest.note(at_s * SECOND, value);
            let found = (least.get().unwrap(), greatest.get().unwrap());
            assert_eq!(found, expected, "at {at_s} s");
        }
    }
}
