//! A host: queue pairs, memory, a program, and a network card with one link.
//!
//! It is the driver and nothing else: it checks the ICRC, finds the queue pair, gathers payload and
//! keeps timeouts. Frames that arrive within [`HostConfig::poll_interval`] are handled as one
//! batch, as by an engine thread that polls its socket. It queues at most
//! [`HostConfig::uplink_bytes`] on its link, as the transmit ring of a network card does.
use super::packet::{open, seal};
use super::space::Space;
use crate::{CONGESTION_EXPERIENCED, Context, ECN_CAPABLE, Frame, Node};
use catchment_roce::wire::net::{Ip, NetHeader, source_port};
use catchment_roce::wire::{DropReason, Packet};
use catchment_roce::{Arrival, Completion, Input, OutPacket, Piece, Qp, TransmitBatch};
use std::net::Ipv6Addr;
use std::time::Duration;

/// What uses the queue pairs of a host.
pub(crate) trait Program {
    /// A request of the queue pair at `index` completed.
    fn completed(&mut self, now: Duration, index: usize, completion: Completion, space: &mut Space);

    /// Posts what there is to post, after any event. Called until nothing more happens.
    fn act(&mut self, now: Duration, qps: &mut QpTable, space: &mut Space);

    /// Returns when it wants to act by itself.
    fn wake_at(&self) -> Option<Duration>;
}

/// Configuration of a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostConfig {
    pub(crate) address: Ipv6Addr,
    /// How long a frame may wait for others, to be handled with them.
    pub(crate) poll_interval: Duration,
    /// Queue length of its link, in bytes, above which it sends nothing.
    pub(crate) uplink_bytes: usize,
    /// It marks its packets as ECN-capable and reads the marks of those that arrive.
    pub(crate) ecn: bool,
    /// DSCP of its packets.
    pub(crate) dscp: u8,
}

#[derive(Debug, Default)]
pub(crate) struct QpTable {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    qp: Qp,
    net: NetHeader,
}

impl QpTable {
    pub(crate) fn get(&self, index: usize) -> &Qp {
        &self.entries[index].qp
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> &mut Qp {
        &mut self.entries[index].qp
    }

    /// Puts another queue pair in the place of one, to the same peer, and returns that.
    pub(crate) fn replace(&mut self, index: usize, qp: Qp) -> Qp {
        std::mem::replace(&mut self.entries[index].qp, qp)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.entries.iter().map(|entry| &entry.qp)
    }
}

pub(crate) struct Host<P> {
    config: HostConfig,
    pub(crate) space: Space,
    pub(crate) qps: QpTable,
    pub(crate) program: P,
    batch: TransmitBatch,
    inbox: Vec<Frame>,
    inbox_at: Option<Duration>,
    /// When the link has room, if sending waits for that.
    room_at: Option<Duration>,
    /// The queue pair that sends next.
    turn: usize,
    drops: [u64; DropReason::COUNT],
    pub(crate) foreign: u64,
    dead: bool,
}

/// Packets that a queue pair may send in its turn.
const BATCH_PACKETS: usize = 8;

impl<P: Program> Host<P> {
    pub(crate) fn new(config: HostConfig, space: Space, program: P) -> Self {
        Self {
            config,
            space,
            qps: QpTable::default(),
            program,
            batch: TransmitBatch::new(BATCH_PACKETS),
            inbox: Vec::new(),
            inbox_at: None,
            room_at: None,
            turn: 0,
            drops: [0; DropReason::COUNT],
            foreign: 0,
            dead: false,
        }
    }

    /// Adds a connected queue pair whose peer has this address, and returns its index.
    pub(crate) fn attach(&mut self, qp: Qp, peer: Ipv6Addr) -> usize {
        let port = source_port(qp.qpn(), qp.dest_qpn());
        self.qps.entries.push(Entry { qp, net: NetHeader::v6(self.config.address, peer, port) });
        self.qps.entries.len() - 1
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Kills the host: it no longer receives or sends.
    pub(crate) fn kill(&mut self) {
        self.dead = true;
        self.inbox.clear();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Lets the program act and sends what is ready; call it after a change from outside.
    pub(crate) fn pump(&mut self, context: &mut Context<'_>) {
        if self.dead {
            return;
        }
        let now = context.now;
        loop {
            let mut moved = self.complete(now);
            self.program.act(now, &mut self.qps, &mut self.space);
            moved |= self.transmit(context);
            if !moved {
                break;
            }
        }
    }

    fn complete(&mut self, now: Duration) -> bool {
        let mut moved = false;
        for (index, entry) in self.qps.entries.iter_mut().enumerate() {
            while let Some(completion) = entry.qp.poll_completion() {
                let space = &mut self.space;
                self.program.completed(now, index, completion, space);
                moved = true;
            }
        }
        moved
    }

    /// Sends batches, round robin, until no queue pair has more or the link is full.
    fn transmit(&mut self, context: &mut Context<'_>) -> bool {
        self.room_at = None;
        let (count, mut idle, mut sent) = (self.qps.entries.len(), 0, false);
        while idle < count {
            let most = self.config.uplink_bytes;
            if context.backlog_bytes(0) > most {
                self.room_at = Some(context.drained_to(0, most));
                break;
            }
            self.turn = (self.turn + 1) % count;
            if self.transmit_batch(self.turn, context) {
                (idle, sent) = (0, true);
            } else {
                idle += 1;
            }
        }
        sent
    }

    fn transmit_batch(&mut self, index: usize, context: &mut Context<'_>) -> bool {
        let entry = &mut self.qps.entries[index];
        self.batch.clear();
        let count = entry.qp.poll_transmit(nanos(context.now), &self.space, &mut self.batch);
        for packet in self.batch.packets() {
            let mut frame = frame(&entry.net, &self.batch, packet, &self.space);
            if self.config.ecn {
                frame.set_ecn(ECN_CAPABLE);
            }
            frame.set_dscp(self.config.dscp);
            context.send(0, frame);
        }
        count > 0
    }

    fn take(&mut self, now: Duration) {
        self.inbox_at = None;
        let inbox = std::mem::take(&mut self.inbox);
        let now_ns = nanos(now);
        for frame in &inbox {
            if let Err(reason) = self.deliver(now_ns, frame) {
                match reason {
                    Some(reason) => self.drops[reason as usize] += 1,
                    None => self.foreign += 1,
                }
            }
        }
        for entry in &mut self.qps.entries {
            entry.qp.handle(now_ns, Input::EndOfBatch, &mut self.space);
        }
        // Reuses the allocation.
        self.inbox = inbox;
        self.inbox.clear();
    }

    fn deliver(&mut self, now_ns: u64, frame: &Frame) -> Result<(), Option<DropReason>> {
        let (net, Packet { headers, payload }) = open(frame, self.config.address)?;
        let number = headers.bth.dest_qpn;
        let found = self.qps.entries.iter_mut().find(|entry| entry.qp.qpn() == number);
        let entry = found.ok_or(DropReason::UnknownQp)?;
        if source(&net) != destination(&entry.net) {
            return Err(Some(DropReason::WrongPeer));
        }
        let arrival = Arrival {
            ecn_marked: self.config.ecn && frame.ecn() == CONGESTION_EXPERIENCED,
            ..Arrival::new(&headers, payload)
        };
        entry.qp.handle(now_ns, Input::Packet(arrival), &mut self.space);
        Ok(())
    }

    fn expire(&mut self, now_ns: u64) {
        for entry in &mut self.qps.entries {
            if entry.qp.next_timeout().is_some_and(|at| at <= now_ns) {
                entry.qp.handle(now_ns, Input::Timeout, &mut self.space);
            }
        }
    }
}

impl<P: Program> Node for Host<P> {
    fn receive(&mut self, frame: Frame, context: &mut Context<'_>) {
        if self.dead {
            return;
        }
        self.inbox.push(frame);
        if self.config.poll_interval.is_zero() {
            self.take(context.now);
            self.pump(context);
        } else if self.inbox_at.is_none() {
            self.inbox_at = Some(context.now + self.config.poll_interval);
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        if self.inbox_at.is_some_and(|at| at <= now) {
            self.take(now);
        }
        self.expire(nanos(now));
        self.pump(context);
    }

    fn wake_at(&self) -> Option<Duration> {
        if self.dead {
            return None;
        }
        let timeouts = self.qps.iter().filter_map(Qp::next_timeout);
        let others = [self.inbox_at, self.room_at, self.program.wake_at()];
        timeouts.map(Duration::from_nanos).chain(others.into_iter().flatten()).min()
    }
}

/// Returns the address of host number `number` of a simulation.
pub(crate) fn address(number: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1 + number as u16)
}

/// Returns virtual time in nanoseconds, as queue pairs take it.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn source(net: &NetHeader) -> Option<Ipv6Addr> {
    match net.ip {
        Ip::V6 { src, .. } => Some(src),
        Ip::V4 { .. } => None,
    }
}

fn destination(net: &NetHeader) -> Option<Ipv6Addr> {
    match net.ip {
        Ip::V6 { dst, .. } => Some(dst),
        Ip::V4 { .. } => None,
    }
}

/// Returns the transport bytes of a packet: headers, payload and pad.
pub(super) fn transport(batch: &TransmitBatch, packet: &OutPacket, space: &Space) -> Vec<u8> {
    let pieces = batch.pieces(packet).iter();
    let mut bytes = packet.header().to_vec();
    pieces.for_each(|piece| bytes.extend_from_slice(gather(*piece, batch, space)));
    bytes.resize(bytes.len() + packet.pad_bytes(), 0);
    bytes
}

/// Makes a frame of a queue pair's packet.
fn frame(net: &NetHeader, batch: &TransmitBatch, packet: &OutPacket, space: &Space) -> Frame {
    let payload = batch.pieces(packet).iter().map(|piece| gather(*piece, batch, space));
    seal(net, packet.header(), payload, packet.payload_bytes(), packet.pad_bytes())
}

/// Returns the bytes of a piece.
///
/// # Panics
/// When the queue pair names memory that is not registered: a bug in it.
fn gather<'a>(piece: Piece, batch: &'a TransmitBatch, space: &'a Space) -> &'a [u8] {
    let (key, addr, bytes) = match piece {
        Piece::Batch { start, bytes } => return batch.bytes(start, bytes),
        Piece::Local { lkey, addr, bytes } => (lkey, addr, bytes),
        Piece::Remote { rkey, va, bytes } => (rkey, va, bytes),
    };
    let found = space.local(key, addr, bytes as usize);
    found.unwrap_or_else(|| panic!("{piece:x?} is not in registered memory"))
}
