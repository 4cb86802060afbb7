//! The capacity that a link turns out to have: losses lower what is granted of it.
//!
//! Sources report what their collectors have acknowledged and what they had to send again. Where [`LOSS_PERCENT`] of it
//! is lost, the link is measured anew for a part of a lease: what was acknowledged then, times 0.98, is the link's *working*
//! capacity. It climbs again by 5 % of the stated one a second.
//!
//! What was acknowledged is counted in two ways. The part that arrived of what was sent, times the rate that was granted, is
//! exact where few packets are lost, and reports that come late do not disturb it. Where many are, sources wait for those and
//! send less than they may: then what has arrived, divided by the time in which something was granted, is less, and
//! counts.
//!
//! A single source cannot lower a link over which others send without losses: where they have a quarter of what was
//! reported, they alone are judged. Nor can it outweigh them: it counts for no more than the link carries.
use super::SourceId;
use super::timers::TimerId;
use crate::capacity::part;

/// Of what was sent, in percent: more is a sign that the link has less than is granted.
const LOSS_PERCENT: u64 = 1;
/// Less than this may have any cause.
const LOSS_BYTES_MIN: u64 = 16 << 10;
/// A source that has reported nothing for this time is forgotten.
const RECENT_NS: u64 = 1_000_000_000;

/// What a source has reported of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Report {
    pub(super) acknowledged_bytes: u64,
    pub(super) resent_bytes: u64,
    /// The last one came then.
    at_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Adds up, a lease at a time.
    #[default]
    Watching,
    /// Something was lost: how much, until then.
    Measuring { until_ns: u64 },
    /// What is reported was sent before the cut.
    Settling { until_ns: u64 },
}

/// How a link fares.
#[derive(Clone, Debug)]
pub(super) struct Working {
    pub(super) stated_bps: u64,
    pub(super) phase: Phase,
    pub(super) since_ns: u64,
    /// In the order of their sources.
    reports: Vec<(SourceId, Report)>,
    /// The rates that were granted since then, times the time: in units of 2^10 bits a second times nanoseconds.
    granted: u64,
    pub(super) granted_ns: u64,
    at_ns: u64,
    pub(super) climb: TimerId,
}

impl Working {
    pub(super) const fn new(stated_bps: u64, now_ns: u64) -> Self {
        Self {
            stated_bps,
            phase: Phase::Watching,
            since_ns: now_ns,
            reports: Vec::new(),
            granted: 0,
            granted_ns: 0,
            at_ns: now_ns,
            climb: TimerId::NONE,
        }
    }

    /// Notes that so much was granted until now.
    pub(super) const fn advance(&mut self, now_ns: u64, load_bps: u64) {
        let time_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = now_ns;
        if load_bps > 0 {
            self.granted = self.granted.saturating_add((load_bps >> 10).saturating_mul(time_ns));
            self.granted_ns = self.granted_ns.saturating_add(time_ns);
        }
    }

    pub(super) fn begin(&mut self, now_ns: u64, phase: Phase) {
        self.phase = phase;
        self.since_ns = now_ns;
        self.reports.retain(|(_, report)| now_ns - report.at_ns < RECENT_NS);
        for (_, report) in &mut self.reports {
            (report.acknowledged_bytes, report.resent_bytes) = (0, 0);
        }
        (self.granted, self.granted_ns) = (0, 0);
    }

    /// Adds what a source reports; of what it has sent before the beginning the part of its time counts.
    pub(super) fn add(
        &mut self,
        now_ns: u64,
        source: SourceId,
        (acknowledged, resent): (u64, u64),
    ) {
        let at = self.reports.binary_search_by_key(&source, |(other, _)| *other);
        let at = at.unwrap_or_else(|at| {
            let first = Report { at_ns: self.since_ns, ..Report::default() };
            self.reports.insert(at, (source, first));
            at
        });
        let known = &mut self.reports[at].1;
        let whole_ns = now_ns.saturating_sub(known.at_ns).max(1);
        let counts_ns = now_ns.saturating_sub(self.since_ns).clamp(1, whole_ns);
        let part = |bytes: u64| part(bytes, counts_ns, whole_ns);
        known.acknowledged_bytes = known.acknowledged_bytes.saturating_add(part(acknowledged));
        known.resent_bytes = known.resent_bytes.saturating_add(part(resent));
        known.at_ns = now_ns;
    }

    /// Returns the mean rate that was granted while something was.
    pub(super) fn granted_bps(&self) -> u64 {
        (self.granted / self.granted_ns.max(1)) << 10
    }

    /// Returns what was acknowledged and what was sent again, of all whose word counts. Those who reported just now go
    /// on as they did.
    pub(super) fn judged(&self, now_ns: u64, most_bytes: u64, recent_ns: u64) -> Report {
        let whole_ns = now_ns.saturating_sub(self.since_ns);
        let fit = |report: &Report| {
            let known_ns = report.at_ns.saturating_sub(self.since_ns).clamp(1, whole_ns.max(1));
            let goes_on = now_ns.saturating_sub(report.at_ns) <= recent_ns;
            let sum = report.sum().max(1);
            let until_now = if goes_on { part(sum, whole_ns.max(1), known_ns) } else { sum };
            let fits = until_now.min(most_bytes);
            Report {
                acknowledged_bytes: part(report.acknowledged_bytes, fits, sum),
                resent_bytes: part(report.resent_bytes, fits, sum),
                ..*report
            }
        };
        let (mut all, mut worst) = (Report::default(), Report::default());
        for (_, report) in &self.reports {
            let report = fit(report);
            all.acknowledged_bytes += report.acknowledged_bytes;
            all.resent_bytes += report.resent_bytes;
            if report.resent_bytes > worst.resent_bytes {
                worst = report;
            }
        }
        let others = Report {
            acknowledged_bytes: all.acknowledged_bytes - worst.acknowledged_bytes,
            resent_bytes: all.resent_bytes - worst.resent_bytes,
            ..all
        };
        if others.sum() >= all.sum() / 4 && !others.is_lossy() && others.sum() > 0 {
            others
        } else {
            all
        }
    }
}

impl Report {
    pub(super) const fn sum(self) -> u64 {
        self.acknowledged_bytes.saturating_add(self.resent_bytes)
    }

    pub(super) const fn is_lossy(self) -> bool {
        self.resent_bytes >= LOSS_BYTES_MIN && self.resent_bytes >= self.sum() / 100 * LOSS_PERCENT
    }
}
