//! Rates: those that periodic devices want, and that of the queue pair.
use super::{Machine, Moving, Periodic};
use catchment_control::admission::source_side::{FREE_BPS, Input, LocalId, RateView};
use catchment_verbs::{Flow, RateLimit};

impl Machine {
    /// Wants rates for these devices.
    pub(crate) fn with_rates(mut self, periodic: &[Option<Periodic>]) -> Self {
        let wanted = (0..).zip(periodic).filter_map(|(device, wish)| Some((device, (*wish)?)));
        for (device, Periodic { bytes, period_ns }) in wanted {
            self.rates.push((device, None));
            self.tell(Input::Periodic { device, bytes, period_ns });
        }
        self
    }

    /// Says in the log which devices have a rate, and which could have another one.
    pub(super) fn say_rates(&mut self) {
        for (device, said) in &mut self.rates {
            let now = self.side.rate(*device);
            let before = std::mem::replace(said, now);
            match now {
                _ if before == now => {}
                Some(RateView { rate_bps, .. }) if rate_bps > 0 => {
                    tracing::info!(device, rate_bps, "frames go at a rate, without asking");
                }
                Some(RateView { could_bps: Some(could_bps), .. }) => tracing::warn!(
                    device,
                    could_bps,
                    "the controller has no rate for this device but another one: its frames ask"
                ),
                Some(_) if before.is_some_and(|before| before.rate_bps > 0) => {
                    tracing::warn!(device, "the rate is over: frames ask");
                }
                Some(_) | None => {}
            }
        }
    }

    /// Sets the rate of the queue pair to the sum of all whose time it is. What is late leaves in the time of what follows: an
    /// acknowledgement may be long on its way, and its window's rate is another's then.
    pub(super) fn set_rate(&mut self) {
        let Some(link) = self.link.as_ref().filter(|link| !link.is_immediate) else { return };
        let now_ns = self.now_ns();
        let goes = |(_, moving): &(&LocalId, &Moving)| now_ns < moving.leaves_ns;
        // Those of a device that go at its rate go one after the other.
        let (mut payload_bps, mut counted) = (0, None);
        for (id, moving) in self.moving.iter().filter(goes) {
            if !moving.shares_rate || counted.replace(id.device) != Some(id.device) {
                payload_bps = u64::saturating_add(payload_bps, moving.rate_bps);
            }
        }
        let rate_bps = (payload_bps.min(FREE_BPS) as f64 * link.wire_factor) as u64;
        // While it is nobody's time, what is late leaves as before.
        if rate_bps > 0 && self.rate_bps != Some(rate_bps) {
            self.rate_bps = Some(rate_bps);
            // A provider that cannot sends a part at once; the next one has its time.
            let limit = (rate_bps < FREE_BPS).then(|| granted(rate_bps, self.max_burst_ns));
            let _ = link.sender.set_rate(limit);
        }
    }
}

/// Returns the limit of a granted rate. What leaves at once waits in the queue of the bottleneck: as much as the rate gives in
/// this time, or else what may leave after a pause.
fn granted(rate_bps: u64, max_burst_ns: Option<u64>) -> RateLimit {
    let limit = RateLimit::new(rate_bps);
    let in_time = |time_ns: u64| u128::from(rate_bps) * u128::from(time_ns) / 8_000_000_000;
    let bytes = max_burst_ns.map(|time_ns| u64::try_from(in_time(time_ns)).unwrap_or(u64::MAX));
    limit.with_max_burst(bytes.unwrap_or_else(|| Flow::new(limit).burst_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_at_once_fits_the_queue_that_was_told_and_else_a_short_one() {
        let most = |rate_bps, time_ns| granted(rate_bps, time_ns).max_burst_bytes;
        assert_eq!(most(400_000_000, Some(1_000_000)), Some(50_000));
        assert_eq!(most(400_000_000, Some(0)), Some(0));
        assert_eq!(most(u64::MAX, Some(u64::MAX)), Some(u64::MAX));
        assert_eq!(most(400_000_000, None), Some(64 << 10));
        assert_eq!(most(10_000_000_000, None), Some(1_250_000), "a millisecond");
    }
}
