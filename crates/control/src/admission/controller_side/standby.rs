//! Controllers that stand in for each other: one that stands by knows the sources and how their clocks run, and tells
//! them when it leads; one that gives up says how long what it granted may still be used.
use super::{ControllerSide, Timer};
use crate::admission::round_trip::Repeat;
use crate::admission::{Input, SourceId};

/// What tells sources who leads is repeated after this time, then after twice that, up to a lease.
const ANNOUNCE_NS: u64 = 2_000_000;
/// What the next one takes at least to begin, once one that gives up has said so.
const TAKEOVER_NS: u64 = 5_000_000;

impl ControllerSide {
    /// Returns whether it stands by: sources may register and probe, and nothing is granted.
    #[must_use]
    pub const fn stands_by(&self) -> bool {
        self.term == 0
    }

    pub(super) fn lead(&mut self, term: u32, left_ns: Option<u64>) {
        if !self.stands_by() {
            return;
        }
        self.term = term;
        if left_ns.is_none() {
            self.control(Input::Recover);
        }
        self.be_quiet(left_ns.unwrap_or(self.quiet_ns));
        for session in self.sessions.values_mut() {
            session.is_untold = true;
        }
        self.announcing = Some(Repeat::new(self.now_ns, ANNOUNCE_NS));
        self.timers.set(self.now_ns + ANNOUNCE_NS, Timer::Announce);
        self.tell_untold();
    }

    /// Grants nothing for so long, and keeps what sources ask for.
    pub(super) fn be_quiet(&mut self, time_ns: u64) {
        self.quiet_until_ns = self.now_ns.saturating_add(time_ns);
        self.timers.set(self.quiet_until_ns, Timer::Quiet);
    }

    /// Tells again who leads, until all have been heard in this term or are silent. One that was not reached learns it when
    /// it is heard.
    pub(super) fn announce(&mut self) {
        let (now_ns, lease_ns) = (self.now_ns, self.lease_ns);
        let Some(mut repeat) = self.announcing.take() else { return };
        if self.tell_untold() {
            repeat.step(now_ns, lease_ns);
            self.announcing = Some(repeat);
            self.timers.set(repeat.due_ns, Timer::Announce);
        }
    }

    /// Tells a source who leads if it obeys an earlier one.
    pub(super) fn tell_who_leads(&mut self, source: SourceId, obeyed: u32) {
        let is_untold = obeyed < self.term;
        if let Some(session) = self.sessions.get_mut(&source) {
            session.is_untold = is_untold;
        }
        if is_untold {
            self.enqueue(source);
        }
    }

    /// Queues those that do not know who leads; returns whether there are any.
    fn tell_untold(&mut self) -> bool {
        let untold = self.sessions.iter().filter(|(_, session)| session.is_untold);
        let untold: Vec<SourceId> = untold.map(|(source, _)| *source).collect();
        untold.iter().for_each(|source| self.enqueue(*source));
        !untold.is_empty()
    }

    /// Returns until when it grants nothing, as windows of an earlier controller may be in use.
    #[must_use]
    pub const fn quiet_until_ns(&self) -> u64 {
        self.quiet_until_ns
    }

    /// Returns how long a source that registers now may go on at its safe rate, if it sends at that, from when it said so: until
    /// something is granted. `None` where something may be, or where what an earlier controller granted is known to be in
    /// use on its paths.
    #[must_use]
    pub fn safe_ns(&self, source: SourceId) -> Option<u64> {
        if self.stands_by() || !self.is_quiet() {
            return None;
        }
        let devices = self.sessions.get(&source)?.devices.iter();
        let paths =
            devices.filter_map(|device| self.controller.device(*device)).map(|known| known.0);
        let mut links = paths.flat_map(|path| &self.paths[usize::from(path.0)]);
        let used_bps = |bps: Option<u64>| bps.unwrap_or(0);
        let is_used = links.any(|link| {
            let windows_bps = used_bps(self.controller.load_bps(*link));
            windows_bps + used_bps(self.controller.periodic_bps(*link)) > 0
        });
        Some(self.lasts_ns(self.quiet_until_ns)).filter(|left_ns| !is_used && *left_ns > 0)
    }

    /// Returns when one that gives up is to say [`left_ns`](Self::left_ns): shortly before its last window is over. Until then
    /// sources may confirm that they use less, and the next one has to wait for these windows as long in any case.
    #[must_use]
    pub fn hand_over_ns(&self) -> u64 {
        let windows_ns = self.left_ns().map_or(0, |_| self.controller.windows_end_ns());
        windows_ns.saturating_sub(TAKEOVER_NS)
    }

    /// Returns how long what it granted may still be used, if nothing is granted from now on: what a controller says that
    /// gives up ([`Input::GiveUp`](super::Input::GiveUp)). `None` where it does not know: it waits itself for what an earlier one granted, another one leads, or
    /// it has not led.
    #[must_use]
    pub fn left_ns(&self) -> Option<u64> {
        if self.stands_by() || self.superseded || self.is_quiet() {
            return None;
        }
        let guard_ns = self.guards_ns.iter().max().copied().unwrap_or(0);
        let windows_ns = self.controller.windows_end_ns().saturating_sub(self.now_ns);
        // Who has a rate uses it for a lease at most after it last said so.
        let has_rates = self.sessions.keys().any(|source| self.controller.rates(*source).0 > 0);
        let left_ns = if has_rates { windows_ns.max(self.lease_ns) } else { windows_ns };
        Some(left_ns.saturating_add(2 * guard_ns))
    }
}
