//! Two hosts with a queue pair each, on a cable where a test may drop any packet.
//!
//! A [`Pair`] advances time until nothing is left to happen. Each packet passes the middle of the
//! cable, where it is logged and the caller decides whether to drop it. An [`End`] can also run
//! alone: packets in by [`End::deliver`], packets out by [`End::transmit`].
use super::host::{self, Host, HostConfig, Program, QpTable};
use super::packet::open;
use super::{Rights, Space};
use crate::{Chance, Context, Delay, Frame, LinkConfig, Node, NodeId, Random, Simulation, Stop};
use catchment_roce::wire::{Headers, Opcode};
use catchment_roce::{
    Arrival, Completion, Input, Payload, Qp, RecvWr, SendOp, SendWr, Sge, TransmitBatch, WcStatus,
};
use std::net::Ipv6Addr;
use std::ops::{Index, IndexMut};
use std::time::Duration;

/// An end of a pair; also the direction towards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first one.
    A,
    /// The second one.
    B,
}

impl Side {
    fn address(self) -> Ipv6Addr {
        host::address(self as usize)
    }

    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Configuration of both directions of a cable.
#[derive(Debug, Clone, Copy)]
pub struct Cable {
    /// From the last bit sent until the queue pair gets the packet.
    pub latency: Duration,
    /// Bits per second; `None` is unlimited. The queue is unlimited.
    pub rate_bps: Option<u64>,
    /// Every packet arrives a second time, at most this much later.
    pub twin: Option<Duration>,
}

/// A packet that reached the middle of the cable, dropped there or not.
#[derive(Debug, Clone, Copy)]
pub struct Logged {
    /// Its destination.
    pub to: Side,
    /// When, in nanoseconds of virtual time.
    pub at_ns: u64,
    /// Its transport headers.
    pub headers: Headers,
}

/// Frames that arrive within this time are one batch, as those sent together.
const BATCH: Duration = Duration::from_nanos(1);

/// One queue pair and one region to which the peer has all rights, at [`Space::FIRST_ADDR`] under
/// [`Space::FIRST_KEY`].
pub struct End {
    host: Host<Completions>,
}

/// A program that posts nothing and keeps what completes.
#[derive(Default)]
struct Completions(Vec<Completion>);

impl Program for Completions {
    fn completed(&mut self, _: Duration, _: usize, completion: Completion, _: &mut Space) {
        self.0.push(completion);
    }

    fn act(&mut self, _: Duration, _: &mut QpTable, _: &mut Space) {}

    fn wake_at(&self) -> Option<Duration> {
        None
    }
}

impl End {
    /// Creates the end `side`, with a region of zeros.
    pub fn new(side: Side, qp: Qp, region_bytes: usize) -> Self {
        let mut space = Space::default();
        space.register(vec![0; region_bytes], Rights::ALL);
        let config = HostConfig {
            address: side.address(),
            poll_interval: BATCH,
            uplink_bytes: usize::MAX,
            ecn: false,
            dscp: 0,
        };
        let mut host = Host::new(config, space, Completions::default());
        host.attach(qp, side.other().address());
        Self { host }
    }

    /// Returns its queue pair.
    pub fn qp(&self) -> &Qp {
        self.host.qps.get(0)
    }

    /// Returns its queue pair.
    pub fn qp_mut(&mut self) -> &mut Qp {
        self.host.qps.get_mut(0)
    }

    /// Returns its memory.
    pub fn space(&mut self) -> &mut Space {
        &mut self.host.space
    }

    /// Returns whether its peer has any right to the region with this key.
    pub fn is_remote(&self, key: u32) -> bool {
        self.host.space.region(key).is_some_and(super::Region::is_remote)
    }

    /// Returns the content of its region.
    ///
    /// # Panics
    /// Never: the region is registered at construction.
    pub fn bytes(&self) -> &[u8] {
        &self.host.space.region(Space::FIRST_KEY).expect("registered").bytes
    }

    /// Fills its region with bytes that depend on `seed`.
    pub fn fill(&mut self, seed: u32) {
        let mut content = vec![0; self.bytes().len()];
        Random::new(seed.into()).fill(&mut content);
        self.put(0, &content);
    }

    /// Overwrites bytes of its region.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        let region = self.host.space.region_mut(Space::FIRST_KEY).expect("registered");
        region.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Posts a send request.
    ///
    /// # Panics
    /// When the queue pair refuses it.
    pub fn post(&mut self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let posted = self.qp_mut().post_send(&SendWr::new(wr_id, op, Payload::Sges(sges)));
        posted.expect("the queue pair takes the request");
    }

    /// Posts a receive.
    ///
    /// # Panics
    /// When the queue pair refuses it.
    pub fn receive(&mut self, wr_id: u64, sges: &[Sge]) {
        self.qp_mut().post_recv(&RecvWr { wr_id, sges }).expect("the queue pair takes the receive");
    }

    /// Returns what completed while the pair ran.
    pub fn completions(&self) -> &[Completion] {
        &self.host.program.0
    }

    /// Returns the `wr_id`s in order of completion.
    ///
    /// # Panics
    /// When a request failed.
    pub fn succeeded(&self) -> Vec<u64> {
        self.completions()
            .iter()
            .inspect(|done| assert!(done.result.is_ok(), "{done:?}"))
            .map(|done| done.wr_id)
            .collect()
    }

    /// Returns the `wr_id`s in order of completion, each with its error.
    pub fn statuses(&self) -> Vec<(u64, Option<WcStatus>)> {
        let all = self.completions().iter();
        all.map(|completion| (completion.wr_id, completion.result.err())).collect()
    }

    /// Passes an input to its queue pair.
    pub fn handle(&mut self, now_ns: u64, input: Input<'_>) {
        let Host { qps, space, .. } = &mut self.host;
        qps.get_mut(0).handle(now_ns, input, space);
    }

    /// Hands its queue pair a packet as if the peer had sent it.
    pub fn deliver(&mut self, now_ns: u64, headers: &Headers, payload: &[u8]) {
        self.handle(now_ns, Input::Packet(Arrival::new(headers, payload)));
    }

    /// Fills `batch` with what its queue pair sends now, and returns the transport bytes of each
    /// packet.
    pub fn transmit(&mut self, now_ns: u64, batch: &mut TransmitBatch) -> Vec<Vec<u8>> {
        batch.clear();
        let Host { qps, space, .. } = &mut self.host;
        let count = qps.get_mut(0).poll_transmit(now_ns, space, batch);
        let packets: Vec<_> =
            batch.packets().iter().map(|packet| host::transport(batch, packet, space)).collect();
        assert_eq!(packets.len(), count);
        packets
    }
}

/// A node of the simulation of two ends.
enum Station {
    End(Box<End>),
    /// The middle of the cable, with the frames that have reached it.
    Middle(Vec<Frame>),
}

impl Node for Station {
    fn receive(&mut self, frame: Frame, context: &mut Context<'_>) {
        match self {
            Self::End(end) => end.host.receive(frame, context),
            Self::Middle(frames) => frames.push(frame),
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        if let Self::End(end) = self {
            end.host.wake(context);
        }
    }

    fn wake_at(&self) -> Option<Duration> {
        match self {
            Self::End(end) => end.host.wake_at(),
            Self::Middle(_) => None,
        }
    }
}

/// Two ends and their cable.
pub struct Pair {
    simulation: Simulation<Station>,
    ends: [NodeId; 2],
    middle: NodeId,
    /// The packets so far.
    pub log: Vec<Logged>,
}

impl Pair {
    /// Connects two ends: that of [`Side::A`] first.
    pub fn new(ends: [End; 2], cable: &Cable) -> Self {
        let mut simulation = Simulation::new(1);
        let ends = ends.map(|end| simulation.add(Station::End(Box::new(end))));
        let middle = simulation.add(Station::Middle(Vec::new()));
        let half = LinkConfig { rate_bps: cable.rate_bps, ..LinkConfig::default() };
        for end in ends {
            simulation.connect(end, middle, half.clone());
        }
        let chance = Chance::of(if cable.twin.is_some() { 1.0 } else { 0.0 });
        let half = LinkConfig {
            delay: cable.latency.saturating_sub(BATCH),
            duplicate: Delay { chance, most: cable.twin.unwrap_or_default() },
            ..LinkConfig::default()
        };
        for end in ends {
            simulation.connect(middle, end, half.clone());
        }
        Self { simulation, ends, middle, log: Vec::new() }
    }

    /// Returns the virtual time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        host::nanos(self.simulation.now)
    }

    /// Runs without loss until nothing is left to happen.
    pub fn run(&mut self) {
        self.run_losing(|_, _| false);
    }

    /// Runs until nothing is left to happen, or for a virtual minute, and drops the packets for
    /// which
    /// `lose` returns true.
    pub fn run_losing(&mut self, lose: impl FnMut(Side, &Headers) -> bool) {
        self.run_for(Duration::from_secs(60), lose);
    }

    /// As [`Pair::run_losing`], for this time at most.
    ///
    /// # Panics
    /// When an end spins without time advancing.
    pub fn run_for(&mut self, limit: Duration, mut lose: impl FnMut(Side, &Headers) -> bool) {
        let until = self.simulation.now + limit;
        for end in self.ends {
            self.simulation.call(end, |station, context| match station {
                Station::End(end) => end.host.pump(context),
                Station::Middle(_) => {}
            });
        }
        let middle = self.middle;
        let arrived = |simulation: &Simulation<Station>| matches!(simulation.node(middle), Station::Middle(frames) if !frames.is_empty());
        loop {
            match self.simulation.run(until, arrived) {
                Stop::Done => self.forward(&mut lose),
                Stop::Idle | Stop::TimeUp => return,
                Stop::Livelock => panic!("an end spins at {} ns", self.now_ns()),
            }
        }
    }

    /// Forwards the packets in the middle that are not dropped.
    fn forward(&mut self, lose: &mut impl FnMut(Side, &Headers) -> bool) {
        let (at_ns, log) = (self.now_ns(), &mut self.log);
        self.simulation.call(self.middle, |station, context| {
            let Station::Middle(frames) = station else { return };
            for frame in frames.drain(..) {
                let (to, headers) = read(&frame);
                log.push(Logged { to, at_ns, headers });
                if !lose(to, &headers) {
                    context.send(to as usize, frame);
                }
            }
        });
    }

    /// Returns the packets that went to `to`.
    pub fn sent(&self, to: Side) -> impl DoubleEndedIterator<Item = &Logged> {
        self.log.iter().filter(move |logged| logged.to == to)
    }

    /// Returns the opcodes of the packets that went to `to`.
    pub fn opcodes(&self, to: Side) -> Vec<Opcode> {
        self.sent(to).map(|logged| logged.headers.bth.opcode).collect()
    }
}

/// Returns the destination of a frame and its transport headers.
fn read(frame: &Frame) -> (Side, Headers) {
    let read = |to: Side| open(frame, to.address()).ok().map(|(_, packet)| (to, packet.headers));
    [Side::A, Side::B].into_iter().find_map(read).expect("sealed by a host")
}

impl Index<Side> for Pair {
    type Output = End;

    fn index(&self, side: Side) -> &End {
        match self.simulation.node(self.ends[side as usize]) {
            Station::End(end) => end,
            Station::Middle(_) => unreachable!("the middle is not an end"),
        }
    }
}

impl IndexMut<Side> for Pair {
    fn index_mut(&mut self, side: Side) -> &mut End {
        match self.simulation.node_mut(self.ends[side as usize]) {
            Station::End(end) => end,
            Station::Middle(_) => unreachable!("the middle is not an end"),
        }
    }
}
