//! What must hold whatever a peer sends to a queue pair. The fuzz target and the ordinary test that
//! replays its corpus share this file.
//!
//! The input is a script: two bytes choose the queue pair, then each step is a kind and what it
//! needs. Packets are made of fields, near what a peer could know, so that chance gets far.
use catchment_roce::wire::{
    Aeth, AtomicEth, Bth, Deth, Headers, MAX_HEADER_BYTES, Opcode, PathMtu, Reth, Syndrome,
};
use catchment_roce::{
    AccessError, Arrival, AtomicOp, Config, InitAttr, Input, Memory, Payload, Psn, Qp, QpState,
    Recovery, RecvWr, RemoteAccess, RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Service, Sge,
    TransmitBatch,
};

/// Memory of the queue pair: what the peer may reach, and what only own requests may.
const SHARED: std::ops::Range<u64> = 4096..8192;
const OWN: std::ops::Range<u64> = 16_384..20_480;
const RKEY: u32 = 7;
const LKEY: u32 = 9;
const MTU: usize = 256;
/// Packets that one input may cause: READs and their repetitions, of all the shared memory.
const MOST_PACKETS: usize = 300 * 20;
const MOST_HEAP: usize = 1 << 20;

/// Memory that knows what is allowed, and panics when a queue pair does more than that.
struct Guarded {
    bytes: Vec<u8>,
    may_change: bool,
}

impl Guarded {
    fn place(&mut self, allowed: &std::ops::Range<u64>, at: u64, data: &[u8]) {
        assert!(self.may_change, "memory changes in the error state");
        assert!(!data.is_empty() && data.len() <= MTU, "{} bytes at once", data.len());
        assert!(at >= allowed.start && at + data.len() as u64 <= allowed.end);
        self.bytes[at as usize..at as usize + data.len()].copy_from_slice(data);
    }
}

impl Memory for Guarded {
    fn check_remote(
        &self,
        _: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u64,
    ) -> Result<(), AccessError> {
        let end = va.checked_add(bytes).ok_or(AccessError)?;
        let inside = va >= SHARED.start && end <= SHARED.end && rkey == RKEY;
        inside.then_some(()).ok_or(AccessError)
    }

    fn write_remote(&mut self, rkey: u32, va: u64, data: &[u8]) -> Result<(), AccessError> {
        self.check_remote(RemoteAccess::Write, rkey, va, data.len() as u64)?;
        self.place(&SHARED, va, data);
        Ok(())
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        self.check_remote(RemoteAccess::Atomic, rkey, va, 8)?;
        assert!(va.is_multiple_of(8));
        let range = va as usize..va as usize + 8;
        let mut before = [0; 8];
        before.copy_from_slice(&self.bytes[range]);
        let before = u64::from_ne_bytes(before);
        self.place(&SHARED, va, &op.apply(before).to_ne_bytes());
        Ok(before)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        (rkey == RKEY + 1).then_some(()).ok_or(AccessError)
    }

    fn write_local(&mut self, lkey: u32, addr: u64, data: &[u8]) -> Result<(), AccessError> {
        assert_eq!(lkey, LKEY, "a key that no request named");
        self.place(&OWN, addr, data);
        Ok(())
    }
}

/// The rest of the script. It gives zeros when it has ended.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Mostly small, sometimes anything.
    fn length(&mut self) -> u32 {
        match self.byte() {
            255 => self.word(),
            254 => 4096,
            short => u32::from(short) * 3,
        }
    }

    /// Mostly near the shared memory, sometimes anywhere.
    fn address(&mut self) -> u64 {
        let choice = self.byte();
        match choice {
            0..200 => SHARED.start + u64::from(choice) * 8,
            200..240 => SHARED.end - u64::from(choice - 200) * 4,
            240..250 => OWN.start,
            _ => u64::from(self.word()) << 32 | u64::from(self.word()),
        }
    }
}

/// A queue pair under attack.
struct Victim {
    qp: Qp,
    memory: Guarded,
    batch: TransmitBatch,
    posted: u64,
    completed: u64,
    now_ns: u64,
}

/// Runs a script. Panics when something does not hold.
pub(crate) fn check(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut victim = Victim::new(script.byte());
    while !script.0.is_empty() {
        victim.step(&mut script);
        victim.drain();
    }
}

impl Victim {
    fn new(choice: u8) -> Self {
        let service = [Service::Rc, Service::Rc, Service::Uc, Service::Ud][usize::from(choice & 3)];
        let recovery = [Recovery::GoBackN, Recovery::SelectiveRepeat][usize::from(choice >> 2 & 1)];
        let mut qp = Qp::new(Config {
            window_packets: 128,
            max_send_wr: 16,
            max_recv_wr: 16,
            ..Config::new(0x22, service)
        });
        let init = qp.init(InitAttr {
            remote_write: choice & 8 == 0,
            remote_read: choice & 16 == 0,
            remote_atomic: choice & 32 == 0,
            qkey: 5,
        });
        let rtr = qp.rtr(RtrAttr {
            recovery,
            challenges: (choice & 64 != 0).then_some(9),
            ..RtrAttr::new(0x11, PathMtu::Mtu256, Psn::new(0xff_fff8))
        });
        assert!(init.is_ok() && rtr.is_ok() && qp.rts(RtsAttr::new(Psn::new(0xff_fffc))).is_ok());
        Self {
            qp,
            memory: Guarded { bytes: vec![0xee; 24_576], may_change: true },
            batch: TransmitBatch::new(32),
            posted: 0,
            completed: 0,
            now_ns: 1,
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 16 {
            0 => self.handle(Input::EndOfBatch),
            1 => self.handle(Input::Timeout),
            2 => self.now_ns += u64::from(script.byte()) << (script.byte() % 32),
            3 | 4 => self.post_recv(script),
            5 | 6 => self.post_send(script),
            7 => self.raw_packet(script),
            _ => self.packet(script),
        }
    }

    fn handle(&mut self, input: Input<'_>) {
        self.memory.may_change = self.qp.state() != QpState::Err;
        self.qp.handle(self.now_ns, input, &mut self.memory);
        assert!(self.qp.heap_bytes() < MOST_HEAP, "{}", self.qp.heap_bytes());
    }

    fn post_recv(&mut self, script: &mut Script<'_>) {
        let sges = [own(script), own(script)];
        let wr = RecvWr { wr_id: self.posted, sges: &sges[..usize::from(script.byte() % 3)] };
        self.posted += u64::from(self.qp.post_recv(&wr).is_ok());
    }

    fn post_send(&mut self, script: &mut Script<'_>) {
        let remote = RemoteAddr { addr: SHARED.start, rkey: 1 };
        let op = match script.byte() % 5 {
            0 => SendOp::Write(remote),
            1 => SendOp::Send,
            2 => SendOp::Read(remote),
            3 => SendOp::FetchAdd { remote, add: 1 },
            _ => SendOp::WriteImm(remote, 3),
        };
        let mut sge = own(script);
        if op.is_atomic() {
            sge.bytes = 8;
        }
        let sges = [sge];
        let wr = SendWr::new(self.posted, op, Payload::Sges(&sges));
        self.posted += u64::from(self.qp.post_send(&wr).is_ok());
    }

    /// Headers as they come, if they are any.
    fn raw_packet(&mut self, script: &mut Script<'_>) {
        let mut bytes = [0; MAX_HEADER_BYTES];
        bytes.fill_with(|| script.byte());
        if let Ok((headers, _)) = Headers::decode(&bytes) {
            self.handle(Input::Packet(Arrival::new(&headers, &[])));
        }
    }

    /// A packet made of fields.
    fn packet(&mut self, script: &mut Script<'_>) {
        let opcode = Opcode::ALL[usize::from(script.byte()) % Opcode::ALL.len()];
        let near = script.byte().cast_signed();
        let first = if opcode.is_response() { 0xff_fffc } else { 0xff_fff8u32 };
        let psn = match near {
            -128 => script.word(),
            near => first.wrapping_add_signed(i32::from(near)),
        };
        let mut headers = Headers::new(Bth::new(opcode, 0x22, Psn::new(psn)));
        let flags = script.byte();
        headers.bth.ack_req = flags & 1 != 0;
        headers.bth.solicited = flags & 2 != 0;
        let rkey = if flags & 12 == 0 { script.word() } else { RKEY };
        headers.reth = Some(Reth { va: script.address(), rkey, dma_bytes: script.length() });
        headers.atomic = Some(AtomicEth { va: script.address(), rkey, swap_or_add: 1, compare: 0 });
        headers.aeth = Some(Aeth { syndrome: Syndrome::from_u8(script.byte()), msn: 0 });
        headers.atomic_ack = Some(1);
        headers.imm = Some(2);
        headers.ieth = Some(rkey.wrapping_add(u32::from(flags & 16 != 0)));
        headers.deth = Some(Deth { qkey: 5, src_qpn: 1 });
        let payload = [script.byte(); 300];
        let bytes = match script.byte() {
            255 => 256,
            254 => 257,
            short => usize::from(short),
        };
        let payload = if opcode.has_payload() { &payload[..bytes] } else { &[] };
        // Only what a decoder can give: headers that the opcode has.
        let mut encoded = [0; MAX_HEADER_BYTES];
        let encoded_bytes = headers.encode(&mut encoded);
        let Ok((headers, _)) = Headers::decode(&encoded[..encoded_bytes]) else {
            panic!("{headers:?} cannot be decoded");
        };
        let arrival = Arrival { ecn_marked: flags & 32 != 0, ..Arrival::new(&headers, payload) };
        self.handle(Input::Packet(arrival));
    }

    /// Takes all that comes out.
    fn drain(&mut self) {
        let mut packets = 0;
        loop {
            self.batch.clear();
            let count = self.qp.poll_transmit(self.now_ns, &self.memory, &mut self.batch);
            if count == 0 {
                break;
            }
            assert!(count <= self.batch.max_packets());
            packets += count;
            assert!(packets <= MOST_PACKETS, "{packets} packets for one input");
        }
        while let Some(completion) = self.qp.poll_completion() {
            assert!(completion.wr_id < self.posted);
            self.completed += 1;
        }
        assert!(self.completed <= self.posted);
        let waiting = self.qp.send_queue_len() + self.qp.recv_queue_len();
        assert!(self.qp.state() != QpState::Err || waiting == 0);
        self.check_memory();
    }

    /// Nothing but the two ranges ever changes.
    fn check_memory(&self) {
        let untouched = |range: std::ops::Range<u64>| {
            let bytes = &self.memory.bytes[range.start as usize..range.end as usize];
            assert!(bytes.iter().all(|&byte| byte == 0xee));
        };
        untouched(0..SHARED.start);
        untouched(SHARED.end..OWN.start);
        untouched(OWN.end..self.memory.bytes.len() as u64);
    }
}

/// A piece of the memory for own requests.
fn own(script: &mut Script<'_>) -> Sge {
    Sge {
        addr: OWN.start + u64::from(script.byte()) * 8,
        bytes: u32::from(script.byte()) * 8,
        lkey: LKEY,
    }
}
