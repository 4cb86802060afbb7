//! The clock of a source, as seen where its datagrams arrive.
//!
//! Of each datagram arrival - stamp is the difference of the clocks, plus the way, plus what the datagram was
//! held up. The least is what a datagram takes that is not held up. Clocks drift, so the least is a line.

const SECOND_NS: u64 = 1_000_000_000;
/// Points of four seconds each: what is older is forgotten.
const POINTS: usize = 8;
const PERIOD_NS: u64 = 4 * SECOND_NS;
/// Fewer datagrams do not make a map: each may have been held up.
const SAMPLES_MIN: u32 = 8;
/// Nor do those that came together but for fewer: all of them may have been held up by the same.
const APART_MIN: u32 = 3;
/// Of so many datagrams one was not held up. Those that come within such a time may have been held up together.
const GROUP: u8 = 5;
const TOGETHER_NS: u64 = 100_000;
/// Between two oscillators: twice 100 ppm, and a margin.
const DRIFT_MAX: f64 = 250e-6;

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    arrival_ns: u64,
    offset_ns: i64,
    /// Datagrams in its four seconds, as far as they are counted; 0 for none.
    count: u8,
    /// Of these, those that did not come together with the one before.
    apart: u8,
}

impl Point {
    const fn period(&self) -> u64 {
        self.arrival_ns / PERIOD_NS
    }
}

/// A point as it is kept, in 16 bytes: there are many sources.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    offset_ns: i64,
    /// Since the beginning of the four seconds.
    within_ns: u32,
    /// The last bits of their count.
    period: u16,
    count: u8,
    apart: u8,
}

impl Kept {
    const fn new(point: &Point) -> Self {
        let Point { arrival_ns, offset_ns, count, apart } = *point;
        let within_ns = (arrival_ns % PERIOD_NS) as u32;
        Self { offset_ns, within_ns, period: point.period() as u16, count, apart }
    }

    /// Returns the point, which is less than 36 hours away from a period.
    fn point(self, near: u64) -> Point {
        let back = (near as u16).wrapping_sub(self.period).cast_signed();
        let period = near.saturating_add_signed(-i64::from(back));
        let arrival_ns = period.saturating_mul(PERIOD_NS).saturating_add(self.within_ns.into());
        let Self { offset_ns, count, apart, .. } = self;
        Point { arrival_ns, offset_ns, count, apart }
    }
}

/// Maps times where datagrams arrive to times of the source's clock.
#[derive(Clone, Debug)]
pub(super) struct ClockMap {
    points: [Kept; POINTS],
    /// The datagram that came last, as the least of a period may be old. Its count is that of its group.
    last: Kept,
    /// The least that arrival - stamp was, as it may have become when the last one came: of a group of datagrams, and of those
    /// since.
    least_ns: [i64; 2],
    /// The drift of the source's clock, and how wrong that may be.
    slope: f64,
    doubt: f64,
    /// How much datagrams are held up, but for few.
    spread_ns: u64,
}

/// A time mapped, and by how much it may be too early.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    offset_ns: i64,
    doubt_ns: u64,
}

impl Mapped {
    /// Returns the least of arrival - stamp, if its datagram was not held up.
    const fn least_ns(self) -> i64 {
        self.offset_ns.saturating_sub_unsigned(self.doubt_ns)
    }
}

impl ClockMap {
    /// `spread_ns` is how much delays differ.
    pub(super) fn new(spread_ns: u64) -> Self {
        let (points, last) = ([Kept::default(); POINTS], Kept::default());
        let least_ns = [i64::MAX; 2];
        Self { points, last, least_ns, slope: 0.0, doubt: DRIFT_MAX, spread_ns }
    }

    /// Returns the same map, of a source whose delays differ by this much.
    pub(super) fn with_spread_ns(self, spread_ns: u64) -> Self {
        Self { spread_ns, ..self }
    }

    pub(super) const fn spread_ns(&self) -> u64 {
        self.spread_ns
    }

    /// Notes a datagram. Returns by how much it was held up more than others.
    pub(super) fn sample(&mut self, arrival_ns: u64, stamp_ns: u64) -> u64 {
        let offset_ns = arrival_ns.wrapping_sub(stamp_ns).cast_signed();
        let period = arrival_ns / PERIOD_NS;
        let at = (period % POINTS as u64) as usize;
        let mut new = Point { count: 1, apart: 0, arrival_ns, offset_ns };
        new.apart = u8::from(self.note_least(&new));
        let slope = self.slope;
        let mut known = self.points[at].point(period);
        if known.count == 0 || known.period() != period {
            self.fit(period);
            self.points[at] = Kept::new(&new);
        } else {
            let count = known.count.saturating_add(1);
            let apart = known.apart.saturating_add(new.apart);
            if offset_ns <= extended(&known, slope, arrival_ns) {
                known = new;
            }
            self.points[at] = Kept::new(&Point { count, apart, ..known });
        }
        let least = self.map(arrival_ns).map_or(offset_ns, |mapped| mapped.offset_ns);
        u64::try_from(offset_ns.saturating_sub(least)).unwrap_or(0)
    }

    /// Notes what shows that the way is not shorter. A datagram alone does not: it may have been held up. Returns whether it did
    /// not come together with the one before.
    fn note_least(&mut self, new: &Point) -> bool {
        let last = self.last.point(new.period());
        let [before_ns, since_ns] = self.least_ns.map(|ns| self.lowered(ns, new.arrival_ns));
        let is_apart = new.arrival_ns.saturating_sub(last.arrival_ns) >= TOGETHER_NS;
        let count = if is_apart && last.count >= GROUP {
            self.least_ns = [since_ns, new.offset_ns];
            1
        } else {
            self.least_ns = [before_ns, since_ns.min(new.offset_ns)];
            last.count + u8::from(is_apart || last.count == 0)
        };
        self.last = Kept::new(&Point { count, ..*new });
        is_apart
    }

    /// Returns what a least that was noted may have become.
    fn lowered(&self, least_ns: i64, at_ns: u64) -> i64 {
        let time_ns = at_ns.saturating_sub(self.last.point(at_ns / PERIOD_NS).arrival_ns);
        least_ns.saturating_add(((self.slope - self.doubt) * time_ns as f64).floor() as i64)
    }

    /// Returns whether enough datagrams have come lately.
    pub(super) fn is_learnt(&self, now_ns: u64) -> bool {
        let points = self.points(now_ns / PERIOD_NS);
        let [all, apart] = points.fold([0_u32; 2], |[all, apart], point| {
            [all + u32::from(point.count), apart + u32::from(point.apart)]
        });
        all >= SAMPLES_MIN && apart >= APART_MIN
    }

    fn points(&self, period: u64) -> impl Iterator<Item = Point> {
        let recent = move |point: &Point| {
            point.count > 0 && period.saturating_sub(point.period()) < POINTS as u64
        };
        self.points.iter().map(move |kept| kept.point(period)).filter(recent)
    }

    /// Fits the drift when a period begins that has no point yet: the median of the slopes between points that are half of the
    /// time apart. A point whose datagrams were all held up does not change it by more than others do.
    fn fit(&mut self, period: u64) {
        let mut points: Vec<Point> = self.points(period).collect();
        points.sort_unstable_by_key(|point| point.arrival_ns);
        let half = points.len() / 2;
        (self.slope, self.doubt) = (0.0, DRIFT_MAX);
        if half < 2 {
            return;
        }
        let pairs = || points.iter().zip(&points[half..]);
        let time_ns = |(one, other): (&Point, &Point)| (other.arrival_ns - one.arrival_ns).max(1);
        let slope = |(one, other): (&Point, &Point)| {
            other.offset_ns.saturating_sub(one.offset_ns) as f64 / time_ns((one, other)) as f64
        };
        let mut slopes: Vec<f64> = pairs().map(slope).collect();
        slopes.sort_unstable_by(f64::total_cmp);
        let (low, high) = (slopes[(slopes.len() - 1) / 2], slopes[slopes.len() / 2]);
        let shortest_ns = pairs().map(time_ns).min().unwrap_or(1);
        let held_up = self.spread_ns as f64 / shortest_ns as f64;
        self.slope = f64::midpoint(low, high).clamp(-DRIFT_MAX, DRIFT_MAX);
        self.doubt = (held_up + (high - low) / 2.0).min(DRIFT_MAX);
    }

    /// Returns the most that arrival - stamp can be of a datagram that is not held up and arrives then.
    fn map(&self, at_ns: u64) -> Option<Mapped> {
        let bound = |point: Point| {
            let distance_ns = at_ns.abs_diff(point.arrival_ns) as f64;
            let doubt_ns = (self.doubt * distance_ns) as i64;
            let offset_ns = extended(&point, self.slope, at_ns).saturating_add(doubt_ns);
            Mapped { offset_ns, doubt_ns: 2 * doubt_ns.unsigned_abs() }
        };
        let last = self.last.point(at_ns / PERIOD_NS);
        let points = self.points(last.period()).chain([last]);
        let points = points.filter(|point| point.count > 0);
        points.map(bound).min_by_key(|mapped| mapped.offset_ns)
    }

    /// Returns when a source must begin, by its clock, for nothing to arrive before `from_ns`, and when it
    /// must have ended for nothing to arrive after `until_ns`.
    pub(super) fn window(&self, from_ns: u64, until_ns: u64) -> (u64, u64) {
        let shift = |at_ns: u64, offset_ns: i64| {
            let there = i128::from(at_ns) - i128::from(offset_ns);
            u64::try_from(there.max(0)).unwrap_or(u64::MAX)
        };
        let (Some(first), Some(last)) = (self.map(from_ns), self.map(until_ns)) else {
            return (u64::MAX, u64::MAX);
        };
        // The datagram that says the most may have been held up by less than the others leave in doubt.
        let least_ns = self.least_ns.map(|ns| self.lowered(ns, from_ns));
        let least_ns = least_ns[0].min(least_ns[1]).min(first.least_ns());
        let from_ns = shift(from_ns.saturating_add(self.spread_ns), least_ns);
        let until_ns = shift(until_ns.saturating_sub(self.spread_ns), last.offset_ns);
        (from_ns, until_ns.max(from_ns))
    }

    /// Returns until when something arrives, at the latest, that leaves by `until_ns` of the source's clock.
    pub(super) fn arrival_ns(&self, now_ns: u64, until_ns: u64) -> u64 {
        let there = |at_ns: u64| {
            let there = i128::from(until_ns) + i128::from(self.map(at_ns)?.offset_ns);
            let there = u64::try_from(there.max(0)).unwrap_or(u64::MAX);
            Some(there.saturating_add(self.spread_ns))
        };
        // The clocks go on drifting until then.
        there(now_ns).and_then(there).unwrap_or(u64::MAX)
    }

    /// Returns the time of the source's clock at which something must leave to arrive at `at_ns`, about.
    pub(super) fn to_source_ns(&self, at_ns: u64) -> u64 {
        let offset_ns = self.map(at_ns).map_or(0, |mapped| mapped.offset_ns);
        let there = i128::from(at_ns) - i128::from(offset_ns);
        u64::try_from(there.max(0)).unwrap_or(u64::MAX)
    }
}

/// Returns the offset of a point at another time, by the drift.
fn extended(point: &Point, slope: f64, at_ns: u64) -> i64 {
    let time_ns = at_ns.wrapping_sub(point.arrival_ns).cast_signed();
    point.offset_ns.saturating_add((slope * time_ns as f64) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPREAD_NS: u64 = 50_000;

    /// The source's clock at a true time, for a drift in parts per billion.
    fn clock(true_ns: u64, ppb: i64) -> u64 {
        let drifted = i128::from(true_ns) * i128::from(ppb) / 1_000_000_000;
        u64::try_from(7_000_000_000_000 + i128::from(true_ns) + drifted).expect("in range")
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 256, ..ProptestConfig::default() })]

        /// Whatever drifts within 200 ppm, and whichever datagrams are late besides, nothing arrives outside of
        /// a window, and what the map takes off a window is bounded.
        #[test]
        fn windows_are_kept_where_they_arrive(
            ppb in -200_000_i64..200_000,
            way_ns in 0..20_000_000_u64,
            steps in prop::collection::vec((1_000_000..900_000_000_u64, 0..SPREAD_NS, 0..20_u8, prop_oneof![0..1_000_000_u64, 0..40_000_000_u64]), 40..160),
        ) {
            let mut map = ClockMap::new(SPREAD_NS);
            let mut now_ns = SECOND_NS;
            let mut arrivals_ns = Vec::new();
            for _ in 0..8 {
                now_ns += 500_000;
                map.sample(now_ns + way_ns, clock(now_ns, ppb));
                arrivals_ns.push(now_ns + way_ns);
            }
            for (wait_ns, held_ns, late, by) in steps {
                now_ns += wait_ns;
                let late_ns = if late == 0 { by } else { 0 };
                let arrival_ns = now_ns + way_ns + held_ns + late_ns;
                map.sample(arrival_ns, clock(now_ns, ppb));
                prop_assert!(map.is_learnt(arrival_ns));
                let (from_ns, until_ns) = (arrival_ns + 1_000_000, arrival_ns + 201_000_000);
                let (first, last) = map.window(from_ns, until_ns);
                // In the source's clock, the way and what may be held up added.
                let there = |at_ns: u64| clock(at_ns, ppb);
                prop_assert!(first >= there(from_ns - way_ns) - 1, "begins {} too early", there(from_ns - way_ns) - first);
                prop_assert!(last <= there(until_ns - way_ns - SPREAD_NS) + 1, "ends {} too late", last - there(until_ns - way_ns - SPREAD_NS));
                let leaves_ns = now_ns + 100_000_000;
                let latest_ns = leaves_ns + way_ns + SPREAD_NS;
                let told_ns = map.arrival_ns(arrival_ns, there(leaves_ns));
                prop_assert!(told_ns + 1 >= latest_ns, "arrives {} later", latest_ns - told_ns);
                arrivals_ns.push(arrival_ns);
                if late_ns > 0 {
                    // Datagrams come in the order of their arrivals.
                    now_ns += late_ns;
                    continue;
                }
                let lost_ns = 200_000_000_i128 - i128::from(last - first);
                // Before the drift is known: 500 ppm of the time since the last one that was not late, and since two groups.
                let since_ns = arrival_ns - arrivals_ns[arrivals_ns.len().saturating_sub(2 * usize::from(GROUP) + 1)];
                prop_assert!(lost_ns < 2_000_000 + i128::from(since_ns / 2_000), "{lost_ns} {since_ns}");
            }
            // After 30 s the drift is known: less than 5 guards are lost.
            let (first, last) = map.window(now_ns, now_ns + 200_000_000);
            prop_assert!(now_ns < 31 * SECOND_NS || 200_000_000 - (last - first).cast_signed() < 5 * SPREAD_NS.cast_signed());
        }
    }

    /// The least one is old, so that the offset may have grown by more than the last one is late.
    #[test]
    fn one_late_datagram_lets_no_window_begin_early() {
        let mut map = ClockMap::new(SPREAD_NS);
        for left_ns in (SECOND_NS..4 * SECOND_NS - 50_000_000).step_by(10_000_000) {
            map.sample(left_ns, clock(left_ns, -20_000));
        }
        let left_ns = 4 * SECOND_NS - 40_000_000;
        map.sample(left_ns + 650_000, clock(left_ns, -20_000));
        let from_ns = left_ns + 8_000_000;
        let (first_ns, _) = map.window(from_ns, from_ns + 20_000_000);
        let right_ns = clock(from_ns, -20_000);
        assert!(first_ns >= right_ns, "{} too early: {map:?}", right_ns - first_ns);
        let late_ns = first_ns - right_ns;
        assert!(late_ns < 3 * SPREAD_NS, "{late_ns}: {map:?}");
    }

    /// A controller that stood still finds all that came meanwhile, and how late that is it cannot see.
    #[test]
    fn datagrams_that_come_at_once_are_one() {
        let mut map = ClockMap::new(SPREAD_NS);
        for left_ns in (SECOND_NS..3 * SECOND_NS).step_by(10_000_000) {
            map.sample(left_ns, clock(left_ns, -20_000));
        }
        let now_ns = 3 * SECOND_NS + 100_000_000;
        for left_ns in (now_ns - 9_000_000..now_ns - 400_000).step_by(200_000) {
            map.sample(now_ns, clock(left_ns, -20_000));
        }
        let from_ns = now_ns + 8_000_000;
        let (first_ns, _) = map.window(from_ns, from_ns + 20_000_000);
        let right_ns = clock(from_ns, -20_000);
        assert!(first_ns >= right_ns, "{} too early: {map:?}", right_ns - first_ns);
    }

    /// A window begins a guard and twice the doubt late, and the datagram before it may have used the guard.
    #[test]
    fn a_late_datagram_that_begins_a_period_does_not_change_the_drift() {
        let mut map = ClockMap::new(SPREAD_NS);
        for left_ns in (1..5 * 8).map(|eighth| eighth * PERIOD_NS / 8) {
            if left_ns == 3 * PERIOD_NS {
                map.sample(left_ns + 40_000_000, left_ns);
                continue;
            }
            map.sample(left_ns + SPREAD_NS, left_ns);
            let from_ns = left_ns + SPREAD_NS + 1_000_000;
            assert!(map.window(from_ns, from_ns + SECOND_NS).0 >= from_ns, "{left_ns}: {map:?}");
        }
    }

    #[test]
    fn a_point_is_kept_exactly() {
        for arrival_ns in [0, 1, PERIOD_NS - 1, PERIOD_NS, 131_071 * PERIOD_NS + 7, 1 << 60] {
            for near in [0, 1, 7] {
                let point = Point { arrival_ns, offset_ns: -5, count: 9, apart: 3 };
                let Point { arrival_ns: kept_ns, offset_ns, count, apart } =
                    Kept::new(&point).point(point.period() + near);
                assert_eq!((kept_ns, offset_ns, count, apart), (arrival_ns, -5, 9, 3));
            }
        }
        assert_eq!(size_of::<Kept>(), 16);
    }

    #[test]
    fn a_map_needs_eight_datagrams_of_the_last_30_seconds() {
        let mut map = ClockMap::new(SPREAD_NS);
        for at in 1..8 {
            map.sample(at * 1_000_000, at * 1_000_000);
            assert!(!map.is_learnt(at * 1_000_000));
        }
        map.sample(8_000_000, 8_000_000);
        assert!(map.is_learnt(29 * SECOND_NS) && !map.is_learnt(33 * SECOND_NS));
    }

    /// A controller that stood still finds all of them, and how late they are it cannot see.
    #[test]
    fn a_map_needs_datagrams_that_come_at_three_times() {
        let mut map = ClockMap::new(SPREAD_NS);
        for stamp in 1..10 {
            map.sample(9_000_000, stamp * 500_000);
        }
        map.sample(11_000_000, 11_000_000);
        assert!(!map.is_learnt(11_000_000));
        map.sample(15_000_000, 15_000_000);
        assert!(map.is_learnt(15_000_000));
    }
}
