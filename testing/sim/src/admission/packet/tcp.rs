//! Sources that send by TCP with CUBIC, without a controller: smoltcp's, on the same links.
//!
//! A source has one connection, which is there before the first event, and buffers of [`BUFFER_BYTES`]. Each segment is
//! acknowledged at once, and nothing waits for more to send (no Nagle).
use super::feeder::{CHUNK_BYTES, Chunk, Notice, Notices};
use super::wires::{Ends, Queueing, Wires};
use super::{Carry, HEADER_BYTES, PATH_MTU, Packets, Plan, UPLINK_BYTES, now_ns, run};
use crate::roce::{Station, address};
use crate::{Context, Frame, Node, Random, Simulation};
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr, IpEndpoint, Ipv6Packet, TcpPacket};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Of each direction of a connection: twice what fits on the way with a full queue.
const BUFFER_BYTES: usize = 4 << 20;
/// The first of the collector's ports, one a source.
const PORT: u16 = 5000;

/// Sources, a switch, and a collector.
pub(super) struct Network {
    simulation: Simulation<Station<Host>>,
    ends: Ends,
    wires: Wires,
    notices: Rc<Notices>,
}

impl Network {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut simulation = Simulation::new(1);
        let mut content = vec![0; CHUNK_BYTES as usize];
        Random::new(2).fill(&mut content);
        let content: Rc<[u8]> = content.into();
        let notices = Rc::new(Notices::default());
        let collector = Host::collector(plan.sources, &content);
        let collector = simulation.add(Station::Host(Box::new(collector)));
        let source = |number| {
            let mut host = Host::source(number, plan.sources, &content, &notices);
            host.card.dscp = plan.dscp(number);
            simulation.add(Station::Host(Box::new(host)))
        };
        let ends =
            Ends { sources: (0..plan.sources).map(source).collect(), collectors: vec![collector] };
        let queueing = Queueing { marks: false, priority: false };
        let wires = Wires::lay(&mut simulation, plan, &ends, queueing);
        Self { simulation, ends, wires, notices }
    }
}

impl Carry for Network {
    /// TCP has no rate that somebody sets.
    fn post(&mut self, source: u32, event: usize, bytes: u64, _rate_bps: Option<u64>) {
        self.simulation.call(self.ends.sources[source as usize], |station, context| {
            let Station::Host(host) = station else { return };
            if let Role::Source(sender) = &mut host.role {
                sender.waiting.push_back(Chunk { event, bytes });
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

    fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.take()
    }

    fn finish(self: Box<Self>) -> Packets {
        let dropped = self.wires.dropped(&self.simulation);
        let mut packets = Packets { dropped, ..Packets::default() };
        for source in &self.ends.sources {
            if let Station::Host(host) = self.simulation.node(*source) {
                packets.sent += host.card.sent;
                packets.resent += host.card.resent;
            }
        }
        packets
    }
}

/// A host with one network card.
struct Host {
    interface: Interface,
    sockets: SocketSet<'static>,
    card: Card,
    role: Role,
    wake_at: Option<Duration>,
}

enum Role {
    Source(Sender),
    Collector(Vec<Reader>),
}

impl Host {
    /// `begin` opens its sockets.
    fn new(
        number: u32,
        begin: impl FnOnce(&mut Interface, &mut SocketSet<'static>) -> Role,
    ) -> Self {
        let mut card = Card::default();
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut card, Instant::ZERO);
        let own = IpCidr::new(address(number as usize).into(), 64);
        interface.update_ip_addrs(|all| all.push(own).expect("there is room for one address"));
        let mut sockets = SocketSet::new(Vec::new());
        let role = begin(&mut interface, &mut sockets);
        Self { interface, sockets, card, role, wake_at: Some(Duration::ZERO) }
    }

    fn source(number: u32, collector: u32, content: &Rc<[u8]>, notices: &Rc<Notices>) -> Self {
        Self::new(number, |interface, sockets| {
            let mut socket = socket();
            let to = IpEndpoint::new(address(collector as usize).into(), PORT + number as u16);
            let connected = socket.connect(interface.context(), to, PORT);
            connected.expect("the socket is new, and the address right");
            Role::Source(Sender {
                socket: sockets.add(socket),
                waiting: VecDeque::new(),
                written: VecDeque::new(),
                last: None,
                begun: 0,
                bytes: 0,
                acknowledged: 0,
                content: Rc::clone(content),
                notices: Rc::clone(notices),
            })
        })
    }

    fn collector(number: u32, content: &Rc<[u8]>) -> Self {
        Self::new(number, |_, sockets| {
            let readers = (0..number).map(|source| {
                let mut socket = socket();
                socket.listen(PORT + source as u16).expect("the port is not 0");
                Reader { socket: sockets.add(socket), bytes: 0, content: Rc::clone(content) }
            });
            Role::Collector(readers.collect())
        })
    }

    /// Reads, writes and sends until nothing more happens.
    fn pump(&mut self, context: &mut Context<'_>) {
        let now = Instant::from_micros(context.now.as_micros() as i64);
        loop {
            self.card.begin(context.backlog_bytes(0));
            let mut moved = self.role.act(&mut self.sockets);
            let polled = self.interface.poll(now, &mut self.card, &mut self.sockets);
            moved |= polled == PollResult::SocketStateChanged;
            for frame in self.card.outbox.drain(..) {
                context.send(0, frame);
                moved = true;
            }
            if !moved {
                break;
            }
        }
        let next = if self.card.is_full {
            Some(context.drained_to(0, UPLINK_BYTES))
        } else {
            let at = self.interface.poll_at(now, &self.sockets);
            at.map(|at| Duration::from_micros(at.total_micros().max(0) as u64))
        };
        let soon = context.now + Duration::from_micros(1);
        self.wake_at = next.map(|at| at.max(soon));
    }
}

impl Node for Host {
    fn receive(&mut self, frame: Frame, context: &mut Context<'_>) {
        self.card.inbox.push_back(frame);
        self.pump(context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        self.pump(context);
    }

    fn wake_at(&self) -> Option<Duration> {
        self.wake_at
    }
}

fn socket() -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; BUFFER_BYTES]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.set_congestion_control(CongestionControl::Cubic);
    socket.set_ack_delay(None);
    socket.set_nagle_enabled(false);
    socket
}

impl Role {
    /// Returns whether anything was read or written.
    fn act(&mut self, sockets: &mut SocketSet<'_>) -> bool {
        match self {
            Self::Source(sender) => sender.act(sockets),
            Self::Collector(readers) => {
                readers.iter_mut().fold(false, |any, reader| reader.act(sockets) | any)
            }
        }
    }
}

struct Sender {
    socket: SocketHandle,
    waiting: VecDeque<Chunk>,
    /// What was written and is not acknowledged.
    written: VecDeque<Chunk>,
    /// The event of the last byte written.
    last: Option<usize>,
    /// Bytes written of the first that waits, of all, and acknowledged ones of events that are told of.
    begun: u64,
    bytes: u64,
    acknowledged: u64,
    content: Rc<[u8]>,
    notices: Rc<Notices>,
}

impl Sender {
    fn act(&mut self, sockets: &mut SocketSet<'_>) -> bool {
        let socket = sockets.get_mut::<Socket<'_>>(self.socket);
        let there = self.bytes - socket.send_queue() as u64;
        while let Some(first) = self.written.front()
            && self.acknowledged + first.bytes <= there
        {
            let Chunk { event, bytes } = *first;
            self.acknowledged += bytes;
            self.notices.add(Notice::Arrived { event, bytes });
            self.written.pop_front();
        }
        let before = self.bytes;
        while socket.can_send()
            && let Some(first) = self.waiting.front()
        {
            let rest = piece(&self.content, self.bytes, first.bytes - self.begun);
            let Ok(bytes) = socket.send_slice(rest) else { break };
            self.notices.begin(&mut self.last, first.event);
            self.bytes += bytes as u64;
            self.begun += bytes as u64;
            if self.begun == first.bytes {
                self.begun = 0;
                self.written.extend(self.waiting.pop_front());
            }
        }
        self.bytes > before
    }
}

struct Reader {
    socket: SocketHandle,
    bytes: u64,
    content: Rc<[u8]>,
}

impl Reader {
    /// # Panics
    /// When a byte is there that nobody sent.
    fn act(&mut self, sockets: &mut SocketSet<'_>) -> bool {
        let socket = sockets.get_mut::<Socket<'_>>(self.socket);
        let before = self.bytes;
        while socket.can_recv() {
            let read = socket.recv(|bytes| {
                let sent = piece(&self.content, self.bytes, bytes.len() as u64);
                assert!(bytes[..sent.len()] == *sent, "a wrong byte arrived");
                (sent.len(), sent.len())
            });
            let Ok(read) = read else { break };
            self.bytes += read as u64;
        }
        self.bytes > before
    }
}

/// Returns what follows so many bytes of a stream that repeats its content: so many at most, up to its end.
fn piece(content: &[u8], after: u64, most: u64) -> &[u8] {
    let rest = &content[(after % content.len() as u64) as usize..];
    &rest[..(most as usize).min(rest.len())]
}

/// A network card, with what it has of a transmit ring.
#[derive(Default)]
struct Card {
    /// Of all that it sends.
    dscp: u8,
    inbox: VecDeque<Frame>,
    outbox: Vec<Frame>,
    /// Bytes in its transmit ring.
    backlog: usize,
    /// It had no room for a packet.
    is_full: bool,
    /// Segments with payload, and those of bytes that were sent before.
    sent: u64,
    resent: u64,
    /// Number of the byte after the last one that was sent.
    end: Option<u32>,
}

impl Card {
    fn begin(&mut self, backlog: usize) {
        (self.backlog, self.is_full) = (backlog, false);
    }

    fn count(&mut self, packet: &[u8]) {
        let Ok(packet) = Ipv6Packet::new_checked(packet) else { return };
        let Ok(segment) = TcpPacket::new_checked(packet.payload()) else { return };
        let bytes = segment.payload().len() as u32;
        if bytes == 0 {
            return;
        }
        let end = (segment.seq_number().0 as u32).wrapping_add(bytes);
        let is_new = self.end.is_none_or(|last| (end.wrapping_sub(last) as i32) > 0);
        self.sent += 1;
        if is_new {
            self.end = Some(end);
        } else {
            self.resent += 1;
        }
    }
}

impl phy::Device for Card {
    type RxToken<'a> = Received;
    type TxToken<'a> = Transmit<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Transmit<'_>)> {
        self.inbox.pop_front().map(|frame| (Received(frame), Transmit(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Transmit<'_>> {
        self.is_full = self.backlog > UPLINK_BYTES;
        (!self.is_full).then_some(Transmit(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        // As long on the wire as a packet of RoCE.
        capabilities.max_transmission_unit = PATH_MTU.bytes() + HEADER_BYTES as usize;
        capabilities
    }
}

struct Received(Frame);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0.bytes())
    }
}

struct Transmit<'a>(&'a mut Card);

impl phy::TxToken for Transmit<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, fill: F) -> R {
        let mut packet = vec![0; bytes];
        let result = fill(&mut packet);
        self.0.count(&packet);
        self.0.backlog += bytes;
        let mut frame = Frame::new(packet);
        frame.set_dscp(self.0.dscp);
        self.0.outbox.push(frame);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two senders of 1 Gbit/s overflow the queue before 1 Gbit/s, and every byte arrives (compared there).
    #[test]
    fn connections_share_a_link_that_drops_and_lose_nothing() {
        const BYTES: u64 = 20_000_000;
        let (bps, rtt_ns) = (1_000_000_000, 500_000);
        let plan = Plan { sources: 2, ..Plan::alone(bps, rtt_ns) };
        let mut network = Box::new(Network::new(&plan));
        (0..2).for_each(|source| network.post(source, source as usize, BYTES, None));
        let mut there = Vec::new();
        while there.len() < 2 && network.now_ns() < 5_000_000_000 {
            network.run(5_000_000_000);
            for notice in network.take_notices() {
                let Notice::Arrived { event, bytes } = notice else { continue };
                assert_eq!(bytes, BYTES);
                there.push(event);
            }
        }
        there.sort_unstable();
        assert_eq!(there, [0, 1]);
        // 320 Mbit over 1 Gbit/s.
        assert!(network.now_ns() > 300_000_000);
        let packets = network.finish();
        assert!(packets.dropped_in_all() > 0, "{packets:?}");
        assert!(packets.resent >= packets.dropped_in_all(), "{packets:?}");
    }
}
