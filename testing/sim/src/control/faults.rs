//! What goes wrong, and how processes find each other again.
use super::nodes::{self, Cut, Message};
use super::scenario::{Fault, LEASE_NS, MS, clock};
use super::world::{What, World};
use catchment_control::admission::SourceId;
use catchment_control::admission::controller_side::Input;
use catchment_control::admission::source_side::{Fallback, GoOn};
use std::time::Duration;

impl World<'_> {
    pub(super) fn strike(&mut self, fault: Fault) {
        let now_ns = self.now_ns;
        match fault {
            Fault::KillSource { source, down_ns } => {
                if let Some(dead) = self.sources[source].take() {
                    // A round trip, guards and what is granted ahead come on top.
                    let slack_ns = 60 * MS + 8 * self.scenario.spread_ns;
                    self.plan(now_ns + 2 * LEASE_NS + slack_ns, What::Buried(dead.process));
                    self.plan(now_ns + 4 * LEASE_NS, What::Buried(dead.process));
                    self.plan(now_ns + down_ns, What::StartSource(source));
                }
            }
            Fault::FreezeSource { source, lasts_ns } => {
                if let Some(node) = &mut self.sources[source] {
                    node.frozen_until_ns = node.frozen_until_ns.max(now_ns + lasts_ns);
                }
            }
            Fault::Cut { source: slot, up, down, lasts_ns } => {
                self.cuts.push(Cut { slot, up, down, until_ns: now_ns + lasts_ns });
            }
            Fault::KillController { down_ns } => {
                self.controllers[self.leader].alive = false;
                self.plan(now_ns + down_ns, What::StartController);
            }
            Fault::HandOver { down_ns } => {
                let leader = &mut self.controllers[self.leader];
                if leader.frozen_until_ns <= now_ns {
                    leader.side.handle(leader.clock.local_ns(now_ns), Input::GiveUp);
                    self.drain_controller(self.leader);
                }
                // Whatever it has heard of its sources by then.
                let said_ns = now_ns + self.random.below(25 * MS);
                self.plan(said_ns, What::GivesUp(self.leader, down_ns));
            }
            Fault::FreezeController { lasts_ns } => {
                self.controllers[self.leader].frozen_until_ns = now_ns + lasts_ns;
            }
            Fault::Supersede { down_ns } => {
                // It runs again when all sources have found the other one.
                self.controllers[self.leader].frozen_until_ns = now_ns + down_ns + 1_500 * MS;
                self.plan(now_ns + down_ns, What::StartController);
            }
        }
    }

    /// A controller ends that was to hand over, and says what is left of its grants; one that does not run says nothing.
    pub(super) fn give_up(&mut self, at: usize, down_ns: u64) {
        let now_ns = self.now_ns;
        let leader = &mut self.controllers[at];
        if at != self.leader || !leader.alive {
            return;
        }
        leader.alive = false;
        if leader.frozen_until_ns <= now_ns {
            leader.side.handle(leader.clock.local_ns(now_ns), Input::Timeout);
            self.left_ns = leader.side.left_ns();
        }
        self.summary.handed_over += u64::from(self.left_ns.is_some());
        self.plan(now_ns + down_ns, What::StartController);
    }

    pub(super) fn start_source(&mut self, slot: usize) {
        if self.sources[slot].is_some() {
            return;
        }
        self.processes += 1;
        let (clock, process) = (clock(&mut self.random), self.processes);
        let node = nodes::source(self.scenario, clock, self.now_ns, process);
        self.sources[slot] = Some(node);
        self.ask_for_session(slot, process);
    }

    pub(super) fn start_controller(&mut self) {
        let before = self.leader;
        let term = self.controllers[before].term + 1;
        let clock = clock(&mut self.random);
        let left_ns = self.left_ns.take();
        let node = nodes::controller(self.scenario, clock, self.now_ns, term, left_ns);
        self.controllers.push(node);
        self.leader = self.controllers.len() - 1;
        self.drain_controller(self.leader);
        if !self.controllers[before].alive && self.random.below(2) == 0 {
            // It has the same address, and nobody notices: sources hear that they are not known.
            let mut nodes = self.sources.iter_mut().flatten();
            nodes.by_ref().for_each(|node| node.controller = Some(self.leader));
            return;
        }
        // Sessions with the other one are broken, as sources notice after a while.
        let processes: Vec<(usize, u32)> = (0..self.sources.len())
            .filter_map(|slot| Some((slot, self.sources[slot].as_ref()?.process)))
            .collect();
        for (slot, process) in processes {
            let after_ns = self.random.below(300 * MS);
            self.plan(self.now_ns + after_ns, What::Session(slot, process));
        }
    }

    pub(super) fn ask_for_session(&mut self, slot: usize, process: u32) {
        let Some(node) = &mut self.sources[slot] else { return };
        if !std::mem::replace(&mut node.registering, true) {
            let after_ns = self.random.between(MS, 30 * MS);
            self.plan(self.now_ns + after_ns, What::Session(slot, process));
        }
    }

    /// A session with the controller that leads; tried again while there is none.
    pub(super) fn session(&mut self, slot: usize, process: u32) {
        let is = |node: &&mut nodes::SourceNode| node.process == process;
        let Some(source) = self.sources[slot].as_mut().filter(is) else { return };
        source.registering = true;
        let leader = &mut self.controllers[self.leader];
        let away = !leader.alive || leader.frozen_until_ns > self.now_ns;
        if away || source.frozen_until_ns > self.now_ns {
            let again_ns = self.now_ns + 40 * MS;
            return self.plan(again_ns, What::Session(slot, process));
        }
        let mut root = [0; 32];
        self.random.fill(&mut root);
        let local_ns = leader.clock.local_ns(self.now_ns);
        let [up_ns, down_ns] = self.scenario.sources[slot].way_ns;
        leader.side.handle(
            local_ns,
            Input::Register {
                source: SourceId(process),
                root,
                round_trip_ns: up_ns + down_ns,
                devices: nodes::specs(self.scenario, slot),
            },
        );
        let safe_ns = leader.side.safe_ns(SourceId(process));
        // It is told from when the source said so.
        let said_ns = source.clock.local_ns(self.now_ns.saturating_sub(up_ns));
        let until_ns = safe_ns.map(|safe_ns| said_ns + safe_ns);
        let controller = self.leader;
        self.drain_controller(controller);
        let there_ns = self.now_ns + down_ns + self.random.below(5 * MS);
        self.plan(there_ns, What::Registered(slot, process, (controller, until_ns), root));
    }

    pub(super) fn registered(
        &mut self,
        slot: usize,
        process: u32,
        (controller, until_ns): (usize, Option<u64>),
        root: [u8; 32],
    ) {
        let term = self.controllers[controller].term;
        let [up_ns, down_ns] = self.scenario.sources[slot].way_ns;
        let Some(node) = &mut self.sources[slot] else { return };
        if node.process == process {
            node.registering = false;
            // The answer of one that has ended since may come after that of the next.
            if node.controller.is_none_or(|before| self.controllers[before].term <= term) {
                node.controller = Some(controller);
            }
            let round_trip_ns = up_ns + down_ns;
            let go_on = match self.scenario.fallback {
                Fallback::Safe { rate_bps } => until_ns.map(|until_ns| GoOn { rate_bps, until_ns }),
                Fallback::Stop | Fallback::Free => None,
            };
            let source = process;
            let message = Message::Registered { source, term, root, round_trip_ns, go_on };
            self.hand(slot, Some(process), message);
        }
    }

    fn is_cut(&self, slot: usize, up: bool) -> bool {
        let cuts = self.cuts.iter().filter(|cut| cut.slot == slot && cut.until_ns > self.now_ns);
        cuts.into_iter().any(|cut| if up { cut.up } else { cut.down })
    }

    pub(super) fn post_up(&mut self, slot: usize, controller: usize, bytes: Vec<u8>) {
        let way_ns = self.scenario.sources[slot].way_ns[0];
        let lost = self.is_cut(slot, true);
        self.post(lost, way_ns, &What::ToController(controller, slot, bytes));
    }

    pub(super) fn post_down(&mut self, slot: usize, bytes: Vec<u8>) {
        let way_ns = self.scenario.sources[slot].way_ns[1];
        let lost = self.is_cut(slot, false);
        self.post(lost, way_ns, &What::ToSource(slot, bytes));
    }

    /// Lets a datagram arrive never, once or twice, in time or late.
    fn post(&mut self, cut: bool, way_ns: u64, what: &What) {
        self.summary.datagrams += 1;
        let copies = 1 + u32::from(self.random.happens(self.scenario.doubled));
        for _ in 0..copies {
            let mut after_ns = way_ns + self.random.below(self.scenario.spread_ns + 1);
            if self.random.happens(self.scenario.late) {
                let late = self.random.time_up_to(Duration::from_millis(60));
                after_ns += u64::try_from(late.as_nanos()).unwrap_or(0);
            }
            if cut || self.random.happens(self.scenario.loss) {
                self.summary.lost += 1;
            } else {
                self.plan(self.now_ns + after_ns, what.clone());
            }
        }
    }
}
