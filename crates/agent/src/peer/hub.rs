//! One host among others: `drum::Host`, what it needs to know of applications and peers, and its rates.
use super::alarm::Alarm;
use super::calls::Calls;
use super::capacity::{BYTES_PER_MOPS, Capacity};
use super::carried::Carrying;
use super::message::{Frame, Hello, PeerMessage};
use super::registry::Registry;
use super::roster::{QueuePair, Roster};
use super::session::Event;
use super::shares::Shares;
use super::slot_ends::SlotEnds;
use super::{Change, Make, Rate, Verdict, digest_of};
use crate::protocol::{Peer, Rounds};
use crate::services::Services;
use catchment_control::drum::{Application, Host, HostError, Input, Message as Round, Output};
use catchment_session::io::Address;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, WeakUnboundedSender};

/// Whom it tells.
pub(super) struct Tells {
    /// The engine.
    pub(super) tell: Box<dyn Fn(Verdict) + Send>,
    /// Who makes queue pairs.
    pub(super) make: Box<dyn Fn(Make) + Send>,
}

/// See the module.
pub(super) struct Hub {
    pub(super) host: Host,
    capacity: Capacity,
    pub(super) ours: Arc<Hello>,
    pub(super) registry: Arc<Registry>,
    pub(super) roster: Roster,
    pub(super) shares: Shares,
    pub(super) slots: SlotEnds,
    pub(super) carrying: Carrying,
    pub(super) calls: Calls,
    /// What applications here offer.
    pub(super) services: Arc<Services>,
    /// To itself, for answers of services here.
    pub(super) back: WeakUnboundedSender<Change>,
    /// When questions that were not answered are asked again.
    pub(super) asks_again: Option<Instant>,
    /// The engine's number of each application.
    pub(super) keys: BTreeMap<u32, u64>,
    /// What the host knows of each.
    joined: BTreeMap<u32, Application>,
    pub(super) tells: Tells,
    began: Instant,
    /// Applications that wait for the answer of a peer.
    waiting: BTreeSet<u32>,
    /// Peers without a session, and when what leads to them is lost.
    missing: BTreeMap<u32, Instant>,
    discovery: Option<Discovery>,
    /// Offered edges to applications that do not exist.
    refused_edges: u64,
}

/// Where to look for agents at whose devices queue pairs lead.
struct Discovery {
    port: u16,
    found: UnboundedSender<Address>,
    /// Where was looked.
    known: BTreeSet<IpAddr>,
}

/// Addresses at which agents are looked for, since applications name them.
const MOST_LOOKED_FOR: usize = 64;

impl Discovery {
    fn look(&mut self, at: IpAddr) {
        if self.known.len() < MOST_LOOKED_FOR && self.known.insert(at) {
            let _ = self.found.send(Address::from(SocketAddr::new(at, self.port)));
        }
    }
}

/// Returns for each application the first of those that send to the same hosts. What one of them leaves of its rate these
/// hosts have granted, whoever of them sends it.
fn first_of_each(joined: &BTreeMap<u32, Application>) -> BTreeMap<u32, u32> {
    let mut first: BTreeMap<BTreeSet<u32>, u32> = BTreeMap::new();
    let of = |(number, application): (&u32, &Application)| {
        let hosts = application.destinations.iter().map(|to| to.host).collect();
        (*number, *first.entry(hosts).or_insert(*number))
    };
    joined.iter().map(of).collect()
}

impl Hub {
    pub(super) fn new(
        (host, capacity): (Host, Capacity),
        ours: Arc<Hello>,
        registry: Arc<Registry>,
        tells: Tells,
        (shares, slots, carrying): (Shares, SlotEnds, Carrying),
        (services, back): (Arc<Services>, WeakUnboundedSender<Change>),
    ) -> Self {
        let roster = Roster::new(ours.host, ours.device.clone());
        Self {
            host,
            capacity,
            ours,
            registry,
            roster,
            shares,
            slots,
            carrying,
            calls: Calls::default(),
            services,
            back,
            asks_again: None,
            keys: BTreeMap::new(),
            joined: BTreeMap::new(),
            tells,
            began: Instant::now(),
            waiting: BTreeSet::new(),
            missing: BTreeMap::new(),
            discovery: None,
            refused_edges: 0,
        }
    }

    /// Looks for agents at this port where queue pairs lead to a device that is none of a known agent.
    pub(super) fn discover(&mut self, port: u16, found: UnboundedSender<Address>) {
        self.discovery = Some(Discovery { port, found, known: BTreeSet::new() });
    }

    /// Takes what applications and peers do, until the engine ends.
    pub(super) async fn run(
        mut self,
        alarm: Alarm,
        mut changes: UnboundedReceiver<Change>,
        mut events: Receiver<Event>,
    ) {
        loop {
            let due = self.drain();
            tokio::select! {
                biased;
                change = changes.recv() => {
                    let Some(change) = change else { return };
                    self.change(change);
                    // Those that came together are one change to the host.
                    while let Ok(change) = changes.try_recv() {
                        self.change(change);
                    }
                }
                event = events.recv() => {
                    let Some(event) = event else { return };
                    self.event(event);
                }
                () = alarm.wait_until(due) => {}
            }
            self.expire();
            self.act();
            self.join();
            self.handle(Input::Tick);
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn handle(&mut self, input: Input<'_>) {
        if !self.ours.rates {
            return;
        }
        self.take_carried();
        self.tell_host(input);
    }

    pub(super) fn tell_host(&mut self, input: Input<'_>) {
        let now = self.now_ns();
        if let Err(error) = self.host.handle(now, input) {
            self.note_error(&error);
        }
    }

    fn note_error(&self, error: &HostError) {
        tracing::error!(%error, host = self.ours.host, "an application takes no part in the rates");
    }

    /// Does what the host wants; returns when it wants something again.
    fn drain(&mut self) -> Instant {
        let due = loop {
            match self.host.poll(self.now_ns()) {
                Output::Rates => self.announce(),
                Output::Send { to, bytes } => {
                    self.send_round(to, bytes);
                    self.carry(to);
                }
                Output::Timeout(at) => break at,
            }
        };
        // Far enough, where the host waits for nothing.
        let due = self.began + Duration::from_nanos(due.min(u64::MAX >> 8));
        let others = self.missing.values().copied().chain(self.shares.due()).chain(self.asks_again);
        let others = others.chain(self.slots.due()).chain(self.calls.due());
        others.chain([due]).min().unwrap_or(due)
    }

    /// Returns what is known of other agents.
    fn peers(&self) -> Vec<Peer> {
        let (known, prices) =
            (self.roster.hosts().collect::<BTreeSet<_>>(), self.host.prices_told());
        let mut peers = self.registry.peers();
        for peer in &mut peers {
            let Some(host) = peer.host else { continue };
            peer.completing_price = prices.get(&host).copied();
            if known.contains(&host) {
                let counts = self.shares.counts(host);
                (peer.connections, peer.queue_pairs) = (counts.connections, counts.queue_pairs);
                peer.failed = counts.failed;
            }
        }
        peers
    }

    /// Returns how the rounds stand. Who asks pays: with many applications the certificate takes longer than a round.
    fn rounds(&self) -> Rounds {
        let (host, counts) = (&self.host, self.host.counts());
        let (sending_price, completing_price) = host.prices();
        let (send_bytes_per_s, working_bytes_per_s) = self.capacity.sending();
        let has_rates = self.ours.rates;
        Rounds {
            host: self.ours.host,
            epoch: self.ours.epoch,
            rounds: counts.rounds,
            lost: counts.lost,
            refused: counts.refused + self.refused_edges,
            fell_back: counts.fell_back,
            still: host.is_still(),
            residual: host.residual(),
            carried: self.carrying.count,
            carried_news: counts.carried,
            written: self.slots.written,
            sent: self.slots.sent,
            since_change: host.rounds_since_change(),
            sending_price,
            completing_price,
            gap: host.gap(),
            send_bytes_per_s: has_rates.then_some(send_bytes_per_s),
            working_bytes_per_s: has_rates.then_some(working_bytes_per_s),
        }
    }

    /// Puts the rates in force.
    fn announce(&self) {
        let first = first_of_each(&self.joined);
        let rates = self.host.rates().iter().filter_map(|(application, rate)| {
            let rate = if self.waiting.contains(application) { 0.0 } else { *rate };
            let key = |application: &u32| self.keys.get(application).copied();
            let (key, pool) = (key(application)?, key(first.get(application)?)?);
            Some(Rate { key, bytes_per_s: rate * BYTES_PER_MOPS, pool })
        });
        (self.tells.tell)(Verdict::Rates(rates.collect()));
    }

    /// Tells the host of applications that are others now.
    fn join(&mut self) {
        let mut is_news = false;
        for number in self.roster.take_changed() {
            is_news |= if self.roster.waits(number) {
                self.waiting.insert(number)
            } else {
                self.waiting.remove(&number)
            };
            let Some(application) = self.roster.application(number) else { continue };
            if self.joined.get(&number) != Some(&application) {
                self.joined.insert(number, application.clone());
                self.handle(Input::Join(application));
            }
        }
        if is_news {
            self.announce();
        }
    }

    fn change(&mut self, change: Change) {
        let number = |key: u64| u32::try_from(key).unwrap_or(u32::MAX);
        match change {
            Change::Join { key, weight } => {
                self.keys.insert(number(key), key);
                self.roster.add(number(key), weight);
            }
            Change::Leave { key } => {
                let application = number(key);
                self.keys.remove(&application);
                self.roster.remove(application);
                self.joined.remove(&application);
                self.waiting.remove(&application);
                self.handle(Input::Leave(application));
                let left = PeerMessage::Left { application };
                self.registry.send_all(&left.encode());
            }
            Change::Weight(key, weight) => self.roster.set_weight(number(key), weight),
            Change::Demand { key, bytes_per_s } => {
                let limit = bytes_per_s.map(|rate| rate / BYTES_PER_MOPS);
                self.roster.limit(number(key), limit);
            }
            Change::Working { bytes_per_s } => {
                self.capacity.work_at(bytes_per_s);
                let (send, completion) = self.capacity.shared_mops();
                self.handle(Input::Capacities { send, completion });
            }
            Change::AddQp { key, queue_pair, qpn } => {
                self.roster.add_queue_pair((number(key), queue_pair), qpn);
            }
            Change::RemoveQp { key, queue_pair } => {
                self.roster.remove_queue_pair((number(key), queue_pair));
            }
            Change::Connect { key, queue_pair, gid, qpn } => {
                let at = (number(key), queue_pair);
                let device = digest_of(gid);
                let is_known = self.roster.knows(&device);
                if let Some(host) = self.roster.connect(at, device, qpn) {
                    self.ask(host, vec![qpn]);
                } else if !is_known {
                    self.look_for(gid.ip());
                }
            }
            Change::Disconnect { key, queue_pair } => {
                self.roster.disconnect((number(key), queue_pair));
            }
            Change::Shared(news) => self.share(news),
            Change::Slots(news) => self.note_slots(news),
            Change::Call(calling) => self.call(*calling),
            Change::Answered { host, call, answer } => self.answer_call(host, call, answer),
            Change::Status(reply) => {
                let _ = reply.send((self.peers(), self.rounds()));
            }
        }
    }

    /// Looks for an agent at an address.
    pub(super) fn look_for(&mut self, at: IpAddr) {
        if let Some(discovery) = &mut self.discovery {
            discovery.look(at);
        }
    }

    fn ask(&self, host: u32, queue_pairs: Vec<u32>) {
        self.registry.send(host, PeerMessage::Where { queue_pairs }.encode());
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Opened(hello) => {
                self.missing.remove(&hello.host);
                self.slots.meet(hello.host, hello.epoch);
                let lost = self.roster.meet(hello.host, &hello.device);
                if !lost.is_empty() {
                    self.shares.forget(hello.host);
                }
                self.lose(&lost);
                self.shares.opened(hello.host);
                for queue_pairs in self.roster.questions(hello.host) {
                    self.ask(hello.host, queue_pairs);
                }
                self.call_opened(hello.host, &hello.device, &hello.name);
            }
            Event::Frame { host, frame: Frame::Message(message) } => self.heard(host, message),
            Event::Frame { host, frame: Frame::Round(round) } => self.take_round(host, round),
            Event::Written { host, number, bytes } => self.take_written(host, number, &bytes),
            Event::Closed { host, said_goodbye: true } => {
                self.calls.closed(host);
                self.slots.forget(host);
                self.handle(Input::Gone(host));
                self.lose_host(host);
            }
            Event::Closed { host, said_goodbye: false } => {
                let lease = Duration::from_millis(self.ours.lease_ms.into());
                self.calls.closed(host);
                self.shares.closed(host);
                self.slots.forget(host);
                self.missing.insert(host, Instant::now() + 2 * lease);
            }
        }
    }

    fn heard(&mut self, host: u32, message: PeerMessage) {
        match message {
            PeerMessage::Where { queue_pairs } => {
                let answer = |qpn: u32| (qpn, self.roster.owner(qpn));
                let queue_pairs = queue_pairs.into_iter().map(answer).collect();
                self.registry.send(host, PeerMessage::There { queue_pairs }.encode());
            }
            PeerMessage::There { queue_pairs } => {
                for (qpn, application) in queue_pairs {
                    self.roster.take_answer(host, qpn, application);
                }
            }
            PeerMessage::Left { application } => {
                self.roster.forget_application(host, application);
            }
            PeerMessage::Slots(theirs) => self.heard_slots(host, theirs),
            PeerMessage::Call { call, service, application, card } => {
                self.heard_call(host, call, (&service, application, card));
            }
            PeerMessage::Called { call, card, reason } => {
                self.calls.answered(host, call, card.ok_or(reason));
            }
            PeerMessage::SlotsReady { number } => self.slots.heard_ready(host, number),
            other @ (PeerMessage::Hello(_)
            | PeerMessage::Welcome(_)
            | PeerMessage::Refused { .. }
            | PeerMessage::Ping {}
            | PeerMessage::Goodbye {}
            | PeerMessage::Share { .. }
            | PeerMessage::Shared { .. }
            | PeerMessage::Apart { .. }
            | PeerMessage::Alone { .. }
            | PeerMessage::Key { .. }
            | PeerMessage::Region { .. }
            | PeerMessage::Revoke { .. }
            | PeerMessage::Revoked { .. }
            | PeerMessage::QueuePair { .. }
            | PeerMessage::Ready { .. }
            | PeerMessage::Lost { .. }) => self.heard_of_shared(host, other),
        }
    }

    /// Gives a message of a round to the host, without edges to applications that do not exist: nobody else's
    /// suffer from them.
    pub(super) fn take_round(&mut self, host: u32, round: Round) {
        let round = match round {
            Round::Offers(header, mut offers) => {
                let before = offers.len();
                offers.retain(|offer| self.roster.has(offer.to));
                let refused = before - offers.len();
                if refused > 0 {
                    tracing::debug!(host, refused, "offers to applications that do not exist");
                    self.refused_edges += refused as u64;
                }
                Round::Offers(header, offers)
            }
            answers @ Round::Answers(..) => answers,
        };
        self.handle(Input::Packet { from: host, bytes: &round.encode() });
    }

    /// Gives up hosts that had no session for two leases.
    fn expire(&mut self) {
        let now = Instant::now();
        self.calls.expire(now);
        let over = self.missing.iter().filter(|(_, until)| **until <= now);
        let over: Vec<u32> = over.map(|(host, _)| *host).collect();
        over.into_iter().for_each(|host| self.lose_host(host));
    }

    fn lose_host(&mut self, host: u32) {
        self.missing.remove(&host);
        self.shares.forget(host);
        let lost = self.roster.forget(host);
        self.lose(&lost);
    }

    /// Fails queue pairs that lead to a host that is gone: their requests end, rather than wait for ever.
    fn lose(&self, lost: &[QueuePair]) {
        let keys = lost.iter().filter_map(|(application, queue_pair)| {
            Some((*self.keys.get(application)?, *queue_pair))
        });
        for (key, queue_pair) in keys {
            (self.tells.tell)(Verdict::Fail(key, queue_pair));
        }
    }
}
