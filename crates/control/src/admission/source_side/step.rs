//! What is due: chunks, repeats, and what a source does alone.
use super::flight::Flight;
use super::transfer::{Course, Transfer};
use super::{Event, Leave, LocalId, SourceSide};
use crate::admission::round_trip::Repeat;

impl SourceSide {
    pub(super) fn step(&mut self) {
        let (now_ns, lease_ns) = (self.now_ns, self.config.lease_ns);
        let round_trip_ns = self.link.as_ref().map_or(0, |link| link.round_trip.least_ns());
        let flight = Flight::new(&self.ack_delay, lease_ns, self.config.chunk_bytes);
        let flight = flight.beside(round_trip_ns);
        for (id, transfer) in &mut self.transfers {
            while let Some(chunk) = transfer.step(now_ns, flight) {
                self.events.push_back(Event::Send { id: *id, chunk, leave: Leave::Window });
            }
            let repeated = repeat(transfer, now_ns, lease_ns);
            if let (Some(repeat), Some(link)) = (repeated, &mut self.link) {
                link.round_trip.back_off(&repeat);
            }
        }
        if self.link.is_none() {
            // Nobody is there to answer.
            let asks = self.transfers.values().any(|transfer| transfer.course == Course::Live);
            self.unanswered_ns = asks.then(|| self.unanswered_ns.unwrap_or(now_ns));
            self.transfers
                .retain(|_, transfer| transfer.course == Course::Live || !transfer.is_idle());
        }
        self.ride();
        self.send_alone();
    }

    fn send_alone(&mut self) {
        let now_ns = self.now_ns;
        if now_ns < self.fallback_ns {
            return;
        }
        let may = self.alone_chunk(now_ns).filter(|(_, bytes)| *bytes > 0);
        let Some((rate_bps, chunk_bytes)) = may else { return };
        let Some((id, transfer)) = self.first_alone() else { return };
        let chunk = transfer.begin_alone(now_ns, chunk_bytes, rate_bps);
        let takes_ns = crate::admission::transfer::duration_ns(chunk.bytes, rate_bps);
        self.fallback_ns = self.now_ns.saturating_add(takes_ns);
        self.events.push_back(Event::Send { id, chunk, leave: Leave::Fallback });
    }

    /// Returns the most urgent transfer, and of those the oldest.
    fn first_alone(&mut self) -> Option<(LocalId, &mut Transfer)> {
        let wants = self.transfers.iter_mut().filter(|(_, transfer)| transfer.wants_to_begin());
        let first = wants.min_by_key(|(id, transfer)| (transfer.class, transfer.born_ns, **id));
        first.map(|(id, transfer)| (*id, transfer))
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        let due = |transfer: &Transfer| {
            let repeat_ns = transfer.repeat.map(|repeat| repeat.due_ns);
            [transfer.next_ns(), repeat_ns.filter(|_| self.link.is_some())]
                .into_iter()
                .flatten()
                .min()
        };
        let transfers_ns = self.transfers.values().filter_map(due).min();
        let probe_ns = self.link.as_ref().map(super::link::Link::probe_due_ns);
        let link = (self.now_ns, self.link.is_some());
        let rates_ns = self.rates.next_ns(link, &self.config, &self.transfers);
        let delivery_ns = self.delivery.next_ns().filter(|_| self.link.is_some());
        [transfers_ns, probe_ns, self.alone_ns(), rates_ns, delivery_ns].into_iter().flatten().min()
    }

    /// Returns when it begins a chunk without a grant: the fallback, if nobody answers until then, or what goes on.
    fn alone_ns(&self) -> Option<u64> {
        if !self.transfers.values().any(Transfer::wants_to_begin) {
            return None;
        }
        let goes_ns = self.now_ns.max(self.fallback_ns);
        let goes = self.alone_chunk(goes_ns).is_some_and(|(_, bytes)| bytes > 0);
        let goes_ns = goes.then_some(goes_ns);
        goes_ns.into_iter().chain(self.falls_back_ns()).min()
    }

    fn falls_back_ns(&self) -> Option<u64> {
        let since_ns = self.unanswered_ns?;
        self.config.fallback.rate_bps()?;
        let windows = self.transfers.values().filter_map(Transfer::last_ns).max();
        let from_ns = since_ns.saturating_add(self.config.lease_ns).max(self.fallback_ns);
        let from_ns = from_ns.max(self.rates.last_ns());
        Some(from_ns.max(windows.unwrap_or(0)))
    }
}

/// Tells a transfer again that the controller has not seen, or that it goes on. Returns how that one waits which it
/// has not seen.
fn repeat(transfer: &mut Transfer, now_ns: u64, lease_ns: u64) -> Option<Repeat> {
    let unseen = transfer.acked < transfer.revision;
    let repeat = transfer.repeat.as_mut().filter(|repeat| repeat.due_ns <= now_ns)?;
    if unseen {
        repeat.step(now_ns, lease_ns);
    } else {
        *repeat = Repeat::going_on(now_ns, lease_ns);
    }
    transfer.asks = true;
    // An answer may be to the first or to this one.
    transfer.told_ns = None;
    transfer.ready = true;
    unseen.then_some(*repeat)
}
