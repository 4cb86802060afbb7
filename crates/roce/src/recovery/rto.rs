//! Round-trip times and the retransmission timer.
//!
//! The timeout of the standard is fixed. An adaptive one is `srtt + 4 * rttvar` (RFC 6298), doubled
//! after every expiry, never above the fixed one, or above twice the adaptive one where that is longer: a
//! path longer than whoever chose the timeout expected. Only expiries of this longest timeout count as
//! retries: a short one costs a packet, not the connection.

/// Clock granularity: lower bound of the variance term.
const GRANULARITY_NS: u64 = 100_000;

/// The timer. Without a timeout it never fires.
#[derive(Debug, Default)]
pub(crate) struct Rto {
    /// The timeout of the standard.
    timeout_ns: Option<u64>,
    /// Minimum of the adaptive timeout; `None` if it is fixed.
    least_ns: Option<u64>,
    srtt_ns: u64,
    rttvar_ns: u64,
    /// These are of a bound, not of a round trip.
    is_bound: bool,
    pub(crate) latest_ns: u64,
    /// The shortest round trip seen, 0 before the first.
    pub(crate) min_ns: u64,
    backoff: u32,
    /// Since when the peer is silent; `None` while nothing is expected of it.
    silent_ns: Option<u64>,
}

impl Rto {
    pub(crate) fn new(timeout_ns: Option<u64>, least_ns: Option<u64>) -> Self {
        Self { timeout_ns, least_ns, ..Self::default() }
    }

    /// Takes a measured round trip.
    pub(crate) fn sample(&mut self, rtt_ns: u64) {
        let rtt_ns = rtt_ns.max(1);
        if self.srtt_ns == 0 || self.is_bound {
            self.is_bound = false;
            self.min_ns = rtt_ns;
            self.begin(rtt_ns);
            return;
        }
        self.latest_ns = rtt_ns;
        self.min_ns = self.min_ns.min(rtt_ns);
        let error = self.srtt_ns.abs_diff(rtt_ns);
        self.rttvar_ns = (3 * self.rttvar_ns + error) / 4;
        self.srtt_ns = ((7 * self.srtt_ns + rtt_ns) / 8).max(1);
    }

    /// Takes what no round trip takes longer than, until one was measured or a shorter one is known.
    pub(crate) fn bound(&mut self, rtt_ns: u64) {
        if self.srtt_ns == 0 || (self.is_bound && rtt_ns < self.srtt_ns) {
            self.is_bound = true;
            self.begin(rtt_ns.max(1));
        }
    }

    fn begin(&mut self, rtt_ns: u64) {
        self.latest_ns = rtt_ns;
        self.srtt_ns = rtt_ns;
        self.rttvar_ns = rtt_ns / 2;
    }

    pub(crate) fn srtt_ns(&self) -> Option<u64> {
        (self.srtt_ns > 0).then_some(self.srtt_ns)
    }

    /// Returns the larger of the smoothed and the latest round trip; `None` before the first.
    pub(crate) fn recent_ns(&self) -> Option<u64> {
        self.srtt_ns().map(|srtt| srtt.max(self.latest_ns))
    }

    /// Returns the timeout from measured round trips.
    fn adaptive_ns(&self) -> Option<u64> {
        let (least, srtt) = self.least_ns.zip(self.srtt_ns())?;
        Some((srtt + (4 * self.rttvar_ns).max(GRANULARITY_NS)).max(least))
    }

    /// Returns the longest timeout: that of the standard, or twice the adaptive one where round trips
    /// take longer than whoever chose it expected.
    fn longest_ns(&self) -> Option<u64> {
        let timeout = self.timeout_ns?;
        Some(self.adaptive_ns().map_or(timeout, |adaptive| timeout.max(2 * adaptive)))
    }

    /// Returns the current timeout before backoff.
    fn base_ns(&self) -> Option<u64> {
        let timeout = self.timeout_ns?;
        Some(self.adaptive_ns().unwrap_or(timeout))
    }

    /// Returns the current timeout.
    fn interval_ns(&self) -> Option<u64> {
        let backed_off = self.base_ns()?.saturating_mul(1 << self.backoff.min(20));
        Some(backed_off.min(self.longest_ns()?))
    }

    /// Returns the longest time between two acknowledgement requests.
    pub(crate) fn ask_after_ns(&self) -> u64 {
        self.base_ns().map_or(u64::MAX, |base| base / 4)
    }

    /// Starts the timer if it is not running.
    pub(crate) fn expect(&mut self, now_ns: u64) {
        self.silent_ns.get_or_insert(now_ns);
    }

    /// Restarts the timer after an answer, or stops it unless `more` answers are expected.
    pub(crate) fn on_progress(&mut self, now_ns: u64, more: bool) {
        self.backoff = 0;
        self.silent_ns = more.then_some(now_ns);
    }

    /// Expects nothing of the peer before `until_ns`.
    pub(crate) fn suspend(&mut self, until_ns: u64) {
        self.backoff = 0;
        self.silent_ns = Some(until_ns);
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        Some(self.silent_ns?.saturating_add(self.interval_ns()?))
    }

    /// Returns whether the timer expires before the longest timeout.
    pub(crate) fn is_early(&self) -> bool {
        self.interval_ns() < self.longest_ns()
    }

    pub(crate) fn on_fired(&mut self, now_ns: u64) {
        self.backoff = self.backoff.saturating_add(1);
        self.silent_ns = Some(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn without_a_measurement_it_is_the_timeout_of_the_standard() {
        let mut rto = Rto::new(Some(67 * MS), Some(MS));
        assert_eq!(rto.deadline_ns(), None);
        rto.expect(5);
        rto.expect(9);
        assert_eq!(rto.deadline_ns(), Some(5 + 67 * MS));
        assert!(!rto.is_early());
    }

    #[test]
    fn it_adapts_backs_off_and_never_exceeds_the_timeout() {
        let mut rto = Rto::new(Some(67 * MS), Some(MS));
        (0..50).for_each(|_| rto.sample(2 * MS));
        rto.expect(0);
        let first = rto.deadline_ns().unwrap();
        assert!((2 * MS..3 * MS).contains(&first), "{first}");
        assert!(rto.is_early());
        (0..10).for_each(|_| rto.on_fired(0));
        assert_eq!(rto.deadline_ns(), Some(67 * MS));
        assert!(!rto.is_early());
        rto.on_progress(MS, true);
        assert_eq!(rto.deadline_ns(), Some(first + MS));
        rto.on_progress(MS, false);
        assert_eq!(rto.deadline_ns(), None);
    }

    #[test]
    fn fixed_and_never_are_possible() {
        let mut fixed = Rto::new(Some(4 * MS), None);
        fixed.sample(1000);
        fixed.expect(0);
        assert_eq!(fixed.deadline_ns(), Some(4 * MS));
        let mut never = Rto::new(None, Some(MS));
        never.sample(1000);
        never.expect(0);
        assert_eq!(never.deadline_ns(), None);
    }
}
