//! With which hosts messages of rounds go by a WRITE into a slot: how the two agents come to that, and what makes them
//! fall back to their session. No I/O and no clock: what is to be done comes out as [`Action`]s.
//!
//! Each agent makes slots for the other and a queue pair of its own, and announces both. Who has heard the other's
//! connects its queue pair with that, and says so. Who has heard this may write. When one fails, or a peer announces
//! others, both make new ones.
use super::Make;
use super::groups::Action;
use super::message::{PeerMessage, Slots as Announced};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// From one try with a host to the next.
const AGAIN: Duration = Duration::from_secs(1);

/// How far the end of this agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing before this time.
    Rests(Instant),
    Making,
    Announced,
    Connecting,
    Connected,
    /// The device here does not tell of what is written, or the policy wants none.
    Without,
}

#[derive(Debug)]
struct Peer {
    /// Of the end that there is, or that is made.
    number: u32,
    began: Instant,
    stage: Stage,
    /// What the peer announced.
    theirs: Option<Announced>,
    /// The peer has connected its end with that of this number.
    connected: Option<u32>,
}

/// See the module.
pub(super) struct Slots {
    /// The policy has them.
    has_any: bool,
    peers: BTreeMap<u32, Peer>,
    /// The number of the next end.
    next: u32,
    actions: VecDeque<Action>,
}

impl Slots {
    pub(super) const fn new(has_any: bool) -> Self {
        Self { has_any, peers: BTreeMap::new(), next: 0, actions: VecDeque::new() }
    }

    pub(super) fn next(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns when something is to be done.
    pub(super) fn due(&self) -> Option<Instant> {
        let rests =
            |peer: &Peer| if let Stage::Rests(until) = peer.stage { Some(until) } else { None };
        self.peers.values().filter_map(rests).min()
    }

    /// Does what is due.
    pub(super) fn expire(&mut self, now: Instant) {
        let is_over = |peer: &Peer| matches!(peer.stage, Stage::Rests(until) if until <= now);
        let over = self.peers.iter().filter(|(_, peer)| is_over(peer));
        let over: Vec<u32> = over.map(|(host, _)| *host).collect();
        over.into_iter().for_each(|host| self.make(now, host));
    }

    /// Returns the number of the end by which messages to a host can be written now. The first call for a host with a
    /// session begins to make one.
    pub(super) fn end(&mut self, now: Instant, host: u32) -> Option<u32> {
        let Some(peer) = self.peers.get(&host) else {
            self.begin(now, host);
            return None;
        };
        let is_ready = peer.stage == Stage::Connected && peer.connected == Some(peer.number);
        is_ready.then_some(peer.number)
    }

    fn begin(&mut self, now: Instant, host: u32) {
        let stage = Stage::Rests(now);
        let peer = Peer { number: 0, began: now, stage, theirs: None, connected: None };
        self.peers.insert(host, peer);
        self.make(now, host);
    }

    fn make(&mut self, now: Instant, host: u32) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        if !self.has_any {
            peer.stage = Stage::Without;
            return;
        }
        self.next = self.next.wrapping_add(1);
        (peer.number, peer.began, peer.stage) = (self.next, now, Stage::Making);
        self.actions.push_back(Action::Make(Make::OpenSlots(host, self.next)));
    }

    /// Gives up the end with a host; another one is made a while after the last was begun.
    fn rest(&mut self, host: u32) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        (peer.stage, peer.connected) = (Stage::Rests(peer.began + AGAIN), None);
        self.actions.push_back(Action::Make(Make::ForgetSlots(host, peer.number)));
    }

    fn find(&mut self, host: u32, number: u32, stage: Stage) -> Option<&mut Peer> {
        let is_it = |peer: &&mut Peer| peer.number == number && peer.stage == stage;
        self.peers.get_mut(&host).filter(is_it)
    }

    /// The end of this number is made, unless the device tells of no WRITEs.
    pub(super) fn made(&mut self, host: u32, number: u32, ours: Option<Announced>) {
        let Some(peer) = self.find(host, number, Stage::Making) else {
            self.actions.push_back(Action::Make(Make::ForgetSlots(host, number)));
            return;
        };
        peer.stage = if ours.is_some() { Stage::Announced } else { Stage::Without };
        if let Some(ours) = ours {
            self.actions.push_back(Action::Say(host, PeerMessage::Slots(ours)));
            self.connect(host);
        }
    }

    /// Connects the end with what the peer announced, if both are known.
    fn connect(&mut self, host: u32) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        if let (Stage::Announced, Some(theirs)) = (peer.stage, &peer.theirs) {
            let (number, theirs) = (peer.number, theirs.clone());
            peer.stage = Stage::Connecting;
            self.actions.push_back(Action::Make(Make::ConnectSlots(host, number, theirs)));
        }
    }

    /// A peer announces its slots.
    pub(super) fn heard(&mut self, now: Instant, host: u32, theirs: Announced) {
        if !self.peers.contains_key(&host) {
            self.begin(now, host);
        }
        let Some(peer) = self.peers.get_mut(&host) else { return };
        peer.theirs = Some(theirs);
        match peer.stage {
            Stage::Announced => self.connect(host),
            // Its former end is gone.
            Stage::Connecting | Stage::Connected => self.rest(host),
            Stage::Rests(_) | Stage::Making | Stage::Without => {}
        }
    }

    /// The end of this number is connected.
    pub(super) fn connected(&mut self, host: u32, number: u32) {
        let Some(peer) = self.find(host, number, Stage::Connecting) else { return };
        let Some(theirs) = &peer.theirs else { return };
        let number = theirs.number;
        peer.stage = Stage::Connected;
        self.actions.push_back(Action::Say(host, PeerMessage::SlotsReady { number }));
    }

    /// A peer has connected its end with that of this number.
    pub(super) fn heard_ready(&mut self, host: u32, number: u32) {
        if let Some(peer) = self.peers.get_mut(&host) {
            peer.connected = Some(number);
        }
    }

    /// The end of this number cannot be made, or has failed.
    pub(super) fn failed(&mut self, host: u32, number: u32) {
        let peer = self.peers.get_mut(&host).filter(|peer| peer.number == number);
        let rests = |peer: &mut Peer| matches!(peer.stage, Stage::Rests(_) | Stage::Without);
        if let Some(peer) = peer
            && !rests(peer)
        {
            // Its end is that of one that is gone.
            peer.theirs = None;
            self.rest(host);
        }
    }

    /// A host has no session any more, or another one.
    pub(super) fn forget(&mut self, host: u32) {
        if let Some(peer) = self.peers.remove(&host) {
            self.actions.push_back(Action::Make(Make::ForgetSlots(host, peer.number)));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    const HOSTS: [u32; 2] = [1, 2];

    fn announced(number: u32) -> Announced {
        Announced { number, endpoint: String::new(), rkey: number, addr: 0, bytes: 512 }
    }

    /// Two agents, what they say on its way, and which ends there are.
    struct Two {
        now: Instant,
        slots: [Slots; 2],
        said: [VecDeque<PeerMessage>; 2],
        ends: [BTreeMap<u32, Option<u32>>; 2],
    }

    impl Two {
        fn new() -> Self {
            let slots = [(); 2].map(|()| Slots::new(true));
            let (said, ends) = Default::default();
            Self { now: Instant::now(), slots, said, ends }
        }

        /// Lets an agent do what it has to do; returns whether it had.
        fn act(&mut self, at: usize) -> bool {
            self.slots[at].expire(self.now);
            let Some(action) = self.slots[at].next() else { return false };
            match action {
                Action::Say(host, message) => {
                    assert_eq!(host, HOSTS[1 - at]);
                    self.said[1 - at].push_back(message);
                }
                Action::Make(Make::OpenSlots(host, number)) => {
                    self.ends[at].insert(number, None);
                    self.slots[at].made(host, number, Some(announced(number)));
                }
                Action::Make(Make::ConnectSlots(host, number, theirs)) => {
                    *self.ends[at].get_mut(&number).unwrap() = Some(theirs.number);
                    self.slots[at].connected(host, number);
                }
                Action::Make(Make::ForgetSlots(_, number)) => drop(self.ends[at].remove(&number)),
                Action::Make(_) | Action::Tell(_) | Action::Refuse(..) => panic!("not of slots"),
            }
            true
        }

        fn hear(&mut self, at: usize) -> bool {
            match self.said[at].pop_front() {
                Some(PeerMessage::Slots(theirs)) => {
                    self.slots[at].heard(self.now, HOSTS[1 - at], theirs);
                }
                Some(PeerMessage::SlotsReady { number }) => {
                    self.slots[at].heard_ready(HOSTS[1 - at], number);
                }
                other => return other.is_some(),
            }
            true
        }

        /// Lets both go on until they have nothing to do, in an order of which each bit of `order` says a turn.
        fn settle(&mut self, mut order: u64) {
            loop {
                let first = (order & 1) as usize;
                order = order.rotate_right(1);
                let any = [first, 1 - first].into_iter().any(|at| self.act(at) || self.hear(at));
                if !any {
                    return;
                }
            }
        }

        fn end(&mut self, at: usize) -> Option<u32> {
            self.slots[at].end(self.now, HOSTS[1 - at])
        }

        /// Both write, each to what the other one has now.
        fn are_joined(&mut self) -> bool {
            let [Some(one), Some(two)] = [0, 1].map(|at| self.end(at)) else { return false };
            let ends = [&self.ends[0][&one], &self.ends[1][&two]];
            ends == [&Some(two), &Some(one)] && self.ends.iter().all(|ends| ends.len() == 1)
        }
    }

    #[test]
    fn both_write_once_both_are_connected_in_whatever_order() {
        for order in 0..256_u64 {
            let mut two = Two::new();
            assert_eq!(two.end((order & 1) as usize), None);
            two.settle(order.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert!(two.are_joined(), "order {order}: {:?}", two.ends);
        }
    }

    /// One that fails, or both, is replaced at both, and not at once: a peer that announces all the time keeps nobody
    /// busy.
    #[test]
    fn ends_that_fail_are_replaced_by_both_after_a_while() {
        for (order, who) in (0..256_u64).flat_map(|order| [(order, 1), (order, 2), (order, 3)]) {
            let mut two = Two::new();
            two.end(0);
            two.settle(order);
            let before = [0, 1].map(|at| two.end(at).unwrap());
            two.now += AGAIN / 2;
            for at in (0..2).filter(|at| who >> at & 1 == 1) {
                two.slots[at].failed(HOSTS[1 - at], before[at]);
                assert_eq!(two.end(at), None);
            }
            two.settle(order);
            assert!(!two.are_joined(), "nothing is made before its time");
            two.now += AGAIN;
            two.settle(order.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            two.now += 2 * AGAIN;
            two.settle(order);
            assert!(
                two.are_joined(),
                "order {order}, {who}: {:?} {:?}",
                two.ends,
                two.slots[0].peers
            );
            assert!([0, 1].iter().all(|at| two.end(*at) != Some(before[*at])));
        }
    }

    #[test]
    fn a_peer_that_announces_none_and_a_device_that_tells_nothing_are_never_written_to() {
        let (mut slots, now) = (Slots::new(true), Instant::now());
        assert_eq!(slots.end(now, 2), None);
        let Some(Action::Make(Make::OpenSlots(2, number))) = slots.next() else { panic!() };
        slots.made(2, number, Some(announced(number)));
        assert!(matches!(slots.next(), Some(Action::Say(2, PeerMessage::Slots(_)))));
        slots.heard_ready(2, number);
        assert_eq!((slots.end(now, 2), slots.due()), (None, None), "it did not say where");
        slots.forget(2);
        assert!(matches!(slots.next(), Some(Action::Make(Make::ForgetSlots(2, _)))));
        assert_eq!(slots.end(now, 2), None);
        let Some(Action::Make(Make::OpenSlots(2, number))) = slots.next() else { panic!() };
        slots.made(2, number, None);
        slots.heard(now, 2, announced(5));
        slots.failed(2, number);
        assert!(slots.next().is_none() && slots.due().is_none() && slots.end(now, 2).is_none());
        let mut slots = Slots::new(false);
        slots.heard(now, 2, announced(5));
        assert!(slots.end(now, 2).is_none() && slots.end(now, 3).is_none());
        assert!(slots.next().is_none() && slots.due().is_none(), "the policy wants none");
    }
}
