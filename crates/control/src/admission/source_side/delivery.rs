//! What became of what the source has sent, as the controller is told: totals, so that a lost datagram changes nothing.
use super::SourceSide;
use crate::admission::wire::{SourceRecord, SourceState};

/// Parts of a lease, from one report to the next: where nothing was lost, and where something was.
const CALM_PARTS: u64 = 4;
const LOSSY_PARTS: u64 = 8;

/// Totals of bytes: acknowledged, and sent again.
type Totals = (u64, u64);

/// What is reported.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    totals: Totals,
    told: Totals,
    revision: u32,
    told_ns: u64,
    /// A loss was seen within a lease before this.
    lossy_until_ns: u64,
    due_ns: Option<u64>,
}

impl Delivery {
    fn note(&mut self, (now_ns, lease_ns): (u64, u64), (acknowledged, resent): Totals) {
        if resent > self.totals.1 {
            self.lossy_until_ns = now_ns.saturating_add(lease_ns);
        }
        self.totals = (acknowledged.max(self.totals.0), resent.max(self.totals.1));
        if self.totals != self.told {
            let parts = if now_ns < self.lossy_until_ns { LOSSY_PARTS } else { CALM_PARTS };
            let due_ns = self.told_ns.saturating_add(lease_ns / parts).max(now_ns);
            self.due_ns = Some(self.due_ns.map_or(due_ns, |before_ns| before_ns.min(due_ns)));
        }
    }

    /// Writes the report that is due.
    pub(super) fn write(&mut self, now_ns: u64, records: &mut Vec<SourceRecord>) {
        if self.due_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        self.due_ns = None;
        self.told = self.totals;
        self.told_ns = now_ns;
        self.revision = self.revision.saturating_add(1);
        let (acknowledged_bytes, resent_bytes) = self.totals;
        records.push(SourceRecord {
            device: 0,
            number: 0,
            revision: self.revision,
            seen: 0,
            ask: false,
            obeys: false,
            finish: false,
            state: SourceState::Delivered { acknowledged_bytes, resent_bytes },
            age_ns: 0,
        });
    }

    pub(super) const fn next_ns(&self) -> Option<u64> {
        self.due_ns
    }
}

impl SourceSide {
    pub(super) fn delivered(&mut self, acknowledged_bytes: u64, resent_bytes: u64) {
        let times = (self.now_ns, self.config.lease_ns);
        self.delivery.note(times, (acknowledged_bytes, resent_bytes));
    }

    /// Returns how long the caller may wait before it tells again what became of what it sends.
    #[must_use]
    pub const fn delivery_pause_ns(&self) -> u64 {
        self.config.lease_ns / LOSSY_PARTS
    }
}
