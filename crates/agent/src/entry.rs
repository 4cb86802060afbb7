//! The entries of the two rings, as bytes: requests of an application, completions of its agent.
//!
//! Decoding takes any bytes. What it returns is within the bounds of its type and means nothing more: which
//! queue pair, keys and addresses are an application's own is checked where they are used.
use catchment_verbs::{RemoteAddr, SendOp, Sge, WcOpcode, WcStatus};

/// Bytes of a request.
pub const REQUEST_BYTES: usize = PAYLOAD + MAX_INLINE_BYTES;
/// Bytes of a completion.
pub const COMPLETION_BYTES: usize = 40;
/// Most scatter-gather elements of a request.
pub const MAX_SGES: usize = 4;
/// Most bytes of inline data: the elements lie in the same place.
pub const MAX_INLINE_BYTES: usize = 256;

const SGE_BYTES: usize = 16;
const PAYLOAD: usize = 56;

const SIGNALED: u8 = 1;
const FENCE: u8 = 1 << 1;
const SOLICITED: u8 = 1 << 2;

const WRITE: u8 = 1;
const WRITE_IMM: u8 = 2;
const READ: u8 = 3;
const SEND: u8 = 4;
const SEND_IMM: u8 = 5;
const COMPARE_SWAP: u8 = 6;
const FETCH_ADD: u8 = 7;
const RECEIVE: u8 = 8;

/// Where the bytes of a request are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// So many elements of registered memory.
    Elements([Sge; MAX_SGES], u8),
    /// So many bytes in the entry itself.
    Inline([u8; MAX_INLINE_BYTES], u16),
}

impl Data {
    /// Copies elements, at most [`MAX_SGES`].
    #[must_use]
    pub fn of_elements(sges: &[Sge]) -> Option<Self> {
        let mut all = [Sge::default(); MAX_SGES];
        all.get_mut(..sges.len())?.copy_from_slice(sges);
        Some(Self::Elements(all, sges.len() as u8))
    }

    /// Copies bytes, at most [`MAX_INLINE_BYTES`].
    #[must_use]
    pub fn of_inline(bytes: &[u8]) -> Option<Self> {
        let mut all = [0; MAX_INLINE_BYTES];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self::Inline(all, bytes.len() as u16))
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Elements(..) => self.elements().iter().map(|sge| u64::from(sge.bytes)).sum(),
            Self::Inline(_, count) => (*count).into(),
        }
    }

    /// Returns the elements; none of inline data.
    #[must_use]
    pub fn elements(&self) -> &[Sge] {
        match self {
            Self::Elements(all, count) => &all[..usize::from(*count).min(MAX_SGES)],
            Self::Inline(..) => &[],
        }
    }

    /// Returns the bytes in the entry, if they are there.
    #[must_use]
    pub fn inline(&self) -> Option<&[u8]> {
        match self {
            Self::Elements(..) => None,
            Self::Inline(all, count) => Some(&all[..usize::from(*count).min(MAX_INLINE_BYTES)]),
        }
    }

    /// Returns the part of the elements that begins after `offset` bytes and has at most `bytes`.
    #[must_use]
    pub fn part(&self, offset: u64, bytes: u64) -> ([Sge; MAX_SGES], usize) {
        let (mut part, mut count) = ([Sge::default(); MAX_SGES], 0);
        let (mut skip, mut left) = (offset, bytes);
        for sge in self.elements() {
            let length = u64::from(sge.bytes);
            let take = length.saturating_sub(skip).min(left);
            if take > 0 {
                let addr = sge.addr.wrapping_add(skip.min(length));
                part[count] = Sge { addr, bytes: take as u32, lkey: sge.lkey };
                count += 1;
            }
            skip = skip.saturating_sub(length);
            left -= take;
        }
        (part, count)
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A request of the send queue.
    Send {
        /// What to do. Never an operation of another service than RC.
        op: SendOp,
        /// Generate a completion on success.
        signaled: bool,
        /// Wait for earlier READs and atomics.
        fence: bool,
        /// Wake a peer that sleeps for solicited events.
        solicited: bool,
    },
    /// A receive.
    Receive,
}

/// A request of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The number of the queue pair.
    pub qpn: u32,
    /// The number of the request in its queue, returned in the completion.
    pub seq: u64,
    /// What to do.
    pub work: Work,
    /// With which bytes.
    pub data: Data,
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Returns the code of an operation, its place, its immediate and its two operands; `None` if RC lacks it
/// here.
fn fields(op: &SendOp) -> Option<(u8, RemoteAddr, u32, [u64; 2])> {
    let nowhere = RemoteAddr::default();
    Some(match *op {
        SendOp::Write(to) => (WRITE, to, 0, [0; 2]),
        SendOp::WriteImm(to, imm) => (WRITE_IMM, to, imm, [0; 2]),
        SendOp::Read(from) => (READ, from, 0, [0; 2]),
        SendOp::Send => (SEND, nowhere, 0, [0; 2]),
        SendOp::SendImm(imm) => (SEND_IMM, nowhere, imm, [0; 2]),
        SendOp::CompareSwap { remote, compare, swap } => (COMPARE_SWAP, remote, 0, [compare, swap]),
        SendOp::FetchAdd { remote, add } => (FETCH_ADD, remote, 0, [add, 0]),
        SendOp::SendInvalidate(_) | SendOp::SendTo(_) | SendOp::SendImmTo(..) => return None,
    })
}

impl Request {
    /// Returns its bytes; `None` for an operation that rings do not carry.
    #[must_use]
    pub fn encode(&self) -> Option<[u8; REQUEST_BYTES]> {
        let mut out = [0; REQUEST_BYTES];
        if let Work::Send { op, signaled, fence, solicited } = &self.work {
            let (code, remote, imm, operands) = fields(op)?;
            let flag = |set: bool, bit: u8| if set { bit } else { 0 };
            out[0] = code;
            out[1] = flag(*signaled, SIGNALED) | flag(*fence, FENCE) | flag(*solicited, SOLICITED);
            put(&mut out, 16, remote.addr.to_le_bytes());
            put(&mut out, 24, remote.rkey.to_le_bytes());
            put(&mut out, 28, imm.to_le_bytes());
            put(&mut out, 32, operands[0].to_le_bytes());
            put(&mut out, 40, operands[1].to_le_bytes());
        } else {
            out[0] = RECEIVE;
        }
        put(&mut out, 4, self.qpn.to_le_bytes());
        put(&mut out, 8, self.seq.to_le_bytes());
        match &self.data {
            Data::Elements(all, count) => {
                out[2] = *count;
                for (n, sge) in all.iter().enumerate() {
                    let at = PAYLOAD + n * SGE_BYTES;
                    put(&mut out, at, sge.addr.to_le_bytes());
                    put(&mut out, at + 8, sge.bytes.to_le_bytes());
                    put(&mut out, at + 12, sge.lkey.to_le_bytes());
                }
            }
            Data::Inline(all, count) => {
                out[3] = 1;
                put(&mut out, 48, count.to_le_bytes());
                put(&mut out, PAYLOAD, *all);
            }
        }
        Some(out)
    }

    /// Returns the request of these bytes; `None` if no honest application wrote them.
    #[must_use]
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let addr = u64::from_le_bytes(get(bytes, 16));
        let remote = RemoteAddr { addr, rkey: u32::from_le_bytes(get(bytes, 24)) };
        let imm = u32::from_le_bytes(get(bytes, 28));
        let (first, second) =
            (u64::from_le_bytes(get(bytes, 32)), u64::from_le_bytes(get(bytes, 40)));
        let data = decode_data(bytes)?;
        let op = match bytes[0] {
            WRITE => SendOp::Write(remote),
            WRITE_IMM => SendOp::WriteImm(remote, imm),
            READ => SendOp::Read(remote),
            SEND => SendOp::Send,
            SEND_IMM => SendOp::SendImm(imm),
            COMPARE_SWAP => SendOp::CompareSwap { remote, compare: first, swap: second },
            FETCH_ADD => SendOp::FetchAdd { remote, add: first },
            RECEIVE => {
                let work = Work::Receive;
                return data.inline().is_none().then(|| Self::of(bytes, work, data));
            }
            _ => return None,
        };
        let has = |bit| bytes[1] & bit != 0;
        let work = Work::Send {
            op,
            signaled: has(SIGNALED),
            fence: has(FENCE),
            solicited: has(SOLICITED),
        };
        let fits = match op {
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                data.inline().is_none() && data.bytes() == 8
            }
            SendOp::Read(_) => data.inline().is_none(),
            SendOp::Write(_)
            | SendOp::WriteImm(..)
            | SendOp::Send
            | SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::SendTo(_)
            | SendOp::SendImmTo(..) => true,
        };
        fits.then(|| Self::of(bytes, work, data))
    }

    fn of(bytes: &[u8; REQUEST_BYTES], work: Work, data: Data) -> Self {
        let qpn = u32::from_le_bytes(get(bytes, 4));
        Self { qpn, seq: u64::from_le_bytes(get(bytes, 8)), work, data }
    }
}

fn decode_data(bytes: &[u8; REQUEST_BYTES]) -> Option<Data> {
    let count = match bytes[3] {
        0 => usize::from(bytes[2]),
        _ => usize::from(u16::from_le_bytes(get(bytes, 48))),
    };
    match bytes[3] {
        0 if count <= MAX_SGES => {
            let mut all = [Sge::default(); MAX_SGES];
            for (n, sge) in all.iter_mut().enumerate().take(count) {
                let at = PAYLOAD + n * SGE_BYTES;
                sge.addr = u64::from_le_bytes(get(bytes, at));
                sge.bytes = u32::from_le_bytes(get(bytes, at + 8));
                sge.lkey = u32::from_le_bytes(get(bytes, at + 12));
            }
            Some(Data::Elements(all, count as u8))
        }
        1 if count <= MAX_INLINE_BYTES => Data::of_inline(&bytes[PAYLOAD..PAYLOAD + count]),
        _ => None,
    }
}

/// What an agent tells an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// The number of the queue pair.
    pub qpn: u32,
    /// What happened there.
    pub event: Event,
}

/// What happened on a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request of the send queue is done.
    Sent(Done),
    /// A receive is done.
    Received(Done),
    /// The queue pair went to the error state.
    Failed,
}

/// A request that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The number of the request in its queue.
    pub seq: u64,
    /// The kind of the request and its bytes, or why it failed.
    pub result: Result<(WcOpcode, u64), (WcStatus, u32)>,
    /// Immediate data of a message.
    pub imm: Option<u32>,
}

const SENT: u8 = 1;
const RECEIVED: u8 = 2;
const FAILED: u8 = 3;

const OPCODES: [WcOpcode; 7] = [
    WcOpcode::Send,
    WcOpcode::Write,
    WcOpcode::Read,
    WcOpcode::CompareSwap,
    WcOpcode::FetchAdd,
    WcOpcode::Recv,
    WcOpcode::RecvWriteImm,
];

const STATUSES: [WcStatus; 11] = [
    WcStatus::LocalLength,
    WcStatus::LocalQpOperation,
    WcStatus::LocalProtection,
    WcStatus::Flushed,
    WcStatus::BadResponse,
    WcStatus::RemoteInvalidRequest,
    WcStatus::RemoteAccess,
    WcStatus::RemoteOperation,
    WcStatus::TransportRetryExceeded,
    WcStatus::RnrRetryExceeded,
    WcStatus::General,
];

fn place<T: PartialEq>(all: &[T], value: &T) -> Option<u8> {
    all.iter().position(|known| known == value).map(|at| at as u8)
}

impl Notice {
    /// Returns its bytes. A status that has no number here becomes [`WcStatus::General`].
    #[must_use]
    pub fn encode(&self) -> [u8; COMPLETION_BYTES] {
        let mut out = [0; COMPLETION_BYTES];
        put(&mut out, 4, self.qpn.to_le_bytes());
        let (kind, done) = match &self.event {
            Event::Sent(done) => (SENT, done),
            Event::Received(done) => (RECEIVED, done),
            Event::Failed => {
                out[0] = FAILED;
                return out;
            }
        };
        out[0] = kind;
        put(&mut out, 8, done.seq.to_le_bytes());
        match done.result {
            Ok((opcode, bytes)) => {
                out[1] = place(&OPCODES, &opcode).unwrap_or(0);
                put(&mut out, 16, bytes.to_le_bytes());
            }
            Err((status, vendor_err)) => {
                let general = STATUSES.len() as u8 - 1;
                out[2] = place(&STATUSES, &status).unwrap_or(general) + 1;
                put(&mut out, 24, vendor_err.to_le_bytes());
            }
        }
        out[3] = u8::from(done.imm.is_some());
        put(&mut out, 28, done.imm.unwrap_or(0).to_le_bytes());
        out
    }

    /// Returns what these bytes say; `None` if no agent wrote them.
    #[must_use]
    pub fn decode(bytes: &[u8; COMPLETION_BYTES]) -> Option<Self> {
        let qpn = u32::from_le_bytes(get(bytes, 4));
        if bytes[0] == FAILED {
            return Some(Self { qpn, event: Event::Failed });
        }
        let result = match bytes[2] {
            0 => Ok((*OPCODES.get(usize::from(bytes[1]))?, u64::from_le_bytes(get(bytes, 16)))),
            status => {
                let status = *STATUSES.get(usize::from(status - 1))?;
                Err((status, u32::from_le_bytes(get(bytes, 24))))
            }
        };
        let done = Done {
            seq: u64::from_le_bytes(get(bytes, 8)),
            result,
            imm: (bytes[3] & 1 != 0).then(|| u32::from_le_bytes(get(bytes, 28))),
        };
        match bytes[0] {
            SENT => Some(Self { qpn, event: Event::Sent(done) }),
            RECEIVED => Some(Self { qpn, event: Event::Received(done) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(n: u64) -> Sge {
        Sge { addr: 1000 * n, bytes: 10 * n as u32, lkey: n as u32 }
    }

    #[test]
    fn requests_read_back() {
        let remote = RemoteAddr { addr: u64::MAX - 3, rkey: 0xdead_beef };
        let eight = Data::of_elements(&[Sge { bytes: 8, ..sge(1) }]).unwrap();
        let four = Data::of_elements(&[sge(1), sge(2), sge(3), sge(4)]).unwrap();
        let inline = Data::of_inline(&[7; MAX_INLINE_BYTES]).unwrap();
        let nothing = Data::of_elements(&[]).unwrap();
        for (op, data) in [
            (SendOp::Write(remote), four),
            (SendOp::Write(remote), inline),
            (SendOp::WriteImm(remote, u32::MAX), nothing),
            (SendOp::Read(remote), four),
            (SendOp::Send, inline),
            (SendOp::SendImm(9), four),
            (SendOp::CompareSwap { remote, compare: 1, swap: u64::MAX }, eight),
            (SendOp::FetchAdd { remote, add: 77 }, eight),
        ] {
            for bits in 0..8u8 {
                let [signaled, fence, solicited] = [0, 1, 2].map(|bit| bits >> bit & 1 == 1);
                let work = Work::Send { op, signaled, fence, solicited };
                let request = Request { qpn: 0xff_ffff, seq: u64::MAX, work, data };
                assert_eq!(Request::decode(&request.encode().unwrap()), Some(request));
            }
        }
        let receive = Request { qpn: 5, seq: 6, work: Work::Receive, data: four };
        assert_eq!(Request::decode(&receive.encode().unwrap()), Some(receive));
    }

    #[test]
    fn what_no_application_asks_for_is_no_request() {
        let remote = RemoteAddr::default();
        let of = |op, data| {
            let work = Work::Send { op, signaled: true, fence: false, solicited: false };
            Request { qpn: 1, seq: 1, work, data }.encode()
        };
        let inline = Data::of_inline(&[1; 8]).unwrap();
        let nine = Data::of_elements(&[Sge { bytes: 9, ..sge(1) }]).unwrap();
        for (op, data) in [
            (SendOp::Read(remote), inline),
            (SendOp::FetchAdd { remote, add: 1 }, inline),
            (SendOp::FetchAdd { remote, add: 1 }, nine),
        ] {
            assert_eq!(Request::decode(&of(op, data).unwrap()), None, "{op:?}");
        }
        assert!(of(SendOp::SendInvalidate(1), inline).is_none());
        let good = of(SendOp::Send, inline).unwrap();
        for (at, value) in [(0, 0), (0, RECEIVE), (0, 9), (49, 2), (3, 2)] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(Request::decode(&bytes), None, "byte {at} = {value}");
        }
    }

    #[test]
    fn completions_read_back() {
        let results = OPCODES.iter().map(|opcode| Ok((*opcode, u64::MAX)));
        let failures = STATUSES.iter().map(|status| Err((*status, 0xffff_ffff)));
        for result in results.chain(failures) {
            for imm in [None, Some(0), Some(u32::MAX)] {
                let done = Done { seq: 1 << 40, result, imm };
                for event in [Event::Sent(done), Event::Received(done), Event::Failed] {
                    let notice = Notice { qpn: 17, event };
                    assert_eq!(Notice::decode(&notice.encode()), Some(notice));
                }
            }
        }
        assert_eq!(Notice::decode(&[0; COMPLETION_BYTES]), None);
        assert_eq!(Notice::decode(&[0xff; COMPLETION_BYTES]), None);
    }

    #[test]
    fn a_part_of_the_elements_has_the_bytes_in_between() {
        let data = Data::of_elements(&[sge(1), sge(2), sge(0), sge(3)]).unwrap();
        let whole = data.part(0, u64::MAX);
        assert_eq!(&whole.0[..whole.1], [sge(1), sge(2), sge(3)]);
        let (part, count) = data.part(5, 30);
        let expected =
            [Sge { addr: 1005, bytes: 5, lkey: 1 }, sge(2), Sge { addr: 3000, bytes: 5, lkey: 3 }];
        assert_eq!(&part[..count], expected);
        assert_eq!(data.part(60, 5).1, 0);
    }
}
