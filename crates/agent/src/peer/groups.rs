//! The shared queue pairs with each other host: how many there should be, and the making of them.
//!
//! The lower host begins: it makes its end and offers it; the other makes an end that is connected with it; the
//! lower one connects its own. An end that fails takes the other with it, and a new queue pair is made when both are
//! gone: nothing of the old one can arrive behind what goes over the new one.
use super::message::PeerMessage;
use super::{Make, Verdict};
use std::collections::{BTreeMap, VecDeque};

/// What is to be done.
pub(super) enum Action {
    Say(u32, PeerMessage),
    Tell(Verdict),
    Make(Make),
    /// End the session of a host, which breaks the rules.
    Refuse(u32, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SharedQp {
    Making,
    Ready,
    /// Whose ends are gone.
    Lost {
        ours: bool,
        theirs: bool,
    },
}

#[derive(Debug, Default)]
struct Group {
    up: bool,
    /// Connections that share.
    connections: u32,
    /// The number of the next queue pair that is begun here.
    next: u32,
    shared_qps: BTreeMap<u32, SharedQp>,
    /// The peer wants no more than these.
    limit: Option<u32>,
    /// The last one could not be made: another is tried a while later.
    rests: bool,
    /// Queue pairs in use that failed.
    failed: u32,
    /// The most that were in use: one that failed is replaced, as its connections have messages there.
    kept: u32,
}

impl Group {
    /// Returns how many queue pairs are made or used.
    fn live(&self) -> u32 {
        self.shared_qps
            .values()
            .filter(|shared_qp| !matches!(shared_qp, SharedQp::Lost { .. }))
            .count() as u32
    }

    /// Notes that one more is in use.
    fn keep(&mut self) {
        let ready = self.shared_qps.values().filter(|shared_qp| **shared_qp == SharedQp::Ready);
        self.kept = self.kept.max(ready.count() as u32);
    }

    /// Returns how many there are to be, with those in place of others.
    fn needed(&self, ratio: u32) -> u32 {
        self.wanted(ratio).max(self.kept.min(self.limit.unwrap_or(u32::MAX)))
    }

    fn wanted(&self, ratio: u32) -> u32 {
        self.connections.div_ceil(ratio).min(self.limit.unwrap_or(u32::MAX))
    }
}

/// What is shared with a host.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) connections: u32,
    pub(super) queue_pairs: u32,
    pub(super) failed: u32,
}

/// See the module.
pub(super) struct Groups {
    /// One with each host that is for probes, and none that is shared.
    probes: bool,
    ours: u32,
    ratio: u32,
    most: u32,
    hosts: BTreeMap<u32, Group>,
    actions: VecDeque<Action>,
}

impl Groups {
    pub(super) fn new(ours: u32, ratio: u32, most: u32, probes: bool) -> Self {
        let (hosts, actions) = (BTreeMap::new(), VecDeque::new());
        Self { probes, ours, ratio, most, hosts, actions }
    }

    pub(super) fn next(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn say(&mut self, host: u32, message: PeerMessage) {
        self.actions.push_back(Action::Say(host, message));
    }

    fn make(&mut self, make: Make) {
        self.actions.push_back(Action::Make(make));
    }

    fn group(&mut self, host: u32) -> &mut Group {
        self.hosts.entry(host).or_default()
    }

    /// Returns whether a connection with a host may share: each host needs one queue pair at least.
    pub(super) fn has_room(&self, host: u32) -> bool {
        let mut used = self.hosts.iter().filter(|(_, group)| group.connections > 0);
        self.connections(host) > 0 || (used.by_ref().count() as u32) < self.most
    }

    fn shared_qp(&mut self, host: u32, number: u32) -> Option<&mut SharedQp> {
        self.hosts.get_mut(&host)?.shared_qps.get_mut(&number)
    }

    pub(super) fn is_up(&self, host: u32) -> bool {
        self.hosts.get(&host).is_some_and(|group| group.up)
    }

    pub(super) fn is_known(&self, host: u32) -> bool {
        self.hosts.contains_key(&host)
    }

    pub(super) fn connections(&self, host: u32) -> u32 {
        self.hosts.get(&host).map_or(0, |group| group.connections)
    }

    /// Returns how many connections share with a host, how many queue pairs, and how many of these failed.
    pub(super) fn counts(&self, host: u32) -> Counts {
        let Some(group) = self.hosts.get(&host) else { return Counts::default() };
        let ready = group.shared_qps.values().filter(|shared_qp| **shared_qp == SharedQp::Ready);
        Counts {
            connections: group.connections,
            queue_pairs: ready.count() as u32,
            failed: group.failed,
        }
    }

    pub(super) fn join(&mut self, host: u32) {
        self.group(host).connections += 1;
        self.grow(host);
    }

    pub(super) fn leave(&mut self, host: u32) {
        let group = self.group(host);
        group.connections = group.connections.saturating_sub(1);
    }

    /// Returns the ratio at which all hosts together have no more queue pairs than they may.
    fn ratio(&self) -> u32 {
        let wanted = |ratio: &u32| {
            let each = self.hosts.values().map(|group| group.wanted(*ratio));
            each.sum::<u32>() <= self.most.max(self.hosts.len() as u32)
        };
        (self.ratio..u32::MAX).find(wanted).unwrap_or(u32::MAX)
    }

    /// Begins the queue pairs that a host lacks.
    fn grow(&mut self, host: u32) {
        let (ours, ratio) = (self.ours, self.ratio());
        loop {
            let probes = u32::from(self.probes);
            let group = self.group(host);
            let dying = group.shared_qps.len() as u32 > group.live();
            if ours > host
                || !group.up
                || group.rests
                || dying
                || group.live() >= group.needed(ratio).max(probes)
            {
                return;
            }
            let number = group.next;
            group.next = number.wrapping_add(1);
            group.shared_qps.insert(number, SharedQp::Making);
            self.make(Make::Offer(host, number));
        }
    }

    /// An end of this host waits for the other.
    pub(super) fn made(&mut self, host: u32, number: u32, endpoint: String) {
        if self.shared_qp(host, number).is_some_and(|shared_qp| *shared_qp == SharedQp::Making) {
            self.say(host, PeerMessage::QueuePair { number, endpoint });
        }
    }

    pub(super) fn heard_queue_pair(&mut self, host: u32, number: u32, endpoint: String) {
        let (begins, most) = (self.ours < host, self.most);
        let others = self.hosts.iter().filter(|(known, _)| **known != host);
        let all: u32 = others.map(|(_, group)| group.live()).sum();
        let group = self.group(host);
        let live = group.live();
        match group.shared_qps.get(&number) {
            Some(SharedQp::Making) if begins => self.make(Make::Finish(host, number, endpoint)),
            None if begins => {
                let reason = format!("shared queue pair {number} was not offered");
                self.actions.push_back(Action::Refuse(host, reason));
            }
            None if live >= *crate::policy::QUEUE_PAIRS.end() => {
                let reason = format!("{live} shared queue pairs are enough");
                self.actions.push_back(Action::Refuse(host, reason));
            }
            None if live > 0 && all + live >= most => {
                self.say(host, PeerMessage::Lost { number, answer: false });
            }
            None => {
                group.shared_qps.insert(number, SharedQp::Making);
                self.make(Make::Accept(host, number, endpoint));
            }
            Some(_) => {}
        }
    }

    /// Both ends are connected, as the lower host says.
    pub(super) fn heard_ready(&mut self, host: u32, number: u32) {
        let begins = self.ours < host;
        if let Some(shared_qp @ SharedQp::Making) = self.shared_qp(host, number)
            && !begins
        {
            *shared_qp = SharedQp::Ready;
            self.group(host).keep();
            self.make(Make::Use(host, number));
        }
    }

    /// The engine has one that was begun here.
    pub(super) fn finished(&mut self, host: u32, number: u32) {
        if let Some(shared_qp @ SharedQp::Making) = self.shared_qp(host, number) {
            *shared_qp = SharedQp::Ready;
            self.group(host).keep();
            self.say(host, PeerMessage::Ready { number });
        }
    }

    /// The end here is gone.
    pub(super) fn lost(&mut self, host: u32, number: u32) {
        let Some(group) = self.hosts.get_mut(&host) else { return };
        let Some(shared_qp) = group.shared_qps.get_mut(&number) else { return };
        let was_made = *shared_qp == SharedQp::Making;
        group.failed += u32::from(*shared_qp == SharedQp::Ready);
        let answer = matches!(shared_qp, SharedQp::Lost { theirs: true, .. });
        if matches!(shared_qp, SharedQp::Lost { ours: true, .. }) {
            return;
        }
        *shared_qp = SharedQp::Lost { ours: true, theirs: answer };
        self.say(host, PeerMessage::Lost { number, answer });
        if was_made {
            self.rest(host);
        }
        self.replace(host, number);
    }

    pub(super) fn heard_lost(&mut self, host: u32, number: u32, answer: bool) {
        let begins = self.ours < host;
        let group = self.group(host);
        let live = group.live();
        let Some(shared_qp) = group.shared_qps.get_mut(&number) else {
            if !answer {
                self.say(host, PeerMessage::Lost { number, answer: true });
            }
            return;
        };
        match shared_qp {
            SharedQp::Lost { theirs, .. } => *theirs = true,
            SharedQp::Making | SharedQp::Ready => {
                if *shared_qp == SharedQp::Making && begins && !answer {
                    // It did not take the offer: it has as many as it may.
                    group.limit = Some((live - 1).max(1));
                }
                let was_made = *shared_qp == SharedQp::Making;
                group.failed += u32::from(!was_made);
                let gone = SharedQp::Lost { ours: false, theirs: true };
                group.shared_qps.insert(number, gone);
                self.make(Make::Forget(host, number));
                if was_made {
                    self.rest(host);
                }
            }
        }
        self.replace(host, number);
    }

    /// One could not be made: who waits for a first one goes its own way.
    fn rest(&mut self, host: u32) {
        let Some(group) = self.hosts.get_mut(&host) else { return };
        group.rests = true;
        if group.live() == 0 {
            self.actions.push_back(Action::Tell(Verdict::NoSharedQp(host)));
        }
    }

    /// Forgets a queue pair whose ends are both gone, and begins another in its place.
    fn replace(&mut self, host: u32, number: u32) {
        let Some(group) = self.hosts.get_mut(&host) else { return };
        if group.shared_qps.get(&number) == Some(&SharedQp::Lost { ours: true, theirs: true }) {
            group.shared_qps.remove(&number);
            self.actions.push_back(Action::Tell(Verdict::SharedQpFree(host, number)));
            self.grow(host);
        }
    }

    pub(super) fn opened(&mut self, host: u32) {
        self.group(host).up = true;
        self.grow(host);
    }

    /// A session ended: what was being made is begun again in the next one.
    pub(super) fn closed(&mut self, host: u32) {
        let Some(group) = self.hosts.get_mut(&host) else { return };
        group.up = false;
        let making =
            group.shared_qps.iter_mut().filter(|(_, shared_qp)| **shared_qp == SharedQp::Making);
        let mut gone = Vec::new();
        for (number, shared_qp) in making {
            *shared_qp = SharedQp::Lost { ours: false, theirs: false };
            gone.push(*number);
        }
        gone.into_iter().for_each(|number| self.make(Make::Forget(host, number)));
    }

    /// Forgets a host; returns whether it was known.
    pub(super) fn forget(&mut self, host: u32) -> bool {
        self.hosts.remove(&host).is_some()
    }

    pub(super) fn is_waiting(&self) -> bool {
        let waits =
            |shared_qp: &SharedQp| matches!(shared_qp, SharedQp::Lost { theirs: false, .. });
        let waits = |group: &Group| group.rests || group.shared_qps.values().any(waits);
        self.hosts.values().any(|group| group.up && waits(group))
    }

    pub(super) fn ask_again(&mut self) {
        let rested = self.hosts.iter_mut().filter(|(_, group)| group.up);
        let rested =
            rested.filter_map(|(host, group)| std::mem::take(&mut group.rests).then_some(*host));
        let rested: Vec<u32> = rested.collect();
        rested.into_iter().for_each(|host| self.grow(host));
        let mut again = Vec::new();
        for (host, group) in self.hosts.iter().filter(|(_, group)| group.up) {
            for (number, shared_qp) in &group.shared_qps {
                if *shared_qp == (SharedQp::Lost { ours: true, theirs: false }) {
                    again.push((*host, PeerMessage::Lost { number: *number, answer: false }));
                }
            }
        }
        self.actions.extend(again.into_iter().map(|(host, message)| Action::Say(host, message)));
    }
}
