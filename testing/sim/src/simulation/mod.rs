//! Nodes, links between them, and the events that move time.
use crate::{Arrival, Event, EventKind, Frame, Link, LinkConfig, Observer, Random};
use std::collections::BTreeMap;
use std::time::Duration;

/// Something with links: a host, a switch, a station.
///
/// After each call the simulation asks [`wake_at`](Self::wake_at) anew.
pub(crate) trait Node {
    fn receive(&mut self, frame: Frame, context: &mut Context<'_>);

    /// The time that [`wake_at`](Self::wake_at) named has come.
    fn wake(&mut self, context: &mut Context<'_>);

    /// When the node next wants to do something by itself; a time in the past means at once.
    fn wake_at(&self) -> Option<Duration>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nothing is left to happen, ever.
    Idle,
    /// The time is up.
    TimeUp,
    /// The caller's condition holds.
    Done,
    /// Events go on and on without time moving: a node wakes itself for nothing.
    Livelock,
}

/// So many events at one moment are no work any more but a node that turns in a circle.
const EVENTS_PER_MOMENT_MOST: u32 = 1_000_000;

pub(crate) struct Simulation<N> {
    nodes: Vec<Slot<N>>,
    wires: Vec<Wire>,
    /// What will happen, by time and then by the order in which it was decided.
    agenda: BTreeMap<(Duration, u64), Action>,
    decided: u64,
    pub(crate) now: Duration,
    random: Random,
    observers: Vec<Box<dyn Observer>>,
    arrivals: Vec<Arrival>,
}

struct Slot<N> {
    node: N,
    /// The links that leave it.
    egress: Vec<LinkId>,
    /// Where in the agenda its wake-up is.
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
    /// Offers a frame to the link that leaves at `port` (links count from 0 as they were made);
    /// where there is none, the frame is gone.
    pub(crate) fn send(&mut self, port: usize, frame: Frame) {
        let Some(&id) = self.egress.get(port) else { return };
        let before = (!self.observers.is_empty()).then(|| frame.clone());
        let fate = self.wires[id.0].link.offer(self.now, frame, self.arrivals);
        if let Some(frame) = before {
            tell(self.observers, self.now, EventKind::Offered(fate), &frame);
        }
        for Arrival { at, frame } in self.arrivals.drain(..) {
            let action = Action::Arrive { link: id, frame };
            *self.decided += 1;
            self.agenda.insert((at, *self.decided), action);
        }
    }

    /// Bytes that wait in the link at `port`, as a host knows of its own network card.
    pub(crate) fn backlog_bytes(&mut self, port: usize) -> usize {
        let now = self.now;
        let link = self.egress.get(port).map(|id| &mut self.wires[id.0].link);
        link.map_or(0, |link| link.backlog_bytes(now))
    }

    /// When no more than `bytes` wait in the link at `port`.
    pub(crate) fn drained_to(&self, port: usize, bytes: usize) -> Duration {
        let link = self.egress.get(port).map(|id| &self.wires[id.0].link);
        link.map_or(Duration::ZERO, |link| link.drained_to(bytes))
    }
}

fn tell(observers: &mut [Box<dyn Observer>], at: Duration, kind: EventKind, frame: &Frame) {
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

    /// Adds a node; it is asked for its first wake-up at once.
    pub(crate) fn add(&mut self, node: N) -> NodeId {
        let id = NodeId(self.nodes.len());
        self.nodes.push(Slot { node, egress: Vec::new(), wake: None });
        self.reschedule(id);
        id
    }

    /// Adds a link from one node to another. The first that leaves a node is its port 0.
    pub(crate) fn connect(&mut self, from: NodeId, to: NodeId, config: LinkConfig) -> LinkId {
        let id = LinkId(self.wires.len());
        self.wires.push(Wire { link: Link::new(config, self.random.fork()), to });
        self.nodes[from.0].egress.push(id);
        id
    }

    /// From now on `observer` is told what happens.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    pub(crate) fn node(&self, id: NodeId) -> &N {
        &self.nodes[id.0].node
    }

    /// A node, to change it from outside; [`call`](Self::call) it afterwards, so that it is asked when
    /// it wants to wake.
    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut N {
        &mut self.nodes[id.0].node
    }

    pub(crate) fn link(&self, id: LinkId) -> &Link {
        &self.wires[id.0].link
    }

    /// A link, to change what it is like.
    pub(crate) fn link_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.wires[id.0].link
    }

    /// Calls `act` with a node, as if something outside the network had happened to it.
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

    /// Lets things happen until `until`, or until `done` says so, which is asked after each event.
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
                tell(&mut self.observers, now, EventKind::Arrived, &frame);
                let to = self.wires[link.0].to;
                self.call(to, |node, context| node.receive(frame, context));
            }
            Action::Wake(id) => {
                self.nodes[id.0].wake = None;
                self.call(id, Node::wake);
            }
        }
    }

    /// Puts the wake-up that a node wants into the agenda, in place of the one before.
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
