//! Rate control by congestion notifications: DCQCN (Zhu et al., SIGCOMM 2015, section 3.2 and figure 7).
//!
//! - A CNP cuts the rate by `alpha / 2` and sets the target to the previous rate; `alpha` (the
//!   congested fraction of recent time) grows towards 1. At most one cut in 50 us.
//! - Without CNPs `alpha` decays every 55 us.
//! - Every 300 us, or every round trip if that is longer, and every 10 MB sent, the rate moves halfway to the
//!   target. That is all while neither has happened more than 5 times (fast recovery); then the target itself grows by
//!   1 % of the ceiling a step (additive increase), and by 10 % once both have (hyper increase). At the ceiling the
//!   control ends.
//!
//! No timer fires; elapsed periods are applied when the rate is read.
//!
//! The ceiling is the limit that the driver set, or the line's rate. Another limit takes nothing back: who was cut
//! sends at the lower of the two, and recovers to the highest limit since.

const CUT_INTERVAL_NS: u64 = 50_000;
const ALPHA_PERIOD_NS: u64 = 55_000;
const INCREASE_PERIOD_NS: u64 = 300_000;
const ALPHA_GAIN: f64 = 1.0 / 256.0;
/// Bytes between two steps up.
const INCREASE_BYTES: u64 = 10_000_000;
const FAST_STEPS: u32 = 5;
/// Hundredths of the ceiling.
const ADDITIVE: f64 = 1.0;
const HYPER: f64 = 10.0;
/// Recovery to the ceiling never needs more steps.
const MAX_STEPS: u64 = 256;
/// Lower bound of cuts, so that probing never stops.
const MIN_BPS: f64 = 1_000_000.0;

/// See the module.
#[derive(Debug)]
pub(crate) struct RateControl {
    limit_bps: f64,
    active: Option<Active>,
}

/// The state while the rate is below the ceiling.
#[derive(Debug)]
struct Active {
    /// The highest limit since the first cut.
    ceiling_bps: f64,
    current_bps: f64,
    target_bps: f64,
    alpha: f64,
    last_cut_ns: u64,
    alpha_ns: u64,
    increase_ns: u64,
    /// The time between two steps up: no shorter than the round trip, after which the effect of one is seen.
    period_ns: u64,
    /// Steps up by time and by bytes since the last cut.
    by_time: u32,
    by_bytes: u32,
    /// Sent since the last step by bytes.
    bytes: u64,
}

impl RateControl {
    pub(crate) fn new(limit_bps: u64) -> Self {
        Self { limit_bps: limit_bps.max(1) as f64, active: None }
    }

    /// Sets another limit. What congestion took stays taken.
    pub(crate) fn set_limit(&mut self, limit_bps: u64) {
        self.limit_bps = limit_bps.max(1) as f64;
        if let Some(active) = &mut self.active {
            active.ceiling_bps = active.ceiling_bps.max(self.limit_bps);
        }
    }

    /// Returns the current rate; `None` without congestion.
    pub(crate) fn current_bps(&mut self, now_ns: u64) -> Option<u64> {
        let active = self.active.as_mut()?;
        active.advance(now_ns);
        if active.current_bps >= active.ceiling_bps * 0.99 {
            self.active = None;
            return None;
        }
        Some(active.current_bps.min(self.limit_bps) as u64)
    }

    /// Counts what was sent.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        if let Some(active) = &mut self.active {
            active.on_sent(bytes);
        }
    }

    /// Reduces the rate after a congestion notification. A notification counts once in a round trip, so in a
    /// shorter time nothing is taken back either: the rate would go up while the queue is full.
    pub(crate) fn on_cnp(&mut self, now_ns: u64, round_trip_ns: u64) {
        match &mut self.active {
            None => self.active = Some(Active::first_cut(now_ns, self.limit_bps)),
            Some(active) => active.cut(now_ns, self.limit_bps),
        }
        if let Some(active) = &mut self.active {
            active.period_ns = INCREASE_PERIOD_NS.max(round_trip_ns);
        }
    }
}

impl Active {
    fn first_cut(now_ns: u64, limit_bps: f64) -> Self {
        Self {
            ceiling_bps: limit_bps,
            current_bps: (limit_bps / 2.0).max(MIN_BPS.min(limit_bps)),
            target_bps: limit_bps,
            alpha: 1.0,
            last_cut_ns: now_ns,
            alpha_ns: now_ns,
            increase_ns: now_ns,
            period_ns: INCREASE_PERIOD_NS,
            by_time: 0,
            by_bytes: 0,
            bytes: 0,
        }
    }

    fn cut(&mut self, now_ns: u64, limit_bps: f64) {
        if now_ns.saturating_sub(self.last_cut_ns) < CUT_INTERVAL_NS {
            return;
        }
        self.advance(now_ns);
        // It was not faster than the limit.
        self.target_bps = self.current_bps.min(limit_bps);
        self.current_bps = (self.target_bps * (1.0 - self.alpha / 2.0)).max(MIN_BPS.min(limit_bps));
        self.alpha = (1.0 - ALPHA_GAIN) * self.alpha + ALPHA_GAIN;
        self.last_cut_ns = now_ns;
        self.alpha_ns = now_ns;
        self.increase_ns = now_ns;
        (self.by_time, self.by_bytes, self.bytes) = (0, 0, 0);
    }

    fn on_sent(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= INCREASE_BYTES {
            // A packet is shorter.
            self.bytes -= INCREASE_BYTES;
            self.by_bytes = self.by_bytes.saturating_add(1);
            self.increase();
        }
    }

    /// Applies the periods that have passed.
    fn advance(&mut self, now_ns: u64) {
        let periods = now_ns.saturating_sub(self.alpha_ns) / ALPHA_PERIOD_NS;
        self.alpha_ns += periods * ALPHA_PERIOD_NS;
        self.alpha *= (1.0 - ALPHA_GAIN).powf(periods as f64);
        let steps = now_ns.saturating_sub(self.increase_ns) / self.period_ns;
        self.increase_ns += steps * self.period_ns;
        for _ in 0..steps.min(MAX_STEPS) {
            self.by_time = self.by_time.saturating_add(1);
            self.increase();
        }
    }

    fn increase(&mut self) {
        let (more, less) = (self.by_time.max(self.by_bytes), self.by_time.min(self.by_bytes));
        let hundredths = match (more > FAST_STEPS, less > FAST_STEPS) {
            (_, true) => HYPER,
            (true, false) => ADDITIVE,
            (false, false) => 0.0,
        };
        let target_bps = self.target_bps + self.ceiling_bps / 100.0 * hundredths;
        self.target_bps = target_bps.min(self.ceiling_bps);
        self.current_bps = f64::midpoint(self.current_bps, self.target_bps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    #[test]
    fn the_first_notification_halves_the_rate() {
        let mut rate = RateControl::new(1_000_000_000);
        assert_eq!(rate.current_bps(0), None);
        rate.on_cnp(0, 0);
        assert_eq!(rate.current_bps(1), Some(500_000_000));
    }

    #[test]
    fn notifications_within_the_interval_cut_once() {
        let mut rate = RateControl::new(1_000_000_000);
        for t in 0..40 {
            rate.on_cnp(t * 1000, 0);
        }
        assert_eq!(rate.current_bps(41_000), Some(500_000_000));
    }

    #[test]
    fn lasting_congestion_goes_down_to_the_least_rate_and_no_further() {
        let mut rate = RateControl::new(1_000_000_000);
        for t in 0..10_000 {
            rate.on_cnp(t * 60_000, 0);
        }
        let now = rate.current_bps(10_000 * 60_000);
        assert!(now.is_some_and(|bps| (1_000_000..20_000_000).contains(&bps)), "{now:?}");
    }

    #[test]
    fn it_recovers_first_fast_then_to_the_ceiling() {
        let mut rate = RateControl::new(1_000_000_000);
        rate.on_cnp(0, 0);
        rate.on_cnp(100_000, 0);
        let early = rate.current_bps(2 * MS).unwrap_or(0);
        assert!((450_000_000..520_000_000).contains(&early), "{early}");
        assert_eq!(rate.current_bps(100 * MS), None);
    }

    #[test]
    fn nothing_is_taken_back_before_the_effect_of_a_cut_can_be_seen() {
        let mut rate = RateControl::new(1_000_000_000);
        rate.on_cnp(0, 4 * MS);
        assert_eq!(rate.current_bps(4 * MS - 1), Some(500_000_000));
        assert_eq!(rate.current_bps(4 * MS), Some(750_000_000));
    }

    /// A limit a grant must not switch the control off.
    #[test]
    fn another_limit_takes_nothing_back_of_what_congestion_took() {
        let mut rate = RateControl::new(1_000_000_000);
        rate.on_cnp(0, 0);
        rate.set_limit(100_000_000);
        assert_eq!(rate.current_bps(1), Some(100_000_000), "what was cut is faster");
        rate.set_limit(10_000_000_000);
        assert_eq!(rate.current_bps(2), Some(500_000_000));
        rate.set_limit(400_000_000);
        rate.on_cnp(60_000, 0);
        let cut = rate.current_bps(60_001).unwrap_or(0);
        assert!((200_000_000..210_000_000).contains(&cut), "half of what it may be: {cut}");
        assert_eq!(rate.current_bps(10 * MS), Some(400_000_000), "what it may be");
        assert_eq!(rate.current_bps(SECOND), None, "at the highest limit since");
    }

    /// Figure 7: halfway to the target five times, then a hundredth of the ceiling a step, then ten.
    #[test]
    fn it_increases_fast_then_additively_then_hyperactively() {
        let mut rate = RateControl::new(10_000_000_000);
        // Cut so often that the target is far below the ceiling.
        (0..200).for_each(|n| rate.on_cnp(n * 60_000, 0));
        let (low, at) = (rate.current_bps(199 * 60_000).unwrap_or(0), 199 * 60_000);
        let step = |n: u64| at + n * 300_000;
        let fast = rate.current_bps(step(5)).unwrap_or(0);
        assert!(fast < 3 * low, "no faster than before the cut: {low} to {fast}");
        let added = rate.current_bps(step(15)).unwrap_or(0) - fast;
        assert!((700_000_000..=1_000_000_000).contains(&added), "ten of 100 Mbit/s: {added}");
        // Bytes alone count as time does.
        let before = rate.current_bps(step(15)).unwrap_or(0);
        (0..5 * 2_000).for_each(|_| rate.on_sent(5_000));
        let by_bytes = rate.current_bps(step(15)).unwrap_or(0) - before;
        assert!((400_000_000..=700_000_000).contains(&by_bytes), "five more: {by_bytes}");
        let before = rate.current_bps(step(15)).unwrap_or(0);
        (0..2_000).for_each(|_| rate.on_sent(5_000));
        let hyper = rate.current_bps(step(15)).unwrap_or(0) - before;
        assert!((500_000_000..=700_000_000).contains(&hyper), "half of a tenth and more: {hyper}");
    }

    #[test]
    fn a_long_pause_costs_bounded_work() {
        let mut rate = RateControl::new(1_000_000_000);
        rate.on_cnp(0, 0);
        assert_eq!(rate.current_bps(u64::MAX), None);
    }
}
