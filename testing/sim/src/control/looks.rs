//! What must hold of a controller while it runs.
use super::check::Arrival;
use super::scenario::LEASE_NS;
use super::world::World;
use catchment_control::admission::SourceId;

impl World<'_> {
    /// What a source sends that goes on must be there before its controller grants anything.
    pub(super) fn look_at_going_on(&mut self, slot: usize, arrival: &Arrival) {
        self.summary.gone_on += 1;
        let controller = self.sources[slot].as_ref().and_then(|node| node.controller);
        let Some(node) = controller.map(|at| &self.controllers[at]) else { return };
        let quiet_until_ns = node.clock.true_ns(node.side.quiet_until_ns());
        if arrival.until_ns > quiet_until_ns {
            self.faults.push(format!("{arrival:?} goes on, and grants begin at {quiet_until_ns}"));
        }
    }

    /// Two leases after a process died nothing may be granted to it any more.
    pub(super) fn look_for_dead(&mut self, process: u32) {
        let node = &self.controllers[self.leader];
        let frozen = node.frozen_until_ns + 3 * LEASE_NS > self.now_ns && node.frozen_until_ns > 0;
        let granted_bps = node.side.granted_bps(SourceId(process));
        if node.alive && !frozen && granted_bps > 0 {
            self.faults.push(format!("process {process} is dead and has {granted_bps} bit/s"));
        }
    }
}
