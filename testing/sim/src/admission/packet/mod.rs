//! Level `packet`: what sources send goes as packets of the shipped queue pairs over links that drop.
//!
//! ```text
//! source 0 ── NIC ──┐
//! source 1 ── NIC ──┤ switch ── bottleneck ── collector
//! source 11 ─ NIC ──┘
//! ```
//! Where there are several collectors, the bottleneck ends at a switch, from which each has a link of its own.
//!
//! A source has a queue pair, and posts a WRITE for each chunk: with a controller when the chunk begins, at the
//! granted rate; without one as soon as few are on their way. Messages of the controller go beside it, as at level
//! `chunk`. Capacities are payload: links carry the headers of the packets on top.
mod feeder;
mod tcp;
mod wires;

use crate::roce::{Host, HostConfig, Rights, Space, Station, address, connected};
use crate::{Node, NodeId, Random, Simulation, Stop};
use catchment_roce::wire::{DropReason, PathMtu};
use catchment_roce::{Config, Counters, PacingConfig, Qp, Recovery, Service};
use catchment_verbs::{Delivery, RateLimit};
use feeder::{CHUNK_BYTES, Chunk, Feeder, Notices};
use std::rc::Rc;
use std::time::Duration;
use wires::{Ends, Queueing, Wires};

pub(super) use feeder::Notice;

const PATH_MTU: PathMtu = PathMtu::Mtu4096;
/// IPv6 40, UDP 8, BTH 12, RETH 16 and ICRC 4 of each packet.
const HEADER_BYTES: u64 = 80;
/// IPv6 and UDP, which a queue pair does not see.
const BELOW_BYTES: u32 = 48;
/// Queue of the bottleneck: what it carries in half a millisecond.
const QUEUE_NS: u64 = 500_000;
/// Part of the queue above which marks are made, where they are.
const MARK_PARTS: usize = 10;
/// Transmit ring of a network card.
const UPLINK_BYTES: usize = 64 << 10;
/// Silence before a retransmission: code 12, 7 retries.
const TIMEOUT: Duration = Duration::from_millis(17);
/// DSCP of the urgent source's packets (EF): drops are counted by it, and a switch with priorities goes by it.
const URGENT_DSCP: u8 = 46;

/// How packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transport {
    pub(super) recovery: Recovery,
    /// The bottleneck marks, and sources react (DCQCN).
    pub(super) marks: bool,
    /// The bottleneck serves the urgent class first.
    pub(super) priority: bool,
}

/// Who says when packets leave, and how they go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carrier {
    /// Whether sources ask the controller; otherwise they send what they have.
    pub(super) controlled: bool,
    pub(super) protocol: Protocol,
}

/// What sources send by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    Roce(Transport),
    /// TCP with CUBIC.
    Tcp,
}

impl Carrier {
    /// Makes the network.
    pub(super) fn network(self, plan: &Plan) -> Box<dyn Carry> {
        match self.protocol {
            Protocol::Roce(transport) => Box::new(Network::new(plan, transport)),
            Protocol::Tcp => Box::new(tcp::Network::new(plan)),
        }
    }
}

/// What carries what sources send.
pub(super) trait Carry {
    /// Posts what a source sends of an event, at a rate of payload; without one as fast as it goes.
    fn post(&mut self, source: u32, event: usize, bytes: u64, rate_bps: Option<u64>);

    /// Goes on until this time, or until a source notices something.
    ///
    /// # Panics
    /// When time stands still.
    fn run(&mut self, until_ns: u64);

    fn now_ns(&self) -> u64;

    /// Takes what sources noticed.
    fn take_notices(&mut self) -> Vec<Notice>;

    /// Returns what packets came to.
    ///
    /// # Panics
    /// When the collector has a byte that nobody sent.
    fn finish(self: Box<Self>) -> Packets;
}

/// What packets came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packets {
    /// At the bottleneck: packets of the urgent source, then those of others.
    pub(super) dropped: [u64; 2],
    pub(super) sent: u64,
    /// Of these, those that the collector received; none where it is not counted.
    pub(super) received: u64,
    pub(super) resent: u64,
    /// NAKs that the collector sent for a gap in the sequence.
    pub(super) naks: u64,
    pub(super) failed: u64,
}

/// Sources, switches, and collectors.
pub(super) struct Network {
    simulation: Simulation<Station<Host<Feeder>>>,
    ends: Ends,
    wires: Wires,
    transport: Transport,
    plan: Plan,
    notices: Rc<Notices>,
    /// Queue pairs that took the place of one in error.
    replaced: u32,
    packets: Packets,
}

/// What a network is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) sources: u32,
    pub(super) nic_bps: u64,
    pub(super) capacity_bps: u64,
    /// Sources take turns in sending to them.
    pub(super) collectors: u32,
    /// Of each of several collectors.
    pub(super) collector_bps: u64,
    pub(super) rtt_ns: u64,
    /// The source with urgent events.
    pub(super) urgent: u32,
}

impl Plan {
    /// Returns the collector of a source, and the place of the source's queue pair there.
    const fn at_collector(&self, source: u32) -> (usize, usize) {
        ((source % self.collectors) as usize, (source / self.collectors) as usize)
    }

    /// Makes the plan of a source and a collector, all of whose links carry as much.
    #[cfg(test)]
    pub(super) const fn alone(bps: u64, rtt_ns: u64) -> Self {
        let (nic_bps, capacity_bps, collector_bps) = (bps, bps, bps);
        Self { sources: 1, nic_bps, capacity_bps, collectors: 1, collector_bps, rtt_ns, urgent: 0 }
    }

    /// Returns the number of a collector among all hosts.
    const fn number_of(&self, collector: usize) -> usize {
        self.sources as usize + collector
    }

    /// Returns the DSCP of a source's packets.
    fn dscp(&self, source: u32) -> u8 {
        if source == self.urgent { URGENT_DSCP } else { 0 }
    }
}

impl Network {
    pub(super) fn new(plan: &Plan, transport: Transport) -> Self {
        let mut simulation = Simulation::new(1);
        let mut random = Random::new(2);
        let notices = Rc::new(Notices::default());
        let mut memories: Vec<Space> = (0..plan.collectors).map(|_| Space::default()).collect();
        let mut hosts = Vec::new();
        for number in 0..plan.sources {
            let (collector, _) = plan.at_collector(number);
            let (mut space, memory) = (Space::default(), &mut memories[collector]);
            let feeder = Feeder::new(&mut space, memory, &mut random, (number, &notices));
            let dscp = plan.dscp(number);
            let mut host = Host::new(config(number as usize, transport, dscp), space, feeder);
            host.attach(
                queue_pair(plan.nic_bps, transport, [number, 0, 0]),
                address(plan.number_of(collector)),
            );
            hosts.push(host);
        }
        let collector = |(at, memory): (usize, Space)| {
            let config = config(plan.number_of(at), transport, 0);
            let mut host = Host::new(config, memory, Feeder::idle(&notices));
            for number in (0..plan.sources).filter(|number| plan.at_collector(*number).0 == at) {
                let qp = queue_pair(plan.nic_bps, transport, [number, 1, 0]);
                host.attach(qp, address(number as usize));
            }
            simulation.add(Station::Host(Box::new(host)))
        };
        let collectors = memories.into_iter().enumerate().map(collector).collect();
        let sources: Vec<NodeId> =
            hosts.into_iter().map(|host| simulation.add(Station::Host(Box::new(host)))).collect();
        let ends = Ends { sources, collectors };
        let queueing = Queueing { marks: transport.marks, priority: transport.priority };
        let wires = Wires::lay(&mut simulation, plan, &ends, queueing);
        Self {
            simulation,
            ends,
            wires,
            transport,
            plan: *plan,
            notices,
            replaced: 0,
            packets: Packets::default(),
        }
    }

    /// Lets the bottleneck carry so much payload from now on.
    pub(super) fn set_capacity(&mut self, capacity_bps: u64) {
        self.wires.set_capacity(&mut self.simulation, capacity_bps);
    }

    /// # Panics
    /// When the node is a switch.
    fn host(&self, node: NodeId) -> &Host<Feeder> {
        match self.simulation.node(node) {
            Station::Host(host) => host,
            Station::Switch(_) => panic!("{node:?} is a switch"),
        }
    }

    /// Returns what became of what a source has sent.
    pub(super) fn delivery(&self, source: u32) -> Delivery {
        self.host(self.ends.sources[source as usize]).qps.get(0).delivery()
    }

    /// Returns by how much less than its rate the queue pair of a source sends now, which has something to send.
    pub(super) fn behind_bps(&mut self, source: u32, now_ns: u64) -> u64 {
        let Station::Host(host) = self.simulation.node_mut(self.ends.sources[source as usize])
        else {
            return 0;
        };
        let qp = host.qps.get_mut(0);
        let set_bps = qp.config().pacing.rate_bps.filter(|_| qp.send_queue_len() > 0);
        set_bps.map_or(0, |set_bps| set_bps.saturating_sub(qp.rate_bps(now_ns).unwrap_or(set_bps)))
    }

    /// Returns the packets that sources have sent, those that they sent again, and how often they waited in vain.
    pub(super) fn sent(&self) -> (u64, u64, u64) {
        let counters = |source: &NodeId| -> Counters { *self.host(*source).qps.get(0).counters() };
        self.ends.sources.iter().map(counters).fold((0, 0, 0), |(sent, again, timeouts), of| {
            (sent + of.packets_sent, again + of.retransmitted, timeouts + of.timeouts)
        })
    }

    fn reconnect(&mut self, source: u32) {
        self.replaced += 1;
        let (transport, nic_bps, replaced) = (self.transport, self.plan.nic_bps, self.replaced);
        let (collector, place) = self.plan.at_collector(source);
        let mut packets = self.packets;
        let mut replace = |station: &mut Station<Host<Feeder>>, index: usize, end: u32| {
            let Station::Host(host) = station else { return };
            let fresh = queue_pair(nic_bps, transport, [source, end, replaced]);
            let old = host.qps.replace(index, fresh);
            if end == 0 { packets.count_source(&old) } else { packets.count_collector(&old) }
        };
        self.simulation
            .call(self.ends.collectors[collector], |station, _| replace(station, place, 1));
        self.simulation.call(self.ends.sources[source as usize], |station, context| {
            replace(station, 0, 0);
            if let Station::Host(host) = station {
                host.program.begin_anew();
                host.pump(context);
            }
        });
        self.packets = packets;
    }
}

impl Carry for Network {
    fn post(&mut self, source: u32, event: usize, bytes: u64, rate_bps: Option<u64>) {
        let mut left = bytes;
        self.simulation.call(self.ends.sources[source as usize], |station, context| {
            let Station::Host(host) = station else { return };
            while left > 0 {
                let bytes = left.min(CHUNK_BYTES);
                host.program.feed(Chunk { event, bytes }, rate_bps.is_some());
                left -= bytes;
            }
            if let Some(rate_bps) = rate_bps {
                host.qps.get_mut(0).set_rate(Some(RateLimit::new(on_wire(rate_bps))));
            }
            host.pump(context);
        });
    }

    fn run(&mut self, until_ns: u64) {
        run(&mut self.simulation, &self.notices, until_ns);
    }

    fn now_ns(&self) -> u64 {
        now_ns(&self.simulation)
    }

    /// Who has a queue pair in error gets another one.
    fn take_notices(&mut self) -> Vec<Notice> {
        let all = self.notices.take();
        for notice in &all {
            if let Notice::Failed { source } = notice {
                self.packets.failed += 1;
                self.reconnect(*source);
            }
        }
        all
    }

    fn finish(self: Box<Self>) -> Packets {
        let mut packets = self.packets;
        for (number, source) in (0..).zip(&self.ends.sources) {
            let (collector, place) = self.plan.at_collector(number);
            let collector = self.host(self.ends.collectors[collector]);
            let source = self.host(*source);
            let is_right = source.program.is_right(&source.space, &collector.space);
            assert!(is_right, "a wrong byte arrived");
            packets.count_source(source.qps.get(0));
            packets.count_collector(collector.qps.get(place));
        }
        // Those for a queue pair that was replaced come late, and no queue pair counts them.
        let late = |collector: &NodeId| -> u64 {
            let collector = self.host(*collector);
            DropReason::ALL.map(|reason| collector.dropped(reason)).iter().sum()
        };
        packets.received += self.ends.collectors.iter().map(late).sum::<u64>();
        packets.dropped = self.wires.dropped(&self.simulation);
        packets
    }
}

/// Lets a network go on until this time, or until a source notices something.
fn run<N: Node>(simulation: &mut Simulation<N>, notices: &Notices, until_ns: u64) {
    let until = Duration::from_nanos(until_ns);
    let stop = simulation.run(until, |_| notices.are_there());
    assert_ne!(stop, Stop::Livelock, "time stands still");
    if stop == Stop::Idle {
        simulation.now = simulation.now.max(until);
    }
}

fn now_ns<N: Node>(simulation: &Simulation<N>) -> u64 {
    u64::try_from(simulation.now.as_nanos()).unwrap_or(u64::MAX)
}

impl Packets {
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, dropped) in self.dropped.iter_mut().zip(other.dropped) {
            *sum += dropped;
        }
        self.sent += other.sent;
        self.received += other.received;
        self.naks += other.naks;
        self.resent += other.resent;
        self.failed += other.failed;
    }

    /// Returns the packets of both classes that were dropped.
    pub(super) fn dropped_in_all(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns the part of the packets that were sent again.
    pub(super) fn resent_fraction(&self) -> f64 {
        self.resent as f64 / self.sent.max(1) as f64
    }

    fn count_source(&mut self, qp: &Qp) {
        let counters = qp.counters();
        self.sent += counters.packets_sent;
        self.resent += counters.retransmitted;
    }

    fn count_collector(&mut self, qp: &Qp) {
        let counters = qp.counters();
        self.received += counters.packets_received;
        self.naks += counters.sequence_naks_sent;
    }

    /// Returns the packets that were sent and did not arrive, by the counts of both ends; `None` where these do not count.
    pub(super) fn missing(&self) -> Option<u64> {
        (self.received > 0).then(|| self.sent - self.received)
    }
}

/// Returns the rate of packets that carry payload at this one.
fn on_wire(payload_bps: u64) -> u64 {
    let mtu = PATH_MTU.bytes() as u64;
    (u128::from(payload_bps) * u128::from(mtu + HEADER_BYTES) / u128::from(mtu)) as u64
}

fn config(number: usize, transport: Transport, dscp: u8) -> HostConfig {
    HostConfig {
        address: address(number),
        poll_interval: Duration::ZERO,
        uplink_bytes: UPLINK_BYTES,
        ecn: transport.marks,
        dscp,
    }
}

/// Returns the queue pair of a source (end 0) or the one that the collector has for it (end 1), by how many were
/// replaced before.
fn queue_pair(nic_bps: u64, transport: Transport, [source, end, replaced]: [u32; 3]) -> Qp {
    let number = |end: u32| 0x100 + replaced * 0x100 + source * 2 + end;
    let usual = Config::new(number(end), Service::Rc);
    let config = Config {
        adaptive_timeout: transport.recovery == Recovery::SelectiveRepeat,
        pacing: PacingConfig {
            overhead_bytes: BELOW_BYTES,
            react_to_cnp: transport.marks,
            line_rate_bps: on_wire(nic_bps),
            ..usual.pacing
        },
        ..usual
    };
    connected(config, number(1 - end), transport.recovery, PATH_MTU, TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event whose WRITE fails after its retries is counted and given up, and the source goes on with the next one.
    #[test]
    fn s2_11_an_operation_that_fails_is_counted_and_the_next_event_is_sent() {
        let (bps, rtt_ns) = (1_000_000_000, 500_000);
        let plan = Plan { sources: 2, ..Plan::alone(bps, rtt_ns) };
        let transport = Transport { recovery: Recovery::GoBackN, marks: false, priority: false };
        let mut network = Box::new(Network::new(&plan, transport));
        network.wires.cut(&mut network.simulation);
        // What is on its way when the first event fails holds a part of the second one.
        for event in 0..2 {
            network.post(1, event, 3 * CHUNK_BYTES, None);
        }
        let end_ns = 5_000_000_000;
        let (mut failed_ns, mut there) = (None, [0; 2]);
        while there[1] < 3 * CHUNK_BYTES && network.now_ns() < end_ns {
            network.run(end_ns);
            for notice in network.take_notices() {
                match notice {
                    Notice::Begun { .. } => {}
                    Notice::Arrived { event, bytes } => there[event] += bytes,
                    Notice::Failed { source } => {
                        assert_eq!((source, failed_ns), (1, None));
                        failed_ns = Some(network.now_ns());
                        network.set_capacity(bps);
                    }
                }
            }
        }
        assert_eq!(there, [0, 3 * CHUNK_BYTES]);
        let silence = 8 * u64::try_from(TIMEOUT.as_nanos()).unwrap();
        assert!(failed_ns.is_some_and(|at_ns| at_ns >= silence), "7 retries: {failed_ns:?}");
        assert_eq!(network.finish().failed, 1);
    }
}
