//! What the controller says, and timers.
use super::entry::{Key, Said};
use super::{ControllerSide, Event, Timer};
use crate::admission::round_trip::Repeat;
use crate::admission::{Input, Output, Refusal, SourceId, Subject, TransferId};

impl ControllerSide {
    /// Notes what the controller says.
    pub(super) fn drain(&mut self) {
        loop {
            match self.controller.poll() {
                Output::Grant { transfer, grant } => {
                    let said = Said::Granted {
                        rate_bps: grant.rate_bps,
                        from_ns: grant.from_ns,
                        until_ns: grant.until_ns,
                    };
                    self.say(transfer, said, Some(grant.revision));
                }
                Output::Pause { transfer, revision } => {
                    self.say(transfer, Said::Paused, Some(revision));
                }
                Output::Missed { transfer, estimate_ns, dropped } => {
                    self.miss(transfer, estimate_ns, dropped);
                }
                Output::Refused { subject: Subject::Transfer(transfer), reason } => {
                    self.say(transfer, Said::Refused(reason.into()), None);
                }
                Output::Refused {
                    subject: Subject::Device(device),
                    reason: Refusal::Rate { could_have_bps },
                } => self.say_rate(device, 0, could_have_bps, 0),
                Output::Refused { subject: Subject::Device(device), reason } => {
                    if let Some((source, device)) = self.owner(device) {
                        self.events.push_back(Event::Refused(source, device, reason));
                    }
                }
                Output::Rate { device, rate_bps, until_ns } => {
                    self.say_rate(device, rate_bps, 0, until_ns);
                }
                Output::Renewed { source, devices, rate_bps, until_ns } => {
                    self.say_renewed(source, (devices, rate_bps), until_ns);
                }
                Output::Working { link, stated_bps, working_bps } => {
                    self.events.push_back(Event::Working(link, stated_bps, working_bps));
                }
                Output::Refused { subject: Subject::Link(_), .. } => {}
                Output::Timeout(due_ns) => {
                    self.controller_due_ns = due_ns;
                    return;
                }
            }
        }
    }

    fn say(&mut self, transfer: TransferId, said: Said, inner: Option<u32>) {
        let Some((source, key)) = self.key_of(transfer) else { return };
        let Some(entry) = self.entry(source, key) else { return };
        entry.said = said;
        if let Said::Granted { until_ns, .. } = said {
            entry.until_ns = entry.until_ns.max(until_ns);
        }
        entry.inner = inner.unwrap_or(entry.inner);
        self.revise(source, key);
    }

    fn miss(&mut self, transfer: TransferId, estimate_ns: u64, dropped: bool) {
        let Some((source, key)) = self.key_of(transfer) else { return };
        let Some(entry) = self.entry(source, key) else { return };
        entry.missed_ns = Some(estimate_ns);
        if dropped {
            entry.said = Said::Dropped;
        }
        self.revise(source, key);
    }

    /// Counts a new state of a transfer, which its source is to see.
    fn revise(&mut self, source: SourceId, key: Key) {
        let now_ns = self.now_ns;
        let Some(session) = self.sessions.get_mut(&source) else { return };
        let is_known = session.round_trip.is_known(now_ns);
        let Some(entry) = session.work.entries.get_mut(&key) else { return };
        entry.revision = entry.revision.saturating_add(1);
        entry.relies = is_known && entry.is_granted_unanswered();
        (entry.asks, entry.unsent, entry.sent_ns) = (!entry.relies, !entry.relies, None);
        if let Some((_, timer)) = entry.repeat.take() {
            self.timers.remove(timer);
        }
        self.make_ready(source, key);
        self.rearm(source, key);
    }

    /// Sets when what the source has not seen is repeated, or takes that back.
    pub(super) fn rearm(&mut self, source: SourceId, key: Key) {
        let (now_ns, lease_ns) = (self.now_ns, self.lease_ns);
        let Some(session) = self.sessions.get_mut(&source) else { return };
        let first_ns = session.round_trip.repeat_ns(lease_ns);
        let Some(entry) = session.work.entries.get_mut(&key) else { return };
        let wanted = entry.is_repeated() && !session.silent;
        match entry.repeat {
            None if wanted => {
                let repeat = Repeat::new(now_ns, first_ns);
                let timer = self.timers.set(repeat.due_ns, Timer::Repeat(source, key));
                entry.repeat = Some((repeat, timer));
            }
            Some((_, timer)) if !wanted => {
                entry.repeat = None;
                self.timers.remove(timer);
            }
            None | Some(_) => {}
        }
    }

    /// Does what is due.
    pub(super) fn fire(&mut self) {
        while let Some(timer) = self.timers.pop(self.now_ns) {
            match timer {
                Timer::Repeat(source, key) => self.repeat(source, key),
                Timer::Silence(source) => self.silence_due(source),
                Timer::Quiet => {
                    let sources: Vec<SourceId> = self.sessions.keys().copied().collect();
                    sources.into_iter().for_each(|source| self.release(source));
                }
                Timer::Announce => self.announce(),
            }
        }
        if self.controller_due_ns.is_some_and(|due_ns| due_ns <= self.now_ns) {
            self.control(Input::Timeout);
        }
    }

    fn repeat(&mut self, source: SourceId, key: Key) {
        let (now_ns, lease_ns) = (self.now_ns, self.lease_ns);
        let Some(session) = self.sessions.get_mut(&source) else { return };
        let silent = session.silent;
        let Some(entry) = session.work.entries.get_mut(&key) else { return };
        let Some((mut repeat, _)) = entry.repeat.take() else { return };
        if silent || !entry.is_repeated() {
            return;
        }
        repeat.step(now_ns, lease_ns);
        session.round_trip.back_off(&repeat);
        let timer = self.timers.set(repeat.due_ns, Timer::Repeat(source, key));
        entry.repeat = Some((repeat, timer));
        entry.asks = true;
        self.make_ready(source, key);
    }
}
