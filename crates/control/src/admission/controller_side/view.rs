//! What can be seen of a controller's end, for people.
use super::ControllerSide;
use super::entry::{Entry, Key, Said};
use super::session::Session;
use crate::admission::{ClassId, Explanation, LinkId, SourceId};
use std::net::SocketAddr;

/// How transfers of a class ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    on_time: u64,
    late: u64,
    dropped: u64,
}

/// A class, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassView {
    /// Transfers that want capacity.
    pub waiting: u64,
    /// Transfers that have a window.
    pub granted: u64,
    /// Transfers that were sent whole, and not told that they are late.
    pub on_time: u64,
    /// Transfers that were sent whole, and told that they are late.
    pub late: u64,
    /// Transfers that were dropped as late. The rest of one that had begun counts as late too.
    pub dropped: u64,
}

/// A source, at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceView {
    /// Its number.
    pub source: SourceId,
    /// Where its last datagram was from.
    pub address: Option<SocketAddr>,
    /// How long ago that was: nanoseconds.
    pub silent_ns: u64,
    /// Its devices.
    pub devices: usize,
    /// Transfers that want capacity.
    pub waiting: u64,
    /// The sum of its windows: bits a second.
    pub granted_bps: u64,
}

/// The rate of a periodic device, at a moment: bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateView {
    /// What it sends in a period, divided by the period.
    pub wanted_bps: u64,
    /// What it has; 0 for none.
    pub rate_bps: u64,
    /// The most that it could have.
    pub could_bps: u64,
}

impl ControllerSide {
    /// Returns the rates of all windows that a source may use now or soon, as far as it has not said
    /// otherwise: bits a second.
    #[must_use]
    pub fn granted_bps(&self, source: SourceId) -> u64 {
        let entries =
            self.sessions.get(&source).into_iter().flat_map(|session| &session.work.entries);
        entries.map(|(_, entry)| entry.granted_bps(self.now_ns)).sum()
    }

    /// Returns how it stands, by class.
    #[must_use]
    pub fn classes(&self) -> Vec<ClassView> {
        let ended = |ended: &Ended| ClassView {
            on_time: ended.on_time,
            late: ended.late,
            dropped: ended.dropped,
            ..ClassView::default()
        };
        let mut views: Vec<ClassView> = self.ended.iter().map(ended).collect();
        for session in self.sessions.values() {
            for (key, entry) in &session.work.entries {
                let Some(view) = self.class_at(session, *key).and_then(|at| views.get_mut(at))
                else {
                    continue;
                };
                view.waiting += u64::from(entry.is_waiting(self.now_ns));
                view.granted += u64::from(entry.granted_bps(self.now_ns) > 0);
            }
        }
        views
    }

    /// Returns how it stands, by source.
    pub fn views(&self) -> impl Iterator<Item = SourceView> {
        self.sessions.iter().map(|(source, session)| {
            let waiting =
                session.work.entries.values().filter(|entry| entry.is_waiting(self.now_ns));
            SourceView {
                source: *source,
                address: session.address,
                silent_ns: self.now_ns.saturating_sub(session.heard_ns),
                devices: session.devices.len(),
                waiting: waiting.count() as u64,
                granted_bps: self.granted_bps(*source),
            }
        })
    }

    /// Explains what a device of a source waits for ([`Controller::explain`](crate::admission::Controller::explain));
    /// `place` is its place among those that the source registered. Times are the caller's.
    #[must_use]
    pub fn explain(&self, source: SourceId, place: usize) -> Option<Explanation> {
        let device = self.sessions.get(&source)?.devices.get(place)?;
        self.controller.explain(*device)
    }

    /// Returns the class of a device of a source; `place` is its place among those that the source registered.
    #[must_use]
    pub fn class(&self, source: SourceId, place: usize) -> Option<ClassId> {
        let device = self.sessions.get(&source)?.devices.get(place)?;
        self.controller.device(*device).map(|(_, class)| class)
    }

    /// Returns what small transfers have of a link without asking, but those of one source: bits a second.
    #[must_use]
    pub fn small_bps(&self, link: LinkId, without: SourceId) -> u64 {
        let own = self.sessions.get(&without).into_iter().flat_map(|session| &*session.devices);
        let own_bps: u64 = own.map(|device| self.controller.small_of(*device, link)).sum();
        self.controller.small_bps(link).saturating_sub(own_bps)
    }

    fn class_at(&self, session: &Session, key: Key) -> Option<usize> {
        let device = session.devices.get(key.device as usize)?;
        self.controller.device(*device).map(|(_, ClassId(class))| usize::from(class))
    }

    /// Counts a transfer that ends, the first time that its source says so.
    pub(super) fn count_end(&mut self, source: SourceId, key: Key, done: bool) {
        let Some(session) = self.sessions.get(&source) else { return };
        let entry = session.work.entries.get(&key);
        let late = entry.is_some_and(|entry| entry.missed_ns.is_some());
        let dropped = entry.is_some_and(|entry| entry.said == Said::Dropped);
        let class = self.class_at(session, key);
        let ended = class.and_then(|at| self.ended.get_mut(at));
        match ended {
            Some(ended) if dropped => ended.dropped += 1,
            Some(ended) if done && late => ended.late += 1,
            Some(ended) if done => ended.on_time += 1,
            Some(_) | None => {}
        }
    }
}

impl Entry {
    fn granted_bps(&self, now_ns: u64) -> u64 {
        match self.said {
            Said::Granted { rate_bps, until_ns, .. } if until_ns > now_ns => rate_bps,
            Said::Granted { .. }
            | Said::Waiting
            | Said::Paused
            | Said::Dropped
            | Said::Refused(_) => 0,
        }
    }

    fn is_waiting(&self, now_ns: u64) -> bool {
        !self.is_over() && self.granted_bps(now_ns) == 0
    }
}
