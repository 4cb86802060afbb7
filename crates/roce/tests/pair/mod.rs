//! Two queue pairs in one program, with virtual time and a network that does what a test says.
//!
//! Packets are encoded, gathered and decoded as a driver does it. Only the checksum is left out.

use catchment_roce::wire::{Headers, Opcode, Packet, PathMtu};
use catchment_roce::{
    AccessError, Arrival, AtomicOp, Completion, Config, InitAttr, Input, Memory, Payload, Piece,
    Psn, Qp, Recovery, RecvWr, RemoteAccess, RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Service,
    Sge, TransmitBatch, WcStatus,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Ethernet, IPv4 and UDP around a packet.
const OVERHEAD_BYTES: usize = 46;
pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
/// Key of the only region of a node, local and remote.
pub(crate) const KEY: u32 = 0x1234;
/// Address of its first byte.
pub(crate) const BASE: u64 = 0x10_0000;

/// One region, all rights, but for what is taken away.
pub(crate) struct Region {
    pub(crate) bytes: Vec<u8>,
    pub(crate) deny: Option<RemoteAccess>,
    pub(crate) invalidated: Vec<u32>,
}

impl Region {
    pub(crate) fn new(bytes: usize) -> Region {
        Region { bytes: vec![0; bytes], deny: None, invalidated: Vec::new() }
    }

    fn range(&self, key: u32, va: u64, bytes: u64) -> Result<std::ops::Range<usize>, AccessError> {
        let start = va.checked_sub(BASE).ok_or(AccessError)?;
        let end = start.checked_add(bytes).ok_or(AccessError)?;
        if key != KEY || end > self.bytes.len() as u64 {
            return Err(AccessError);
        }
        Ok(start as usize..end as usize)
    }

    fn allow(&self, access: RemoteAccess) -> Result<(), AccessError> {
        (self.deny != Some(access)).then_some(()).ok_or(AccessError)
    }
}

impl Memory for Region {
    fn check_remote(
        &self,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u64,
    ) -> Result<(), AccessError> {
        self.allow(access)?;
        self.range(rkey, va, bytes).map(|_| ())
    }

    fn write_remote(&mut self, rkey: u32, va: u64, data: &[u8]) -> Result<(), AccessError> {
        self.check_remote(RemoteAccess::Write, rkey, va, data.len() as u64)?;
        let range = self.range(rkey, va, data.len() as u64)?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        self.check_remote(RemoteAccess::Atomic, rkey, va, 8)?;
        let range = self.range(rkey, va, 8)?;
        let before = u64::from_ne_bytes(self.bytes[range.clone()].try_into().unwrap());
        self.bytes[range].copy_from_slice(&op.apply(before).to_ne_bytes());
        Ok(before)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        self.invalidated.push(rkey);
        Ok(())
    }

    fn write_local(&mut self, lkey: u32, addr: u64, data: &[u8]) -> Result<(), AccessError> {
        let range = self.range(lkey, addr, data.len() as u64)?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum To {
    /// From `a` to `b`.
    B,
    /// From `b` to `a`.
    A,
}

/// What the network does with a packet: when each of its copies arrives, after now.
pub(crate) type Fate = Vec<u64>;

pub(crate) struct Node {
    pub(crate) qp: Qp,
    pub(crate) memory: Region,
    pub(crate) completions: Vec<Completion>,
}

/// How both ends are set up.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) mtu: PathMtu,
    pub(crate) recovery: Recovery,
    pub(crate) psn: u32,
    pub(crate) rts: RtsAttr,
    pub(crate) region_bytes: usize,
    pub(crate) latency_ns: u64,
    pub(crate) max_dest_rd_atomic: u8,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            config: Config::new(0, Service::Rc),
            mtu: PathMtu::Mtu256,
            recovery: Recovery::GoBackN,
            psn: 0xff_fff0,
            rts: RtsAttr::new(Psn::default()),
            region_bytes: 1 << 20,
            latency_ns: 50 * US,
            max_dest_rd_atomic: 16,
        }
    }
}

impl Setup {
    pub(crate) fn recovering(recovery: Recovery) -> Setup {
        Setup { recovery, ..Setup::default() }
    }

    pub(crate) fn node(&self, qpn: u32, psn: u32, dest_qpn: u32, dest_psn: u32) -> Node {
        let mut qp = Qp::new(Config { qpn, ..self.config });
        qp.init(InitAttr { remote_write: true, remote_read: true, remote_atomic: true, qkey: 77 })
            .unwrap();
        qp.rtr(RtrAttr {
            recovery: self.recovery,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            ..RtrAttr::new(dest_qpn, self.mtu, Psn::new(dest_psn))
        })
        .unwrap();
        qp.rts(RtsAttr { sq_psn: Psn::new(psn), ..self.rts }).unwrap();
        Node { qp, memory: Region::new(self.region_bytes), completions: Vec::new() }
    }
}

/// The network between the two.
pub(crate) struct Pair {
    pub(crate) a: Node,
    pub(crate) b: Node,
    pub(crate) now_ns: u64,
    pub(crate) latency_ns: u64,
    /// Packets on their way, by time of arrival and number.
    wire: BTreeMap<(u64, u64), (To, Vec<u8>)>,
    sent: u64,
    /// Bits a second of each direction; none is without limit. With it, packets queue without
    /// limit too.
    pub(crate) link_bps: Option<u64>,
    link_free_ns: [u64; 2],
    /// What was sent: direction, time, headers, payload length.
    pub(crate) log: Vec<(To, u64, Headers, usize)>,
    batch: TransmitBatch,
}

impl Pair {
    pub(crate) fn new(setup: &Setup) -> Pair {
        Pair {
            a: setup.node(0x11, setup.psn, 0x22, 500),
            b: setup.node(0x22, 500, 0x11, setup.psn),
            now_ns: 1,
            latency_ns: setup.latency_ns,
            wire: BTreeMap::new(),
            sent: 0,
            link_bps: None,
            link_free_ns: [0; 2],
            log: Vec::new(),
            batch: TransmitBatch::new(64),
        }
    }

    /// Runs without any loss until nothing happens any more.
    pub(crate) fn run(&mut self) {
        let latency = self.latency_ns;
        self.run_with(|_, _| vec![latency]);
    }

    /// Runs until nothing happens any more, or for a virtual minute. `fate` says what becomes of a
    /// packet.
    pub(crate) fn run_with(&mut self, fate: impl FnMut(To, &Headers) -> Fate) {
        self.run_with_limit(60_000 * MS, fate);
    }

    /// Runs until nothing happens any more, or for this time.
    pub(crate) fn run_with_limit(
        &mut self,
        most_ns: u64,
        mut fate: impl FnMut(To, &Headers) -> Fate,
    ) {
        let end_ns = self.now_ns + most_ns;
        for _ in 0..20_000_000u64 {
            self.flush(&mut fate);
            let Some(next_ns) = self.next_event().filter(|&at| at < end_ns) else {
                return;
            };
            self.now_ns = self.now_ns.max(next_ns);
            self.step();
        }
        panic!("no end: something spins at {} ns", self.now_ns);
    }

    fn next_event(&self) -> Option<u64> {
        let arrival = self.wire.keys().next().map(|&(at, _)| at);
        let timers = [self.a.qp.next_timeout(), self.b.qp.next_timeout()];
        timers.into_iter().chain([arrival]).flatten().min()
    }

    /// Hands over what has arrived, and fires timers.
    fn step(&mut self) {
        let now_ns = self.now_ns;
        let mut touched = [false; 2];
        while let Some((&(at, number), _)) = self.wire.first_key_value() {
            if at > now_ns {
                break;
            }
            let (to, bytes) = self.wire.remove(&(at, number)).unwrap();
            self.deliver(to, &bytes);
            touched[to as usize] = true;
        }
        for (node, touched) in [(&mut self.b, touched[0]), (&mut self.a, touched[1])] {
            if touched {
                node.qp.handle(now_ns, Input::EndOfBatch, &mut node.memory);
            }
            if node.qp.next_timeout().is_some_and(|at| at <= now_ns) {
                node.qp.handle(now_ns, Input::Timeout, &mut node.memory);
            }
        }
    }

    fn deliver(&mut self, to: To, bytes: &[u8]) {
        let packet = Packet::decode(bytes).unwrap();
        let node = match to {
            To::A => &mut self.a,
            To::B => &mut self.b,
        };
        let arrival = Arrival::new(&packet.headers, packet.payload);
        node.qp.handle(self.now_ns, Input::Packet(arrival), &mut node.memory);
    }

    /// Sends and collects completions.
    fn flush(&mut self, fate: &mut impl FnMut(To, &Headers) -> Fate) {
        for to in [To::B, To::A] {
            loop {
                let node = match to {
                    To::B => &mut self.a,
                    To::A => &mut self.b,
                };
                self.batch.clear();
                let count = node.qp.poll_transmit(self.now_ns, &node.memory, &mut self.batch);
                assert!(count <= 64);
                let packets = gather(&self.batch, &node.memory);
                while let Some(completion) = node.qp.poll_completion() {
                    node.completions.push(completion);
                }
                if count == 0 {
                    break;
                }
                for bytes in packets {
                    self.send(to, bytes, fate);
                }
            }
        }
    }

    fn send(&mut self, to: To, bytes: Vec<u8>, fate: &mut impl FnMut(To, &Headers) -> Fate) {
        let packet = Packet::decode(&bytes).unwrap();
        let headers = packet.headers;
        let payload = packet.payload.len();
        self.log.push((to, self.now_ns, headers, payload));
        let leaves_ns = self.leaves_ns(to, bytes.len());
        for after in fate(to, &headers) {
            self.sent += 1;
            self.wire.insert((leaves_ns + after, self.sent), (to, bytes.clone()));
        }
    }

    /// When the last bit of a packet is on the wire.
    fn leaves_ns(&mut self, to: To, bytes: usize) -> u64 {
        let Some(link_bps) = self.link_bps else {
            return self.now_ns;
        };
        let free_ns = &mut self.link_free_ns[to as usize];
        let bits = (bytes + 4 + OVERHEAD_BYTES) as u64 * 8;
        *free_ns = self.now_ns.max(*free_ns) + bits * 1_000_000_000 / link_bps;
        *free_ns
    }

    /// Opcodes sent one way.
    pub(crate) fn opcodes(&self, to: To) -> Vec<Opcode> {
        let log = self.log.iter().filter(|(way, ..)| *way == to);
        log.map(|(_, _, headers, _)| headers.bth.opcode).collect()
    }
}

/// The transport bytes of every packet of a batch.
pub(crate) fn gather(batch: &TransmitBatch, memory: &Region) -> Vec<Vec<u8>> {
    let packets = batch.packets().iter();
    packets
        .map(|packet| {
            let mut bytes = packet.header().to_vec();
            for piece in batch.pieces(packet) {
                match *piece {
                    Piece::Local { lkey, addr, bytes: n } => {
                        bytes.extend(&memory.bytes[memory.range(lkey, addr, n.into()).unwrap()]);
                    }
                    Piece::Remote { rkey, va, bytes: n } => {
                        bytes.extend(&memory.bytes[memory.range(rkey, va, n.into()).unwrap()]);
                    }
                    Piece::Batch { start, bytes: n } => bytes.extend(batch.bytes(start, n)),
                }
            }
            bytes.extend(std::iter::repeat_n(0, packet.pad_bytes()));
            bytes
        })
        .collect()
}

/// A piece of a node's region.
pub(crate) fn sge(offset: u64, bytes: u32) -> Sge {
    Sge { addr: BASE + offset, bytes, lkey: KEY }
}

pub(crate) fn remote(offset: u64) -> RemoteAddr {
    RemoteAddr { addr: BASE + offset, rkey: KEY }
}

impl Node {
    pub(crate) fn post(&mut self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let wr = SendWr::new(wr_id, op, Payload::Sges(sges));
        self.qp.post_send(&wr).unwrap();
    }

    pub(crate) fn receive(&mut self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvWr { wr_id, sges }).unwrap();
    }

    /// Fills the region with bytes that depend on `seed` and place.
    pub(crate) fn fill(&mut self, seed: u32) {
        let mut state = seed | 1;
        for byte in &mut self.memory.bytes {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
    }

    /// `wr_id`s in order of completion; panics when one failed.
    pub(crate) fn succeeded(&self) -> Vec<u64> {
        let all = self.completions.iter();
        all.map(|completion| {
            assert!(completion.result.is_ok(), "{completion:?}");
            completion.wr_id
        })
        .collect()
    }

    pub(crate) fn statuses(&self) -> Vec<(u64, Option<WcStatus>)> {
        let all = self.completions.iter();
        all.map(|completion| (completion.wr_id, completion.result.err())).collect()
    }
}

/// Both strategies, for tests that hold for each.
pub(crate) const BOTH: [Recovery; 2] = [Recovery::GoBackN, Recovery::SelectiveRepeat];

pub(crate) fn timeout(ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(ms))
}
