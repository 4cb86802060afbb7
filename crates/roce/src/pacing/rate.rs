//! Rate control by congestion notifications, after DCQCN (Zhu et al., SIGCOMM 2015).
//!
//! - A CNP cuts the rate by `alpha / 2` and sets the target to the previous rate; `alpha` (the
//!   congested fraction of recent time) grows towards 1. At most one cut in 50 us.
//! - Without CNPs `alpha` decays every 55 us.
//! - Every 300 us, or every round trip if that is longer, the rate moves halfway to the target; after 5 such
//!   steps the target itself grows by 1 % of the ceiling per step. At the ceiling the control ends.
//!
//! There is no byte counter as in the paper: the timer alone drives recovery, so a queue pair that
//! sends little recovers as fast as one that sends much. No timer fires; elapsed periods are
//! applied when the rate is read.

const CUT_INTERVAL_NS: u64 = 50_000;
const ALPHA_PERIOD_NS: u64 = 55_000;
const INCREASE_PERIOD_NS: u64 = 300_000;
const ALPHA_GAIN: f64 = 1.0 / 256.0;
const FAST_STEPS: u32 = 5;
/// Recovery to the ceiling never needs more steps.
const MAX_STEPS: u64 = 256;
/// Lower bound of cuts, so that probing never stops.
const MIN_BPS: f64 = 1_000_000.0;

/// See the module.
#[derive(Debug)]
pub(crate) struct RateControl {
    ceiling_bps: f64,
    active: Option<Active>,
}

/// The state while the rate is below the ceiling.
#[derive(Debug)]
struct Active {
    current_bps: f64,
    target_bps: f64,
    alpha: f64,
    last_cut_ns: u64,
    alpha_ns: u64,
    increase_ns: u64,
    /// The time between two steps up: no shorter than the round trip, after which the effect of one is seen.
    period_ns: u64,
    steps: u32,
}

impl RateControl {
    pub(crate) fn new(ceiling_bps: u64) -> Self {
        Self { ceiling_bps: ceiling_bps.max(1) as f64, active: None }
    }

    /// Returns the current rate; `None` without congestion.
    pub(crate) fn current_bps(&mut self, now_ns: u64) -> Option<u64> {
        let ceiling = self.ceiling_bps;
        let active = self.active.as_mut()?;
        active.advance(now_ns, ceiling);
        if active.current_bps >= ceiling * 0.99 {
            self.active = None;
            return None;
        }
        Some(active.current_bps as u64)
    }

    /// Reduces the rate after a congestion notification. A notification counts once in a round trip, so in a
    /// shorter time nothing is taken back either: the rate would go up while the queue is full.
    pub(crate) fn on_cnp(&mut self, now_ns: u64, round_trip_ns: u64) {
        let ceiling = self.ceiling_bps;
        match &mut self.active {
            None => self.active = Some(Active::first_cut(now_ns, ceiling)),
            Some(active) => active.cut(now_ns, ceiling),
        }
        if let Some(active) = &mut self.active {
            active.period_ns = INCREASE_PERIOD_NS.max(round_trip_ns);
        }
    }
}

impl Active {
    fn first_cut(now_ns: u64, ceiling_bps: f64) -> Self {
        Self {
            current_bps: (ceiling_bps / 2.0).max(MIN_BPS.min(ceiling_bps)),
            target_bps: ceiling_bps,
            alpha: 1.0,
            last_cut_ns: now_ns,
            alpha_ns: now_ns,
            increase_ns: now_ns,
            period_ns: INCREASE_PERIOD_NS,
            steps: 0,
        }
    }

    fn cut(&mut self, now_ns: u64, ceiling_bps: f64) {
        if now_ns.saturating_sub(self.last_cut_ns) < CUT_INTERVAL_NS {
            return;
        }
        self.advance(now_ns, ceiling_bps);
        self.target_bps = self.current_bps;
        self.current_bps =
            (self.current_bps * (1.0 - self.alpha / 2.0)).max(MIN_BPS.min(ceiling_bps));
        self.alpha = (1.0 - ALPHA_GAIN) * self.alpha + ALPHA_GAIN;
        self.last_cut_ns = now_ns;
        self.alpha_ns = now_ns;
        self.increase_ns = now_ns;
        self.steps = 0;
    }

    /// Applies the periods that have passed.
    fn advance(&mut self, now_ns: u64, ceiling_bps: f64) {
        let periods = now_ns.saturating_sub(self.alpha_ns) / ALPHA_PERIOD_NS;
        self.alpha_ns += periods * ALPHA_PERIOD_NS;
        self.alpha *= (1.0 - ALPHA_GAIN).powf(periods as f64);
        let steps = now_ns.saturating_sub(self.increase_ns) / self.period_ns;
        self.increase_ns += steps * self.period_ns;
        for _ in 0..steps.min(MAX_STEPS) {
            self.increase(ceiling_bps);
        }
    }

    fn increase(&mut self, ceiling_bps: f64) {
        self.steps = self.steps.saturating_add(1);
        if self.steps > FAST_STEPS {
            self.target_bps = (self.target_bps + ceiling_bps / 100.0).min(ceiling_bps);
        }
        self.current_bps = f64::midpoint(self.current_bps, self.target_bps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

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

    #[test]
    fn a_long_pause_costs_bounded_work() {
        let mut rate = RateControl::new(1_000_000_000);
        rate.on_cnp(0, 0);
        assert_eq!(rate.current_bps(u64::MAX), None);
    }
}
