//! The links between sources and collectors, whatever goes over them.
use super::{MARK_PARTS, Plan, QUEUE_NS, on_wire};
use crate::roce::{Station, address};
use crate::{LinkConfig, LinkId, Node, NodeId, Simulation, Switch};
use std::net::Ipv6Addr;
use std::ops::Range;
use std::time::Duration;

/// Sources by number, and collectors, whose numbers are the next ones.
pub(super) struct Ends {
    pub(super) sources: Vec<NodeId>,
    pub(super) collectors: Vec<NodeId>,
}

/// What the bottleneck does with what waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queueing {
    pub(super) marks: bool,
    /// The urgent class goes first.
    pub(super) priority: bool,
}

/// The switch, and the link behind it that all share.
pub(super) struct Wires {
    switch: NodeId,
    bottleneck: LinkId,
    narrow: LinkConfig,
    /// Behind that, those of several collectors.
    last: Vec<LinkId>,
}

/// Returns what a link's queue holds.
const fn queue_bytes(capacity_bps: u64) -> usize {
    (capacity_bps / 8 * QUEUE_NS / 1_000_000_000) as usize
}

fn addresses(numbers: Range<usize>) -> Vec<Ipv6Addr> {
    numbers.map(address).collect()
}

impl Wires {
    /// Connects the ends.
    pub(super) fn lay<H: Node>(
        simulation: &mut Simulation<Station<H>>,
        plan: &Plan,
        ends: &Ends,
        queueing: Queueing,
    ) -> Self {
        let Ends { sources, collectors } = ends;
        let several = collectors.len() > 1;
        let queue_bytes = queue_bytes(plan.capacity_bps);
        let switch = Switch::new(addresses(0..sources.len())).with_uplink();
        let switch = if queueing.priority {
            switch.with_priority(sources.len(), queue_bytes)
        } else {
            switch
        };
        let switch = simulation.add(Station::Switch(switch));
        // Half of the way on each side of the switch.
        let delay = Duration::from_nanos(plan.rtt_ns / 4);
        let nic =
            LinkConfig { rate_bps: Some(on_wire(plan.nic_bps)), delay, ..LinkConfig::default() };
        for source in sources {
            simulation.connect(*source, switch, nic.clone());
            simulation.connect(switch, *source, nic.clone());
        }
        let delay = if several { delay / 2 } else { delay };
        let back = LinkConfig { rate_bps: Some(on_wire(plan.capacity_bps)), delay, ..nic };
        let narrow = LinkConfig {
            queue_bytes: (!queueing.priority).then_some(queue_bytes),
            mark_above: queueing.marks.then_some(queue_bytes / MARK_PARTS),
            ..back.clone()
        };
        let (beyond, last) = if several {
            Self::lay_last(simulation, plan, ends, &back)
        } else {
            (collectors[0], Vec::new())
        };
        let bottleneck = simulation.connect(switch, beyond, narrow.clone());
        simulation.connect(beyond, switch, back);
        Self { switch, bottleneck, narrow, last }
    }

    /// Connects several collectors to a switch of their own, and returns that and the links to them.
    fn lay_last<H: Node>(
        simulation: &mut Simulation<Station<H>>,
        plan: &Plan,
        Ends { sources, collectors }: &Ends,
        back: &LinkConfig,
    ) -> (NodeId, Vec<LinkId>) {
        let numbers = sources.len()..sources.len() + collectors.len();
        let switch = Switch::new(addresses(numbers)).with_uplink();
        let switch = simulation.add(Station::Switch(switch));
        let back = LinkConfig { rate_bps: Some(on_wire(plan.collector_bps)), ..back.clone() };
        let last =
            LinkConfig { queue_bytes: Some(queue_bytes(plan.collector_bps)), ..back.clone() };
        let connect = |collector: &NodeId| {
            simulation.connect(*collector, switch, back.clone());
            simulation.connect(switch, *collector, last.clone())
        };
        let last = collectors.iter().map(connect).collect();
        (switch, last)
    }

    /// Lets the bottleneck carry so much payload from now on.
    pub(super) fn set_capacity<H: Node>(
        &mut self,
        simulation: &mut Simulation<Station<H>>,
        capacity_bps: u64,
    ) {
        self.narrow.rate_bps = Some(on_wire(capacity_bps));
        simulation.link_mut(self.bottleneck).reconfigure(self.narrow.clone());
    }

    /// Lets the bottleneck lose all that it sends, until its capacity is set.
    #[cfg(test)]
    pub(super) fn cut<H: Node>(&self, simulation: &mut Simulation<Station<H>>) {
        let loss = crate::Loss::Random(crate::Chance::ALWAYS);
        let narrow = LinkConfig { loss, ..self.narrow.clone() };
        simulation.link_mut(self.bottleneck).reconfigure(narrow);
    }

    /// Returns the packets that found a queue full: those of the urgent source, then those of others.
    pub(super) fn dropped<H: Node>(&self, simulation: &Simulation<Station<H>>) -> [u64; 2] {
        let [urgent, others] = match simulation.node(self.switch) {
            Station::Switch(switch) => switch.dropped(),
            Station::Host(_) => [0; 2],
        };
        let links = std::iter::once(&self.bottleneck).chain(&self.last);
        links.map(|link| simulation.link(*link).counters).fold([urgent, others], |sum, link| {
            let urgent = link.queue_full_urgent;
            [sum[0] + urgent, sum[1] + link.queue_full - urgent]
        })
    }
}
