//! Lowers what is granted of a link that loses what is sent over it, and raises it again.
use super::controller::{Controller, Timer};
use super::timers::TimerId;
use super::working::{Phase, Report};
use super::{LinkId, Output, PathId, Refusal, SourceId, Subject};
use crate::capacity::{CLIMB_NS, climbed, lowered, part};

/// Parts of a lease: how long a link is measured, and how long what was sent before a cut may be lost.
const MEASURE_PARTS: u64 = 2;
const SETTLE_PARTS: u64 = 2;
/// Part of a lease: a source that reported since then goes on.
const RECENT_PARTS: u64 = 8;
/// Of what was sent, in percent: where more is lost, sources wait for it.
const STALL_PERCENT: u64 = 5;
/// A working capacity is no less than this part of the stated one: losses may have another cause, which lowering it does not
/// end, and sources may lie.
const LEAST_PARTS: u64 = 10;

impl Controller {
    /// Takes what a source reports of its path since its last report.
    pub(super) fn delivered(&mut self, source: SourceId, path: PathId, bytes: (u64, u64)) {
        let Some(links) = self.paths.get(usize::from(path.0)).map(|path| path.links.clone()) else {
            return;
        };
        for link in links {
            self.links[link].working.add(self.now_ns, source, bytes);
            self.judge(link);
        }
    }

    fn judge(&mut self, at: usize) {
        let (now_ns, lease_ns) = (self.now_ns, self.config.lease_ns);
        let link = &mut self.links[at];
        let (load_bps, capacity_bps) = (link.load_bps(), link.pool.capacity_bps);
        let working = &mut link.working;
        working.advance(now_ns, load_bps);
        let spent_ns = now_ns.saturating_sub(working.since_ns);
        let recent_ns = lease_ns / RECENT_PARTS;
        let most_bytes = super::transfer::sent_bytes(spent_ns.max(1), capacity_bps);
        match working.phase {
            Phase::Settling { until_ns } if now_ns < until_ns => {}
            Phase::Settling { .. } => working.begin(now_ns, Phase::Watching),
            Phase::Watching if working.judged(now_ns, most_bytes, recent_ns).is_lossy() => {
                let until_ns = now_ns.saturating_add(lease_ns / MEASURE_PARTS);
                working.begin(now_ns, Phase::Measuring { until_ns });
            }
            Phase::Watching if spent_ns >= lease_ns => working.begin(now_ns, Phase::Watching),
            Phase::Watching => {}
            Phase::Measuring { until_ns } if now_ns < until_ns => {}
            Phase::Measuring { .. } => {
                let report = working.judged(now_ns, most_bytes, recent_ns);
                let granted_bps = working.granted_bps().min(capacity_bps);
                if report.is_lossy() && granted_bps > 0 {
                    self.lower(at, report, granted_bps);
                } else {
                    working.begin(now_ns, Phase::Watching);
                }
            }
        }
    }

    /// Grants no more of a link than what it turned out to carry.
    fn lower(&mut self, at: usize, report: Report, granted_bps: u64) {
        let now_ns = self.now_ns;
        let settled_ns = now_ns.saturating_add(self.config.lease_ns / SETTLE_PARTS);
        let working = &mut self.links[at].working;
        let (arrived, sent) = (report.acknowledged_bytes, report.sum().max(1));
        let mut arrived_bps = part(granted_bps, arrived, sent);
        if report.resent_bytes > sent / 100 * STALL_PERCENT {
            let time_ns = working.granted_ns.max(1);
            arrived_bps = arrived_bps.min(part(arrived, 8_000_000_000, time_ns));
        }
        let least_bps = (working.stated_bps / LEAST_PARTS).max(self.config.rate_min_bps);
        let working_bps = lowered(arrived_bps, least_bps, working.stated_bps);
        working.begin(now_ns, Phase::Settling { until_ns: settled_ns });
        match working.climb {
            TimerId::NONE => working.climb = self.timers.set(settled_ns, Timer::Climb(link_id(at))),
            timer => self.timers.reset(timer, settled_ns),
        }
        self.work_at(at, working_bps);
        self.say_working(at);
    }

    /// Grants a little more of a link again.
    pub(super) fn climb(&mut self, link: LinkId) {
        let at = usize::from(link.0);
        let known = &mut self.links[at];
        known.working.climb = TimerId::NONE;
        let (stated_bps, capacity_bps) = (known.working.stated_bps, known.pool.capacity_bps);
        let working_bps = climbed(capacity_bps, stated_bps);
        self.work_at(at, working_bps);
        if working_bps == stated_bps {
            self.say_working(at);
        } else {
            let next_ns = self.now_ns.saturating_add(CLIMB_NS);
            self.links[at].working.climb = self.timers.set(next_ns, Timer::Climb(link));
        }
    }

    /// Takes what somebody says that a link carries: it holds until losses say otherwise.
    pub(super) fn set_capacity(&mut self, link: LinkId, capacity_bps: u64) {
        let (at, now_ns) = (usize::from(link.0), self.now_ns);
        let Some(known) = self.links.get_mut(at) else {
            return self.refuse(Subject::Link(link), Refusal::UnknownLink);
        };
        known.working.stated_bps = capacity_bps;
        known.working.begin(now_ns, Phase::Watching);
        let climb = std::mem::replace(&mut known.working.climb, TimerId::NONE);
        if climb != TimerId::NONE {
            self.timers.remove(climb);
        }
        self.work_at(at, capacity_bps);
    }

    fn work_at(&mut self, at: usize, capacity_bps: u64) {
        let known = &mut self.links[at];
        known.pool.capacity_bps = capacity_bps;
        let part = known.part;
        self.is_over = self.are_rates_over();
        self.note_stale(part);
    }

    fn say_working(&mut self, at: usize) {
        let (stated_bps, working_bps) =
            (self.links[at].working.stated_bps, self.links[at].pool.capacity_bps);
        self.outputs.push_back(Output::Working { link: link_id(at), stated_bps, working_bps });
    }

    /// Returns what a link is said to carry, and what is granted of it at most: less after losses. Bits a second.
    #[must_use]
    pub fn capacity_bps(&self, link: LinkId) -> Option<(u64, u64)> {
        let known = self.links.get(usize::from(link.0))?;
        Some((known.working.stated_bps, known.pool.capacity_bps))
    }
}

fn link_id(at: usize) -> LinkId {
    LinkId(u16::try_from(at).unwrap_or(u16::MAX))
}
