//! Nodes, links between them, and the events that advance time.
use crate::{Arrival, Event, EventKind, Frame, Link, LinkConfig, Observer, Random};
use std::collections::BTreeMap;
use std::time::Duration;

/// An endpoint of links: a host or a switch.
///
/// After each call the simulation calls [`wake_at`](Self::wake_at) again.
pub(crate) trait Node {
    fn receive(&mut self, frame: Frame, context: &mut Context<'_>);

    /// Called at the time that [`wake_at`](Self::wake_at) returned.
    fn wake(&mut self, context: &mut Context<'_>);

    /// Returns when the node next wants to be woken; a time in the past means at once.
    fn wake_at(&self) -> Option<Duration>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No event is left.
    Idle,
    /// The time is up.
    TimeUp,
    /// The caller's condition holds.
    Done,
    /// Events continue without time advancing: a node keeps waking itself.
    Livelock,
}

/// More events than this at one time are a livelock.
const EVENTS_PER_MOMENT_MOST: u32 = 1_000_000;

pub(crate) struct Simulation<N> {
    nodes: Vec<Slot<N>>,
    wires: Vec<Wire>,
    /// Future events, by time and then in the order in which they were scheduled.
    agenda: BTreeMap<(Duration, u64), Action>,
    decided: u64,
    pub(crate) now: Duration,
    random: Random,
    observers: Vec<Box<dyn Observer>>,
    arrivals: Vec<Arrival>,
}

struct Slot<N> {
    node: N,
    /// Its outgoing links.
    egress: Vec<LinkId>,
    /// The key of its wake-up in the agenda.
    wake: Option<(Duration, u64)>,
}

struct Wire {
    link: Link,
    to: NodeId,
}

enum Action {
    Arrive { link: LinkId, frame: Frame },
    Wake(NodeId),
}

pub(crate) struct Context<'a> {
    pub(crate) now: Duration,
    egress: &'a [LinkId],
    wires: &'a mut [Wire],
    agenda: &'a mut BTreeMap<(Duration, u64), Action>,
    decided: &'a mut u64,
    observers: &'a mut [Box<dyn Observer>],
    arrivals: &'a mut Vec<Arrival>,
}

impl Context<'_> {
    /// Offers a frame to the outgoing link at `port` (numbered from 0 in the order of `connect`);
    /// drops it if there is none.
    pub(crate) fn send(&mut self, port: usize, frame: Frame) {
        let Some(&id) = self.egress.get(port) else { return };
        let before = (!self.observers.is_empty()).then(|| frame.clone());
        let fate = self.wires[id.0].link.offer(self.now, frame, self.arrivals);
        if let Some(frame) = before {
            notify(self.observers, self.now, EventKind::Offered(fate), &frame);
        }
        for Arrival { at, frame } in self.arrivals.drain(..) {
            let action = Action::Arrive { link: id, frame };
            *self.decided += 1;
            self.agenda.insert((at, *self.decided), action);
        }
    }

    /// Returns the bytes queued in the link at `port`, as a host knows of its own network card.
    pub(crate) fn backlog_bytes(&mut self, port: usize) -> usize {
        let now = self.now;
        let link = self.egress.get(port).map(|id| &mut self.wires[id.0].link);
        link.map_or(0, |link| link.backlog_bytes(now))
    }

    /// Returns when at most `bytes` are queued in the link at `port`.
    pub(crate) fn drained_to(&self, port: usize, bytes: usize) -> Duration {
        let link = self.egress.get(port).map(|id| &self.wires[id.0].link);
        link.map_or(Duration::ZERO, |link| link.drained_to(bytes))
    }
}

fn notify(observers: &mut [Box<dyn Observer>], at: Duration, kind: EventKind, frame: &Frame) {
    let event = Event { at, kind, frame };
    for observer in observers {
        observer.event(&event);
    }
}

impl<N: Node> Simulation<N> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            nodes: Vec::new(),
            wires: Vec::new(),
            agenda: BTreeMap::new(),
            decided: 0,
            now: Duration::ZERO,
            random: Random::new(seed),
            observers: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    /// Adds a node and schedules its first wake-up.
    pub(crate) fn add(&mut self, node: N) -> NodeId {
        let id = NodeId(self.nodes.len());
        self.nodes.push(Slot { node, egress: Vec::new(), wake: None });
        self.reschedule(id);
        id
    }

    /// Adds a link from one node to another. The first outgoing link of a node is its port 0.
    pub(crate) fn connect(&mut self, from: NodeId, to: NodeId, config: LinkConfig) -> LinkId {
        let id = LinkId(self.wires.len());
        self.wires.push(Wire { link: Link::new(config, self.random.fork()), to });
        self.nodes[from.0].egress.push(id);
        id
    }

    /// Adds an observer of all further events.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    pub(crate) fn node(&self, id: NodeId) -> &N {
        &self.nodes[id.0].node
    }

    /// Returns a node to change it from outside; [`call`](Self::call) it afterwards, so that its
    /// wake-up is rescheduled.
    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut N {
        &mut self.nodes[id.0].node
    }

    pub(crate) fn link(&self, id: LinkId) -> &Link {
        &self.wires[id.0].link
    }

    /// Returns a link to reconfigure it.
    pub(crate) fn link_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.wires[id.0].link
    }

    /// Calls `act` with a node, as for an event outside the network.
    pub(crate) fn call<R>(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut N, &mut Context<'_>) -> R,
    ) -> R {
        let slot = &mut self.nodes[id.0];
        let mut context = Context {
            now: self.now,
            egress: &slot.egress,
            wires: &mut self.wires,
            agenda: &mut self.agenda,
            decided: &mut self.decided,
            observers: &mut self.observers,
            arrivals: &mut self.arrivals,
        };
        let result = act(&mut slot.node, &mut context);
        self.reschedule(id);
        result
    }

    /// Runs until `until`, or until `done`, called after each event, returns true.
    pub(crate) fn run(&mut self, until: Duration, mut done: impl FnMut(&Self) -> bool) -> Stop {
        let mut events_of_moment = 0;
        loop {
            if done(self) {
                return Stop::Done;
            }
            let Some((&(at, _), _)) = self.agenda.first_key_value() else { return Stop::Idle };
            if at > until {
                self.now = self.now.max(until);
                return Stop::TimeUp;
            }
            events_of_moment = if at > self.now { 0 } else { events_of_moment + 1 };
            if events_of_moment > EVENTS_PER_MOMENT_MOST {
                return Stop::Livelock;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let Some(((at, _), action)) = self.agenda.pop_first() else { return };
        self.now = self.now.max(at);
        match action {
            Action::Arrive { link, frame } => {
                let now = self.now;
                notify(&mut self.observers, now, EventKind::Arrived, &frame);
                let to = self.wires[link.0].to;
                self.call(to, |node, context| node.receive(frame, context));
            }
            Action::Wake(id) => {
                self.nodes[id.0].wake = None;
                self.call(id, Node::wake);
            }
        }
    }

    /// Replaces the scheduled wake-up of a node by the one that it wants now.
    fn reschedule(&mut self, id: NodeId) {
        let slot = &mut self.nodes[id.0];
        let wanted = slot.node.wake_at().map(|at| at.max(self.now));
        if slot.wake.map(|(at, _)| at) == wanted {
            return;
        }
        if let Some(old) = slot.wake.take() {
            self.agenda.remove(&old);
        }
        if let Some(at) = wanted {
            self.decided += 1;
            slot.wake = Some((at, self.decided));
            self.agenda.insert((at, self.decided), Action::Wake(id));
        }
    }
}

#[cfg(test)]
mod tests;
