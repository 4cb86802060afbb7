//! Processes, what passes between them, and the true time.
use super::check::{self, Arrival, Fault};
use super::nodes::{self, ControllerNode, Cut, Fate, Message, SourceNode};
use super::scenario::{MS, RateWish, Scenario, clock};
use crate::Random;
use catchment_control::admission::LinkId;
use catchment_control::admission::controller_side::{self, Output as Told};
use catchment_control::admission::source_side::{self, Leave, LocalId, Output};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

/// After the horizon everything must be over within this time, and what it takes on the slowest link.
const PATIENCE_NS: u64 = 40_000 * MS;
/// A run has fewer steps.
const STEPS_MOST: u64 = 20_000_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Strike(usize),
    StartSource(usize),
    StartController,
    /// A controller that hands over says what is left of its grants and ends; another one begins so much later.
    GivesUp(usize, u64),
    /// A wish of a slot.
    Wish(usize, usize),
    /// A wish for a rate.
    Rate(usize, usize),
    /// Bytes to the controller of this index, from a slot.
    ToController(usize, usize, Vec<u8>),
    /// Bytes to a slot.
    ToSource(usize, Vec<u8>),
    Sent(usize, u32, Numbers),
    WakeSource(usize, u64),
    WakeController(usize, u64),
    /// The session of a process with whatever controller is there.
    Session(usize, u32),
    /// The controller has it; now the source does, and how long that one grants nothing.
    Registered(usize, u32, (usize, Option<u64>), [u8; 32]),
    /// Nothing of a dead process may be granted any more.
    Buried(u32),
}

/// A transfer of a slot.
pub(super) type Numbers = (u32, u64);

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, derive_more::AddAssign)]
pub(crate) struct Summary {
    pub(crate) runs: u64,
    pub(crate) transfers: u64,
    /// Wishes that went with one that waited.
    pub(crate) joined: u64,
    pub(crate) missed: u64,
    pub(crate) dropped: u64,
    /// Of these, those that had begun.
    pub(crate) finished: u64,
    pub(crate) datagrams: u64,
    pub(crate) lost: u64,
    pub(crate) chunks: u64,
    pub(crate) alone: u64,
    /// Of these, those of sources that had registered with a controller that granted nothing yet.
    pub(crate) gone_on: u64,
    pub(crate) at_rates: u64,
    pub(crate) old_term: u64,
    /// Controllers that said what was left of their grants.
    pub(crate) handed_over: u64,
    pub(crate) hints: u64,
    pub(crate) faults: u64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} runs, {} faults, {} transfers", self.runs, self.faults, self.transfers)?;
        write!(f, " and {} that went with one", self.joined)?;
        write!(f, " ({} told that they are late, {} dropped", self.missed, self.dropped)?;
        write!(f, ", {} of them in the middle and finished)", self.finished)?;
        write!(f, "; {} datagrams, {} lost, {} hints", self.datagrams, self.lost, self.hints)?;
        write!(f, ", {} of an old term, {} handed over", self.old_term, self.handed_over)?;
        write!(f, "; {} chunks, {} of them without a controller", self.chunks, self.alone)?;
        write!(f, " or with one that granted nothing yet ({})", self.gone_on)?;
        write!(f, ", {} at rates of devices", self.at_rates)
    }
}

pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) random: Random,
    pub(super) now_ns: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, What)>>,
    count: u64,
    pub(super) sources: Vec<Option<SourceNode>>,
    pub(super) controllers: Vec<ControllerNode>,
    pub(super) leader: usize,
    pub(super) processes: u32,
    pub(super) cuts: Vec<Cut>,
    /// What the controller that gave up last said is left of its grants.
    pub(super) left_ns: Option<u64>,
    arrivals: Vec<Arrival>,
    /// Of these sources that go on at their safe rates beside a controller that grants nothing yet.
    gone_on: Vec<Arrival>,
    pub(super) faults: Vec<String>,
    /// Of everything that passed.
    hash: u64,
    pub(super) summary: Summary,
}

/// Runs a scenario; returns what it did and the hash of all that passed.
pub(super) fn run(scenario: &Scenario) -> Result<(Summary, u64), Fault> {
    let mut random = Random::new(scenario.seed);
    let first = nodes::controller(scenario, clock(&mut random), 0, 1, None);
    let mut world = World {
        scenario,
        random,
        now_ns: 0,
        agenda: BinaryHeap::new(),
        count: 0,
        sources: scenario.sources.iter().map(|_| None).collect(),
        controllers: vec![first],
        leader: 0,
        processes: 0,
        cuts: Vec::new(),
        left_ns: None,
        arrivals: Vec::new(),
        gone_on: Vec::new(),
        faults: Vec::new(),
        hash: 0xcbf2_9ce4_8422_2325,
        summary: Summary { runs: 1, faults: scenario.faults.len() as u64, ..Summary::default() },
    };
    for slot in 0..scenario.sources.len() {
        world.plan(0, What::StartSource(slot));
        for (at, wish) in scenario.sources[slot].wishes.iter().enumerate() {
            world.plan(wish.at_ns, What::Wish(slot, at));
        }
        for (at, wish) in scenario.sources[slot].rates.iter().enumerate() {
            world.plan(wish.at_ns, What::Rate(slot, at));
        }
    }
    for (at, (at_ns, _)) in scenario.faults.iter().enumerate() {
        world.plan(*at_ns, What::Strike(at));
    }
    world.go()?;
    check::links(scenario, &world.arrivals)?;
    check::links(scenario, &world.gone_on)?;
    Ok((world.summary, world.hash))
}

impl World<'_> {
    pub(super) fn plan(&mut self, at_ns: u64, what: What) {
        self.count += 1;
        self.agenda.push(Reverse((at_ns, self.count, what)));
    }

    fn go(&mut self) -> Result<(), Fault> {
        let mut looked_ns = 0;
        while let Some(Reverse((at_ns, _, what))) = self.agenda.pop() {
            self.now_ns = at_ns;
            self.happen(what);
            if let Some(fault) = self.faults.pop() {
                return Err(Fault(fault));
            }
            if self.count > STEPS_MOST {
                return Err(Fault(format!("too many steps at {at_ns}: {}", self.rest())));
            }
            if at_ns > self.scenario.horizon_ns + 2_000 * MS && at_ns > looked_ns + 100 * MS {
                looked_ns = at_ns;
                if self.is_over() {
                    return self.finish();
                }
                if at_ns > self.scenario.horizon_ns + PATIENCE_NS + self.scenario.slowest_ns() {
                    return Err(Fault(format!("not over: {}", self.rest())));
                }
            }
        }
        Err(Fault("nothing happens any more".to_owned()))
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Strike(at) => self.strike(self.scenario.faults[at].1),
            What::StartSource(slot) => self.start_source(slot),
            What::StartController => self.start_controller(),
            What::GivesUp(at, down_ns) => self.give_up(at, down_ns),
            What::Wish(slot, at) => self.wish(slot, at),
            What::Rate(slot, at) => {
                let RateWish { device, bytes, period_ns, .. } =
                    self.scenario.sources[slot].rates[at];
                self.hand(slot, None, Message::Periodic { device, bytes, period_ns });
            }
            What::ToController(controller, slot, bytes) => {
                self.mix(&bytes);
                if self.controllers[controller].alive {
                    self.controllers[controller].inbox.push_back((slot, bytes));
                    self.run_controller(controller);
                }
            }
            What::ToSource(slot, bytes) => {
                self.mix(&bytes);
                self.hand(slot, None, Message::Datagram(bytes));
            }
            What::Sent(slot, process, (device, number)) => {
                self.hand(slot, Some(process), Message::Sent { device, number });
            }
            What::WakeSource(slot, wake) => {
                let due = |node: &&mut SourceNode| node.wake == wake;
                if let Some(node) = self.sources[slot].as_mut().filter(due) {
                    node.wake_ns = None;
                    self.run_source(slot);
                }
            }
            What::WakeController(at, wake) => {
                if self.controllers[at].wake == wake {
                    self.controllers[at].wake_ns = None;
                    self.run_controller(at);
                }
            }
            What::Session(slot, process) => self.session(slot, process),
            What::Registered(slot, process, controller, root) => {
                self.registered(slot, process, controller, root);
            }
            What::Buried(process) => self.look_for_dead(process),
        }
    }

    fn mix(&mut self, bytes: &[u8]) {
        let stamp = self.now_ns.to_be_bytes();
        for byte in stamp.iter().chain(bytes) {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    pub(super) fn hand(&mut self, slot: usize, process: Option<u32>, message: Message) {
        let Some(node) = &mut self.sources[slot] else { return };
        if process.is_none_or(|process| process == node.process) {
            node.inbox.push_back(message);
            self.run_source(slot);
        }
    }

    /// Lets a source do all that is due, unless it is frozen.
    pub(super) fn run_source(&mut self, slot: usize) {
        let now_ns = self.now_ns;
        loop {
            let Some(node) = &mut self.sources[slot] else { return };
            if node.frozen_until_ns > now_ns {
                let then_ns = node.frozen_until_ns;
                return self.wake_source(slot, then_ns);
            }
            let message = node.inbox.pop_front();
            let last = message.is_none();
            let local_ns = node.clock.local_ns(now_ns);
            node.side.handle(local_ns, input(message.as_ref()));
            self.drain_source(slot);
            if last {
                return;
            }
        }
    }

    pub(super) fn wake_source(&mut self, slot: usize, at_ns: u64) {
        let Some(node) = &mut self.sources[slot] else { return };
        if node.wake_ns.is_some_and(|wake_ns| wake_ns <= at_ns) {
            return;
        }
        node.wake += 1;
        node.wake_ns = Some(at_ns);
        let wake = node.wake;
        self.plan(at_ns, What::WakeSource(slot, wake));
    }

    fn drain_source(&mut self, slot: usize) {
        loop {
            let Some(node) = &mut self.sources[slot] else { return };
            match node.side.poll() {
                Output::Transmit(bytes) => {
                    let bytes = bytes.to_vec();
                    if let Some(controller) = node.controller {
                        self.post_up(slot, controller, bytes);
                    }
                }
                Output::Send { id, bytes, rate_bps, leave, .. } => {
                    self.send(slot, id, bytes, rate_bps, leave);
                }
                Output::Missed { id, dropped, .. } => {
                    self.summary.missed += 1;
                    if let Some(fate) = node.fates.get_mut(&(id.device, id.number)) {
                        fate.missed = true;
                    }
                    if dropped {
                        self.take_drop(slot, id);
                    }
                }
                Output::Refused { id, reason } => {
                    let fault = format!("process {}: {id:?} refused: {reason:?}", node.process);
                    self.faults.push(fault);
                }
                Output::Register => {
                    let process = node.process;
                    self.ask_for_session(slot, process);
                }
                Output::Timeout(due_ns) => {
                    if let Some(due_ns) = due_ns {
                        let at_ns = node.clock.true_ns(due_ns).max(self.now_ns);
                        self.wake_source(slot, at_ns);
                    }
                    return;
                }
            }
        }
    }

    /// A chunk leaves, at the rate of the source's own clock.
    fn send(&mut self, slot: usize, id: LocalId, bytes: u64, rate_bps: u64, leave: Leave) {
        let way_ns = self.scenario.sources[slot].way_ns[0];
        let path = self.scenario.sources[slot].devices[id.device as usize].0;
        let Some(node) = &mut self.sources[slot] else { return };
        // What goes at the rate of a device goes one after the other.
        let line = if leave == Leave::Rate { u64::MAX } else { id.number };
        let line_ns = node.line_ns.entry((id.device, line)).or_insert(0);
        let from_ns = self.now_ns.max(*line_ns);
        let takes_ns = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(rate_bps));
        let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
        let until_ns = node.clock.true_ns(node.clock.local_ns(from_ns) + takes_ns);
        *line_ns = until_ns;
        let sender = (node.process, id.device, line);
        let process = node.process;
        let key = (id.device, id.number);
        let over = node.fates.get_mut(&key).is_none_or(|fate| {
            fate.sent += bytes;
            fate.sent > fate.bytes || fate.over
        });
        if over {
            self.faults.push(format!("{sender:?} sends more than it asked for, or was dropped"));
        }
        self.summary.chunks += 1;
        self.summary.alone += u64::from(leave == Leave::Fallback);
        self.summary.at_rates += u64::from(leave == Leave::Rate);
        let goes_on = leave == Leave::Fallback && !node.side.is_alone();
        let (from_ns, late_ns) = (from_ns + way_ns, until_ns + way_ns + self.scenario.spread_ns);
        let arrival = Arrival { sender, path, from_ns, until_ns: late_ns, rate_bps };
        if leave != Leave::Fallback {
            self.arrivals.push(arrival);
        } else if goes_on {
            self.gone_on.push(arrival);
            self.look_at_going_on(slot, &arrival);
        }
        self.plan(until_ns, What::Sent(slot, process, key));
    }

    /// Lets a controller do all that is due, unless it is dead or frozen.
    pub(super) fn run_controller(&mut self, at: usize) {
        let now_ns = self.now_ns;
        loop {
            let node = &mut self.controllers[at];
            if !node.alive {
                return;
            }
            if node.frozen_until_ns > now_ns {
                return self.wake_controller(at, self.controllers[at].frozen_until_ns);
            }
            let message = node.inbox.pop_front();
            let last = message.is_none();
            let input =
                message.as_ref().map_or(controller_side::Input::Timeout, |(slot, bytes)| {
                    controller_side::Input::Datagram { from: address(*slot), bytes }
                });
            node.side.handle(node.clock.local_ns(now_ns), input);
            self.drain_controller(at);
            if last {
                return;
            }
        }
    }

    fn wake_controller(&mut self, at: usize, at_ns: u64) {
        let node = &mut self.controllers[at];
        if node.wake_ns.is_some_and(|wake_ns| wake_ns <= at_ns) {
            return;
        }
        node.wake += 1;
        node.wake_ns = Some(at_ns);
        let wake = node.wake;
        self.plan(at_ns, What::WakeController(at, wake));
    }

    pub(super) fn drain_controller(&mut self, at: usize) {
        loop {
            let node = &mut self.controllers[at];
            match node.side.poll() {
                Told::Transmit { to, bytes } => {
                    let bytes = bytes.to_vec();
                    self.post_down(usize::from(to.port()) - 1, bytes);
                }
                Told::Refused { source, device, reason } => {
                    self.faults.push(format!("{source:?} device {device} refused: {reason:?}"));
                }
                Told::Forgotten { .. } | Told::Superseded { .. } | Told::Working { .. } => {}
                Told::Timeout(due_ns) => {
                    if let Some(due_ns) = due_ns {
                        let at_ns = node.clock.true_ns(due_ns).max(self.now_ns);
                        self.wake_controller(at, at_ns);
                    }
                    return;
                }
            }
        }
    }

    /// Returns whether all that was asked for by living processes is over, at both ends.
    fn is_over(&self) -> bool {
        let over = |node: &SourceNode| {
            node.side.transfers() == 0
                && node.fates.values().all(|fate| fate.over || fate.sent == fate.bytes)
        };
        let controller = &self.controllers[self.leader];
        self.sources.iter().all(|node| node.as_ref().is_some_and(over))
            && controller.side.controller().transfers() == 0
            && self.links().all(|link| controller.side.controller().periodic_bps(link) == Some(0))
    }

    fn links(&self) -> impl Iterator<Item = LinkId> {
        (0..self.scenario.links_bps.len()).map(|link| LinkId(link as u16))
    }

    fn rest(&self) -> String {
        let nodes = self.sources.iter().flatten();
        let rest = nodes.map(|node| {
            let left = |(id, fate): (&Numbers, &Fate)| {
                (!fate.over && fate.sent < fate.bytes).then_some((*id, fate.bytes - fate.sent))
            };
            let left: Vec<_> = node.fates.iter().filter_map(left).collect();
            format!("process {}: {} known, left {left:?}; ", node.process, node.side.transfers())
        });
        let known = self.controllers[self.leader].side.controller().transfers();
        format!("{}the controller knows {known}", rest.collect::<String>())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        for node in self.sources.iter().flatten() {
            self.summary.old_term += node.side.counts().old_term;
            self.summary.hints += node.side.counts().hints;
        }
        for link in self.links() {
            let side = &self.controllers[self.leader].side;
            let load_bps = side.controller().load_bps(link);
            if load_bps != Some(0) {
                return Err(Fault(format!("{link:?} has {load_bps:?} bit/s at the end")));
            }
        }
        Ok(())
    }
}

/// Returns the address of a slot.
fn address(slot: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], u16::try_from(slot + 1).unwrap_or(u16::MAX)))
}

fn input(message: Option<&Message>) -> source_side::Input<'_> {
    let id = |device, number| LocalId { device, number };
    match message {
        None => source_side::Input::Timeout,
        Some(Message::Datagram(bytes)) => source_side::Input::Datagram(bytes),
        Some(Message::Sent { device, number }) => {
            source_side::Input::Sent { id: id(*device, *number) }
        }
        Some(Message::Registered { source, term, root, round_trip_ns, go_on }) => {
            source_side::Input::Registered {
                go_on: *go_on,
                source: *source,
                term: *term,
                root: *root,
                round_trip_ns: *round_trip_ns,
            }
        }
        Some(Message::Periodic { device, bytes, period_ns }) => {
            source_side::Input::Periodic { device: *device, bytes: *bytes, period_ns: *period_ns }
        }
        Some(Message::Ask { device, number, bytes, age_ns, class }) => source_side::Input::Ask {
            id: id(*device, *number),
            bytes: *bytes,
            ahead_bytes: 0,
            age_ns: *age_ns,
            class: *class,
        },
        Some(Message::Join { device, number, bytes }) => {
            source_side::Input::Join { id: id(*device, *number), bytes: *bytes }
        }
        Some(Message::Finish { device, number, bytes, age_ns, class }) => {
            source_side::Input::Finish {
                id: id(*device, *number),
                bytes: *bytes,
                age_ns: *age_ns,
                class: *class,
            }
        }
    }
}
