//! Rates: those that periodic devices want, and that of the queue pair.
use super::{Machine, Moving, Periodic};
use catchment_control::admission::source_side::{Input, LocalId, RateView};

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
                payload_bps += moving.rate_bps;
            }
        }
        let rate_bps = (payload_bps as f64 * link.wire_factor) as u64;
        // While it is nobody's time, what is late leaves as before.
        if rate_bps > 0 && self.rate_bps != Some(rate_bps) {
            self.rate_bps = Some(rate_bps);
            // A provider that cannot sends a part at once; the next one has its time.
            let _ = link.sender.set_rate(Some(rate_bps));
        }
    }
}
