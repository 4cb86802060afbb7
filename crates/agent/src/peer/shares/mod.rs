//! Connections that share queue pairs with those of another host: which do, what the two agents asked each other
//! about them, and how many queue pairs there are. No I/O and no clock: what is to be done comes out as [`Action`]s.
//!
//! A connection shares if both ends say so when they are connected: who comes second follows the first. It stops
//! for good when either end says [`PeerMessage::Apart`] and the other has answered. What was asked is asked again
//! until it is answered, since messages are lost when a session ends.
mod parting;
#[cfg(test)]
mod tests;

use super::groups::{Action, Counts, Groups};
use super::message::{PeerMessage, RemoteRegion};
use super::{Local, Verdict};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

enum Stage {
    /// Until its agent answers, or the time is over.
    Asked(Sender<Option<u32>>, Instant),
    /// The peer asked, and got a yes; the application here has not connected it. What the peer asks for meanwhile has its
    /// answer then.
    Reserved(BTreeSet<u32>),
    Shared {
        /// Apart was said.
        sent: bool,
        /// The peer said Apart.
        received: bool,
        /// After both: the receives of this end are on its own, and so are those of the peer.
        alone: [bool; 2],
        /// Who ends the connection here waits for the peer.
        leaving: Option<Sender<()>>,
    },
}

struct Join {
    at: Local,
    host: u32,
    to: u32,
    stage: Stage,
}

/// See the module.
pub(super) struct Shares {
    ratio: u32,
    joins: BTreeMap<u32, Join>,
    /// Those of which a peer was asked something that it may not have answered: who knows an answer is taken out later.
    open: BTreeSet<u32>,
    /// Connected otherwise.
    alone: BTreeSet<u32>,
    groups: Groups,
    /// Asked for, by queue pair and key.
    keys: BTreeSet<(u32, u32)>,
    /// Who waits until a host has nothing more for a key.
    revoking: BTreeMap<(u32, u32), Vec<Sender<()>>>,
    actions: VecDeque<Action>,
}

/// Keys that a peer may ask for while a connection is reserved; it asks again for others.
const MOST_KEYS: usize = 16;

/// How long the agent of a peer has to answer whether two queue pairs share; it has a session.
const ANSWER: Duration = Duration::from_secs(1);

impl Shares {
    /// For the host of this number.
    pub(super) fn new(ours: u32, ratio: u32, most: u32, probes: bool) -> Self {
        Self {
            ratio,
            joins: BTreeMap::new(),
            open: BTreeSet::new(),
            alone: BTreeSet::new(),
            groups: Groups::new(ours, ratio, most, probes),
            keys: BTreeSet::new(),
            revoking: BTreeMap::new(),
            actions: VecDeque::new(),
        }
    }

    pub(super) fn next(&mut self) -> Option<Action> {
        self.actions.pop_front().or_else(|| self.groups.next())
    }

    fn say(&mut self, host: u32, message: PeerMessage) {
        self.actions.push_back(Action::Say(host, message));
    }

    pub(super) fn counts(&self, host: u32) -> Counts {
        self.groups.counts(host)
    }

    /// Returns when the answer to a question is late.
    pub(super) fn due(&self) -> Option<Instant> {
        let asked = self.open_joins().filter_map(|join| match join.stage {
            Stage::Asked(_, until) => Some(until),
            Stage::Reserved(_) | Stage::Shared { .. } => None,
        });
        asked.min()
    }

    fn open_joins(&self) -> impl Iterator<Item = &Join> {
        self.open.iter().filter_map(|qpn| self.joins.get(qpn))
    }

    /// A queue pair is to be connected with one of `host`, if that has a session: tells with which host they share, if they do.
    pub(super) fn share(
        &mut self,
        now: Instant,
        at: Local,
        (host, to): (Option<u32>, u32),
        reply: Sender<Option<u32>>,
    ) {
        self.alone.remove(&at.qpn);
        if let Some(join) = self.joins.get_mut(&at.qpn) {
            if matches!(join.stage, Stage::Reserved(_)) && Some(join.host) == host && join.to == to
            {
                join.at = at;
                self.begin(at.qpn, &reply);
                return;
            }
            let (host, to) = (join.host, join.to);
            self.joins.remove(&at.qpn);
            self.let_go(host, (at.qpn, to));
        }
        let Some(host) = host.filter(|host| self.may_share(*host)) else {
            self.alone.insert(at.qpn);
            let _ = reply.send(None);
            return;
        };
        let stage = Stage::Asked(reply, now + ANSWER);
        self.joins.insert(at.qpn, Join { at, host, to, stage });
        self.open.insert(at.qpn);
        self.say(host, PeerMessage::Share { queue_pair: at.qpn, to });
    }

    fn may_share(&self, host: u32) -> bool {
        self.ratio > 1 && self.groups.is_up(host) && self.groups.has_room(host)
    }

    /// Both ends agree.
    fn begin(&mut self, qpn: u32, reply: &Sender<Option<u32>>) {
        let Some(join) = self.joins.get_mut(&qpn) else { return };
        let (at, host, alone) = (join.at, join.host, [false; 2]);
        let begun = Stage::Shared { sent: false, received: false, alone, leaving: None };
        if let Stage::Reserved(keys) = std::mem::replace(&mut join.stage, begun) {
            let asked = |rkey| Action::Tell(Verdict::KeyAsked { at, host, rkey });
            self.actions.extend(keys.into_iter().map(asked));
        }
        self.groups.join(host);
        let _ = reply.send(Some(host));
    }

    fn refuse_share(&mut self, qpn: u32) {
        if let Some(Join { stage: Stage::Asked(reply, _), .. }) = self.joins.remove(&qpn) {
            let _ = reply.send(None);
        }
        self.alone.insert(qpn);
    }

    /// A peer asks about a queue pair of this host, which is `at` if there is one.
    pub(super) fn heard_share(&mut self, host: u32, theirs: u32, to: u32, at: Option<Local>) {
        let yes = match self.joins.get_mut(&to) {
            Some(join) if (join.host, join.to) == (host, theirs) => match &join.stage {
                Stage::Asked(reply, _) => {
                    let reply = reply.clone();
                    self.begin(to, &reply);
                    true
                }
                // The end here stops sharing, and the peer that asks was done with that before.
                Stage::Shared { alone: [_, true], .. } => false,
                Stage::Reserved(_) | Stage::Shared { .. } => true,
            },
            Some(_) => false,
            None => {
                let can = at.filter(|_| self.may_share(host) && !self.alone.contains(&to));
                if let Some(at) = can {
                    let stage = Stage::Reserved(BTreeSet::new());
                    let join = Join { at, host, to: theirs, stage };
                    self.joins.insert(to, join);
                }
                can.is_some()
            }
        };
        self.say(host, PeerMessage::Shared { queue_pair: to, to: theirs, yes });
    }

    fn is_between(&self, host: u32, theirs: u32, to: u32) -> Option<&Join> {
        self.joins.get(&to).filter(|join| (join.host, join.to) == (host, theirs))
    }

    pub(super) fn heard_shared(&mut self, host: u32, theirs: u32, to: u32, yes: bool) {
        let Some(join) = self.is_between(host, theirs, to) else {
            if yes {
                // The question was given up: the peer must not wait here.
                self.let_go(host, (to, theirs));
            }
            return;
        };
        match &join.stage {
            Stage::Asked(reply, _) if yes => {
                let reply = reply.clone();
                self.begin(to, &reply);
            }
            Stage::Asked(..) => self.refuse_share(to),
            Stage::Shared { received: false, .. } if !yes => self.part_from(to),
            Stage::Reserved(_) | Stage::Shared { .. } => {}
        }
    }

    fn remove(&mut self, qpn: u32) -> Option<Join> {
        let join = self.joins.remove(&qpn)?;
        self.keys.retain(|(known, _)| *known != qpn);
        if matches!(join.stage, Stage::Shared { .. }) {
            self.groups.leave(join.host);
        }
        Some(join)
    }

    fn fail(&mut self, qpn: u32) {
        if let Some(Join { at, stage: Stage::Shared { leaving: None, .. }, .. }) = self.remove(qpn)
        {
            self.actions.push_back(Action::Tell(Verdict::Fail(at.key, at.queue_pair)));
        }
    }

    /// A connection needs to know a key of its peer.
    pub(super) fn ask_key(&mut self, qpn: u32, rkey: u32) {
        if let Some(Join { host, to, stage: Stage::Shared { .. }, .. }) = self.joins.get(&qpn) {
            let (host, to) = (*host, *to);
            self.keys.insert((qpn, rkey));
            self.say(host, PeerMessage::Key { queue_pair: qpn, to, rkey });
        }
    }

    pub(super) fn heard_key(&mut self, host: u32, theirs: u32, to: u32, rkey: u32) {
        let join = self.joins.get_mut(&to).filter(|join| (join.host, join.to) == (host, theirs));
        match join.map(|join| (join.at, &mut join.stage)) {
            Some((at, Stage::Shared { received: false, .. })) => {
                let asked = Verdict::KeyAsked { at, host, rkey };
                self.actions.push_back(Action::Tell(asked));
            }
            Some((_, Stage::Reserved(keys))) => {
                if keys.len() < MOST_KEYS {
                    keys.insert(rkey);
                }
            }
            Some(_) | None => self.say_region(host, (to, theirs), rkey, None),
        }
    }

    fn say_region(
        &mut self,
        host: u32,
        (queue_pair, to): (u32, u32),
        rkey: u32,
        region: Option<RemoteRegion>,
    ) {
        self.say(host, PeerMessage::Region { queue_pair, to, rkey, region });
    }

    /// What a key of this host gives the peer of a queue pair.
    pub(super) fn answer_key(&mut self, qpn: u32, rkey: u32, region: Option<RemoteRegion>) {
        if let Some(join) = self.joins.get(&qpn) {
            self.say_region(join.host, (qpn, join.to), rkey, region);
        }
    }

    pub(super) fn heard_region(
        &mut self,
        host: u32,
        (theirs, to): (u32, u32),
        rkey: u32,
        region: Option<RemoteRegion>,
    ) {
        let Some(at) = self.is_between(host, theirs, to).map(|join| join.at) else { return };
        if self.keys.remove(&(to, rkey)) {
            let told = Verdict::Key { at, rkey, region };
            self.actions.push_back(Action::Tell(told));
        }
    }

    /// A region ends of which a host was told; `reply` is dropped when nothing more comes from there.
    pub(super) fn revoke(&mut self, host: u32, rkey: u32, reply: Sender<()>) {
        if self.groups.is_known(host) {
            self.revoking.entry((host, rkey)).or_default().push(reply);
            self.say(host, PeerMessage::Revoke { rkey });
        }
    }

    pub(super) fn heard_revoked(&mut self, host: u32, rkey: u32) {
        self.revoking.remove(&(host, rkey));
    }

    /// Returns how many shared queue pairs with other hosts are being made or used.
    pub(super) fn groups(&mut self) -> &mut Groups {
        &mut self.groups
    }

    /// A host has a session.
    pub(super) fn opened(&mut self, host: u32) {
        self.groups.opened(host);
        let joins = self.joins.values().filter(|join| join.host == host);
        // Those that stop sharing say so again.
        let asks =
            |stage: &Stage| matches!(stage, Stage::Asked(..) | Stage::Shared { sent: false, .. });
        let again = joins.filter(|join| asks(&join.stage));
        let again: Vec<(u32, u32)> = again.map(|join| (join.at.qpn, join.to)).collect();
        for (queue_pair, to) in again {
            self.say(host, PeerMessage::Share { queue_pair, to });
        }
        self.ask_again();
    }

    /// The session of a host ended.
    pub(super) fn closed(&mut self, host: u32) {
        self.groups.closed(host);
        let asked = |join: &&Join| join.host == host && matches!(join.stage, Stage::Asked(..));
        let asked: Vec<u32> = self.joins.values().filter(asked).map(|join| join.at.qpn).collect();
        asked.into_iter().for_each(|qpn| self.refuse_share(qpn));
    }

    /// A host is gone, or has another life.
    pub(super) fn forget(&mut self, host: u32) {
        self.closed(host);
        let joins = self.joins.values().filter(|join| join.host == host);
        let gone: Vec<u32> = joins.map(|join| join.at.qpn).collect();
        for qpn in gone {
            if self.joins.get(&qpn).is_some_and(|join| matches!(join.stage, Stage::Shared { .. })) {
                // Its host may only have stood still, and ask whether they share: they do not, and it fails there too.
                self.alone.insert(qpn);
            }
            self.fail(qpn);
            self.joins.remove(&qpn);
        }
        self.revoking.retain(|(known, _), _| *known != host);
        if self.groups.forget(host) {
            self.actions.push_back(Action::Tell(Verdict::SharedQpsGone(host)));
        }
    }

    /// Gives up questions that nobody answered in time.
    pub(super) fn expire(&mut self, now: Instant) {
        let joins = &self.joins;
        self.open.retain(|qpn| {
            let stage = joins.get(qpn).map(|join| &join.stage);
            matches!(stage, Some(Stage::Asked(..) | Stage::Shared { sent: true, .. }))
        });
        let late = self
            .open_joins()
            .filter(|join| matches!(join.stage, Stage::Asked(_, until) if until <= now));
        let late: Vec<u32> = late.map(|join| join.at.qpn).collect();
        late.into_iter().for_each(|qpn| self.refuse_share(qpn));
    }

    /// Returns whether an answer is awaited that a message lost would keep from coming.
    pub(super) fn is_waiting(&self) -> bool {
        let parting = |join: &Join| matches!(join.stage, Stage::Shared { sent: true, .. });
        !self.keys.is_empty()
            || !self.revoking.is_empty()
            || self.groups.is_waiting()
            || self.open_joins().any(parting)
    }

    /// Asks again what was not answered.
    pub(super) fn ask_again(&mut self) {
        self.groups.ask_again();
        let mut again = Vec::new();
        for join in self.open_joins() {
            if let Stage::Shared { sent: true, .. } = join.stage {
                let apart =
                    PeerMessage::Apart { queue_pair: join.at.qpn, to: join.to, answer: false };
                again.push((join.host, apart));
            }
        }
        for (qpn, rkey) in &self.keys {
            if let Some(join) = self.joins.get(qpn) {
                let ask = PeerMessage::Key { queue_pair: *qpn, to: join.to, rkey: *rkey };
                again.push((join.host, ask));
            }
        }
        let revoking = self.revoking.keys();
        again.extend(revoking.map(|(host, rkey)| (*host, PeerMessage::Revoke { rkey: *rkey })));
        self.actions.extend(again.into_iter().map(|(host, message)| Action::Say(host, message)));
    }
}
