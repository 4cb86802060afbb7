//! The links between sources and a collector, whatever goes over them.
use super::{MARK_PARTS, Plan, QUEUE_NS, on_wire};
use crate::roce::{Station, address};
use crate::{LinkConfig, LinkId, Node, NodeId, Simulation, Switch};
use std::time::Duration;

/// Sources by number, and the collector, whose number is the next one.
pub(super) struct Ends {
    pub(super) sources: Vec<NodeId>,
    pub(super) collector: NodeId,
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
}

impl Wires {
    /// Connects the ends.
    pub(super) fn lay<H: Node>(
        simulation: &mut Simulation<Station<H>>,
        plan: &Plan,
        ends: &Ends,
        queueing: Queueing,
    ) -> Self {
        let queue_bytes = (plan.capacity_bps / 8 * QUEUE_NS / 1_000_000_000) as usize;
        let Ends { sources, collector } = ends;
        let switch = Switch::new((0..=sources.len()).map(address).collect());
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
        let back = LinkConfig { rate_bps: Some(on_wire(plan.capacity_bps)), ..nic };
        let narrow = LinkConfig {
            queue_bytes: (!queueing.priority).then_some(queue_bytes),
            mark_above: queueing.marks.then_some(queue_bytes / MARK_PARTS),
            ..back.clone()
        };
        let bottleneck = simulation.connect(switch, *collector, narrow.clone());
        simulation.connect(*collector, switch, back);
        Self { switch, bottleneck, narrow }
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

    /// Returns the packets that found its queue full: those of the urgent source, then those of others.
    pub(super) fn dropped<H: Node>(&self, simulation: &Simulation<Station<H>>) -> [u64; 2] {
        let [urgent, others] = match simulation.node(self.switch) {
            Station::Switch(switch) => switch.dropped(),
            Station::Host(_) => [0; 2],
        };
        let link = simulation.link(self.bottleneck).counters;
        let link_urgent = link.queue_full_urgent;
        [urgent + link_urgent, others + link.queue_full - link_urgent]
    }
}
