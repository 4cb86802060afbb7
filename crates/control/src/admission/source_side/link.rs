//! What a source has from its session with a controller.
use super::transfer::Course;
use super::{GoOn, SourceSide};
use crate::admission::round_trip::RoundTrip;
use crate::admission::wire::{Codes, ControllerRecord, Header, ROOT_BYTES, SourceRecord};

/// Datagrams that show the controller how the clock runs.
const PROBES: u8 = 8;
const PROBE_NS: u64 = 500_000;
/// After this time without a datagram the controller needs them again.
const IDLE_NS: u64 = 5_000_000_000;
/// One who has nothing to say sends a probe after this time.
const QUIET_NS: u64 = 1_000_000_000;

/// A hint is for a datagram of this time at most.
const HINT_NS_MAX: u64 = 2_000_000_000;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) source: u32,
    pub(super) codes: Codes<SourceRecord, ControllerRecord>,
    pub(super) round_trip: RoundTrip,
    probes: u8,
    probe_ns: u64,
    sent_ns: u64,
}

impl Link {
    pub(super) fn new(
        now_ns: u64,
        source: u32,
        root: &[u8; ROOT_BYTES],
        round_trip_ns: u64,
    ) -> Self {
        Self {
            source,
            codes: Codes::new(root),
            round_trip: RoundTrip::new(now_ns, round_trip_ns),
            probes: PROBES,
            probe_ns: now_ns,
            sent_ns: now_ns,
        }
    }

    /// Returns whether a hint is for what was sent lately.
    pub(super) fn is_hinted(&self, now_ns: u64, hint: &Header) -> bool {
        let ours = hint.source == self.source && hint.stamp_ns <= now_ns;
        ours && now_ns - hint.stamp_ns <= HINT_NS_MAX
    }

    /// Returns whether a datagram is due that shows the clock.
    pub(super) fn probes(&mut self, now_ns: u64) -> bool {
        if self.probes == 0 && now_ns.saturating_sub(self.sent_ns) > IDLE_NS {
            (self.probes, self.probe_ns) = (PROBES, now_ns);
        }
        let due = now_ns >= self.probe_due_ns();
        if due {
            self.probes = self.probes.saturating_sub(1);
            self.probe_ns = now_ns + PROBE_NS;
        }
        due
    }

    pub(super) const fn probe_due_ns(&self) -> u64 {
        if self.probes > 0 { self.probe_ns } else { self.sent_ns.saturating_add(QUIET_NS) }
    }

    pub(super) const fn note_sent(&mut self, now_ns: u64) {
        self.sent_ns = now_ns;
    }
}

impl SourceSide {
    pub(super) fn registered(
        &mut self,
        (source, term): (u32, u32),
        root: &[u8; ROOT_BYTES],
        round_trip_ns: u64,
        go_on: Option<GoOn>,
    ) {
        if term < self.term {
            self.counts.old_term += 1;
            return;
        }
        // By what it did until now, which ends when it follows.
        self.going_on = self.may_go_on(go_on);
        self.follow(term, Link::new(self.now_ns, source, root, round_trip_ns));
    }

    /// Obeys a controller from now on, and tells it all.
    pub(super) fn follow(&mut self, term: u32, link: Link) {
        let now_ns = self.now_ns;
        self.link = Some(link);
        self.registering_ns = None;
        self.unanswered_ns = None;
        self.answers.clear();
        let new_term = std::mem::replace(&mut self.term, term) < term;
        self.rates.tell_again(now_ns);
        for transfer in self.transfers.values_mut().filter(|transfer| !transfer.is_riding()) {
            if new_term {
                transfer.change_term();
            } else if transfer.course == Course::Live || transfer.acked < transfer.revision {
                transfer.revise();
            }
        }
    }
}
