//! Many senders, one receiver and a bottleneck link: the effect of ECN marks and CNPs.
//!
//! ```text
//! sender 0 ──┐
//! sender 1 ──┤ switch ── receiver        the queue to the receiver marks and drops
//! sender n ──┘
//! ```
//! The switch marks packets when its queue is long, the receiver's queue pairs send CNPs, and the
//! senders' queue pairs slow down (DCQCN): the shipped code, on IP packets with ECN bits.
mod tests;

use crate::link::LinkCounters;
use crate::roce::{Host, HostConfig, Space, Station, Writer, address, connected};
use crate::{LinkConfig, LinkId, Loss, NodeId, Random, Simulation, Stop, Switch};
use catchment_roce::wire::PathMtu;
use catchment_roce::{Config, Counters, PacingConfig, Qp, Recovery, Service};
use std::ops::Range;
use std::time::Duration;

/// Bits per second of each link.
const RATE_BPS: u64 = 10_000_000_000;
/// One-way delay of one link, as in a rack.
const DELAY: Duration = Duration::from_micros(2);
/// Length of the switch's queue.
const QUEUE_BYTES: usize = 256 << 10;
/// Retransmission timeout of queue pairs in a rack: code 12.
const TIMEOUT: Duration = Duration::from_millis(17);
const PATH_MTU: PathMtu = PathMtu::Mtu1024;
/// Payload as a fraction of a packet at path MTU 1024: 80 bytes are headers and ICRC.
const PAYLOAD_SHARE: f64 = 1024.0 / (1024.0 + 80.0);

#[derive(Clone)]
struct Case {
    /// When each sender posts.
    senders: Vec<Range<Duration>>,
    recovery: Recovery,
    /// Queue length in bytes above which the switch marks.
    mark_above: Option<usize>,
    /// Whether senders react to CNPs.
    react_to_cnp: bool,
    /// Loss on the way to the receiver.
    loss: Loss,
    /// Loss on the return path from the receiver: CNPs and acknowledgements.
    loss_back: Loss,
    /// Rate of the link to the receiver.
    narrow_bps: u64,
    /// Its delay, each way.
    delay: Duration,
    /// Length of its queue.
    queue_bytes: usize,
    /// Timeout of the queue pairs.
    timeout: Duration,
}

impl Case {
    fn new(senders: usize) -> Self {
        Self {
            senders: vec![Duration::ZERO..Duration::MAX; senders],
            recovery: Recovery::SelectiveRepeat,
            mark_above: Some(QUEUE_BYTES / 10),
            react_to_cnp: true,
            loss: Loss::None,
            loss_back: Loss::None,
            narrow_bps: RATE_BPS,
            delay: DELAY,
            queue_bytes: QUEUE_BYTES,
            timeout: TIMEOUT,
        }
    }
}

struct Incast {
    simulation: Simulation<Station<Host<Writer>>>,
    senders: Vec<NodeId>,
    receiver: NodeId,
    bottleneck: LinkId,
    narrow_bps: u64,
}

/// The outcome of a span of time.
#[derive(Debug)]
struct Outcome {
    /// Goodput of each sender, as a fraction of the link's capacity.
    shares: Vec<f64>,
    marked: u64,
    queue_full: u64,
    cnps_sent: u64,
    cnps_received: u64,
    retransmitted: u64,
}

impl Outcome {
    fn goodput(&self) -> f64 {
        self.shares.iter().sum()
    }

    /// Returns Jain's fairness index: 1 when all get the same, 1/n when one gets everything.
    fn fairness(&self) -> f64 {
        let squares: f64 = self.shares.iter().map(|share| share * share).sum();
        self.goodput().powi(2) / (self.shares.len() as f64 * squares)
    }
}

impl Incast {
    fn new(case: &Case) -> Self {
        let mut simulation = Simulation::new(1);
        let mut random = Random::new(2);
        let mut memory = Space::default();
        let writers = case.senders.iter().map(|during| {
            let mut near = Space::default();
            let writer = Writer::new(&mut near, &mut memory, &mut random);
            (near, writer.during(during.clone()))
        });
        let writers: Vec<_> = writers.collect();
        let receiver_number = case.senders.len();
        let mut receiver = host(receiver_number, memory, Writer::idle());
        for number in 0..receiver_number {
            receiver.attach(queue_pair(case, receiver_number, number), address(number));
        }
        let receiver = simulation.add(Station::Host(Box::new(receiver)));
        let senders: Vec<_> = writers
            .into_iter()
            .enumerate()
            .map(|(number, (space, writer))| {
                let mut sender = host(number, space, writer);
                let qp = queue_pair(case, number, receiver_number);
                sender.attach(qp, address(receiver_number));
                simulation.add(Station::Host(Box::new(sender)))
            })
            .collect();
        let addresses = (0..=receiver_number).map(address).collect();
        let switch = simulation.add(Station::Switch(Switch::new(addresses)));
        let far = LinkConfig { delay: case.delay, ..link() };
        let back = LinkConfig { loss: case.loss_back.clone(), ..far.clone() };
        let narrow = LinkConfig {
            rate_bps: Some(case.narrow_bps),
            queue_bytes: Some(case.queue_bytes),
            mark_above: case.mark_above,
            loss: case.loss.clone(),
            ..far
        };
        for sender in &senders {
            simulation.connect(*sender, switch, link());
            simulation.connect(switch, *sender, link());
        }
        let bottleneck = simulation.connect(switch, receiver, narrow);
        simulation.connect(receiver, switch, back);
        for sender in &senders {
            simulation.call(*sender, |station, context| {
                if let Station::Host(host) = station {
                    host.pump(context);
                }
            });
        }
        Self { simulation, senders, receiver, bottleneck, narrow_bps: case.narrow_bps }
    }

    fn host(&self, id: NodeId) -> &Host<Writer> {
        match self.simulation.node(id) {
            Station::Host(host) => host,
            Station::Switch(_) => panic!("the switch is not a host"),
        }
    }

    /// Returns the outcome of a span of virtual time; everything before it is warm-up.
    fn observe(&mut self, span: Range<Duration>) -> Outcome {
        let before = self.totals(span.start);
        let after = self.totals(span.end);
        for sender in &self.senders {
            let (host, receiver) = (self.host(*sender), self.host(self.receiver));
            assert_eq!(host.program.broken, None);
            let wrong = host.program.wrong_byte(&host.space, &receiver.space);
            assert_eq!(wrong, None, "a wrong byte was written");
        }
        let possible =
            (span.end - span.start).as_secs_f64() * self.narrow_bps as f64 * PAYLOAD_SHARE;
        let bytes = after.received.iter().zip(&before.received);
        Outcome {
            shares: bytes.map(|(after, before)| (after - before) as f64 * 8.0 / possible).collect(),
            marked: after.bottleneck.marked - before.bottleneck.marked,
            queue_full: after.bottleneck.queue_full - before.bottleneck.queue_full,
            retransmitted: after.sent.retransmitted - before.sent.retransmitted,
            cnps_received: after.sent.cnps_received - before.sent.cnps_received,
            cnps_sent: after.cnps_sent - before.cnps_sent,
        }
    }

    /// Returns the counters at a time.
    fn totals(&mut self, at: Duration) -> Totals {
        let stop = self.simulation.run(at, |_| false);
        assert_ne!(stop, Stop::Livelock, "time stands still");
        let receiver = self.host(self.receiver);
        let mut sent = Counters::default();
        for sender in &self.senders {
            let counters = self.host(*sender).qps.get(0).counters();
            sent.retransmitted += counters.retransmitted;
            sent.cnps_received += counters.cnps_received;
        }
        let counters = || receiver.qps.iter().map(Qp::counters);
        Totals {
            received: counters().map(|counters| counters.bytes_received).collect(),
            cnps_sent: counters().map(|counters| counters.cnps_sent).sum(),
            bottleneck: self.simulation.link(self.bottleneck).counters,
            sent,
        }
    }
}

struct Totals {
    received: Vec<u64>,
    cnps_sent: u64,
    bottleneck: LinkCounters,
    sent: Counters,
}

fn link() -> LinkConfig {
    LinkConfig { rate_bps: Some(RATE_BPS), delay: DELAY, ..LinkConfig::default() }
}

fn host(number: usize, space: Space, writer: Writer) -> Host<Writer> {
    let config = HostConfig {
        address: address(number),
        poll_interval: Duration::ZERO,
        uplink_bytes: 16 << 10,
        ecn: true,
        dscp: 0,
    };
    Host::new(config, space, writer)
}

fn queue_pair(case: &Case, own: usize, peer: usize) -> Qp {
    let number = |own: usize, peer: usize| 0x100 + (own * 0x100 + peer) as u32;
    let usual = Config::new(number(own, peer), Service::Rc);
    let config = Config {
        pacing: PacingConfig {
            overhead_bytes: 40 + 8,
            react_to_cnp: case.react_to_cnp,
            line_rate_bps: RATE_BPS,
            ..usual.pacing
        },
        ..usual
    };
    connected(config, number(peer, own), case.recovery, PATH_MTU, case.timeout)
}
