//! The entries of the two rings, as bytes: requests of an application, completions of its agent.
//!
//! Decoding takes any bytes. What it returns is within the bounds of its type and means nothing more: which
//! queue pair, keys and addresses are an application's own is checked where they are used.
mod notice;

use catchment_verbs::{Destination, Payload, RemoteAddr, SendOp, Sge};
pub use notice::{Done, Event, Notice};

/// Bytes of a request's head: all of most requests. With the turn of its slot it fills a cache line.
pub const HEAD_BYTES: usize = 56;
/// Bytes of the rest, which lies elsewhere: inline data, the elements after the first, what is swapped in.
pub const REST_BYTES: usize = MAX_INLINE_BYTES;
/// Bytes of a completion. With the turn of its slot it fills a cache line.
pub const COMPLETION_BYTES: usize = 56;
/// Most scatter-gather elements of a request.
pub const MAX_SGES: usize = 4;
/// Most bytes of inline data.
pub const MAX_INLINE_BYTES: usize = 256;

const SGE_BYTES: usize = 16;
const FIRST_SGE: usize = 32;
const OPERAND: usize = 48;
const SWAP_BYTES: usize = 8;
const MORE_BYTES: usize = (MAX_SGES - 1) * SGE_BYTES;

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
const SEND_TO: u8 = 9;
const SEND_IMM_TO: u8 = 10;

/// Where the bytes of a request are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// So many elements of registered memory.
    Elements([Sge; MAX_SGES], u8),
    /// So many bytes in the rest of the entry.
    Inline(u16),
}

impl Data {
    /// Copies elements, at most [`MAX_SGES`].
    #[must_use]
    #[inline]
    pub fn of_elements(sges: &[Sge]) -> Option<Self> {
        let mut all = [Sge::default(); MAX_SGES];
        all.get_mut(..sges.len())?.copy_from_slice(sges);
        Some(Self::Elements(all, sges.len() as u8))
    }

    /// Returns where the bytes of a payload are; `None` if entries carry none of this length.
    #[must_use]
    #[inline]
    pub fn of(payload: &Payload<'_>) -> Option<Self> {
        match payload {
            Payload::Sges(sges) => Self::of_elements(sges),
            Payload::Inline(bytes) if bytes.len() <= MAX_INLINE_BYTES => {
                Some(Self::Inline(bytes.len() as u16))
            }
            Payload::Inline(_) => None,
        }
    }

    /// Returns the length in bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Elements(..) => self.elements().iter().map(|sge| u64::from(sge.bytes)).sum(),
            Self::Inline(count) => (*count).into(),
        }
    }

    /// Returns the elements; none of inline data.
    #[must_use]
    #[inline]
    pub fn elements(&self) -> &[Sge] {
        match self {
            Self::Elements(all, count) => &all[..usize::from(*count).min(MAX_SGES)],
            Self::Inline(_) => &[],
        }
    }

    /// Returns whether the bytes are in the entry itself.
    #[must_use]
    #[inline]
    pub fn is_inline(&self) -> bool {
        matches!(self, Self::Inline(_))
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
        /// What to do.
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
    /// The application's number of the queue pair.
    pub queue_pair: u32,
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

/// Returns where a datagram goes, in the place of a remote address.
fn place_of(to: &Destination) -> RemoteAddr {
    RemoteAddr { addr: u64::from(to.ah) | u64::from(to.qpn) << 32, rkey: to.qkey }
}

fn destination(place: &RemoteAddr) -> Destination {
    Destination { ah: place.addr as u32, qpn: (place.addr >> 32) as u32, qkey: place.rkey }
}

/// Returns the code of an operation, its place, its immediate and its two operands; `None` if agents do not offer it.
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
        SendOp::SendTo(to) => (SEND_TO, place_of(&to), 0, [0; 2]),
        SendOp::SendImmTo(to, imm) => (SEND_IMM_TO, place_of(&to), imm, [0; 2]),
        SendOp::SendInvalidate(_) => return None,
    })
}

fn put_sge(out: &mut [u8], at: usize, sge: &Sge) {
    put(out, at, sge.addr.to_le_bytes());
    put(out, at + 8, sge.bytes.to_le_bytes());
    put(out, at + 12, sge.lkey.to_le_bytes());
}

fn get_sge(bytes: &[u8], at: usize) -> Sge {
    Sge {
        addr: u64::from_le_bytes(get(bytes, at)),
        bytes: u32::from_le_bytes(get(bytes, at + 8)),
        lkey: u32::from_le_bytes(get(bytes, at + 12)),
    }
}

impl Request {
    /// Returns its head; `None` for an operation that rings do not carry.
    #[must_use]
    #[inline]
    pub fn head(&self) -> Option<[u8; HEAD_BYTES]> {
        let mut out = [0; HEAD_BYTES];
        if let Work::Send { op, signaled, fence, solicited } = &self.work {
            let (code, remote, imm, operands) = fields(op)?;
            let flag = |set: bool, bit: u8| if set { bit } else { 0 };
            out[0] = code;
            out[1] = flag(*signaled, SIGNALED) | flag(*fence, FENCE) | flag(*solicited, SOLICITED);
            put(&mut out, 16, remote.addr.to_le_bytes());
            put(&mut out, 24, remote.rkey.to_le_bytes());
            put(&mut out, 28, imm.to_le_bytes());
            put(&mut out, OPERAND, operands[0].to_le_bytes());
        } else {
            out[0] = RECEIVE;
        }
        put(&mut out, 4, self.queue_pair.to_le_bytes());
        put(&mut out, 8, self.seq.to_le_bytes());
        match &self.data {
            Data::Elements(all, count) => {
                out[2] = *count;
                put_sge(&mut out, FIRST_SGE, &all[0]);
            }
            Data::Inline(count) => {
                out[3] = 1;
                put(&mut out, FIRST_SGE, count.to_le_bytes());
            }
        }
        Some(out)
    }

    /// Returns the rest but for inline data, and how many bytes of it there are.
    #[must_use]
    #[inline]
    pub fn rest(&self) -> ([u8; MORE_BYTES], usize) {
        let mut out = [0; MORE_BYTES];
        if let Work::Send { op: SendOp::CompareSwap { swap, .. }, .. } = self.work {
            put(&mut out, 0, swap.to_le_bytes());
            return (out, SWAP_BYTES);
        }
        let more = self.data.elements().get(1..).unwrap_or_default();
        for (n, sge) in more.iter().enumerate() {
            put_sge(&mut out, n * SGE_BYTES, sge);
        }
        (out, more.len() * SGE_BYTES)
    }

    /// Returns how many bytes of the rest a head speaks of, at most [`REST_BYTES`].
    #[must_use]
    #[inline]
    pub fn rest_bytes(head: &[u8; HEAD_BYTES]) -> usize {
        if head[3] != 0 {
            return usize::from(u16::from_le_bytes(get(head, FIRST_SGE))).min(REST_BYTES);
        }
        if head[0] == COMPARE_SWAP {
            return SWAP_BYTES;
        }
        usize::from(head[2]).clamp(1, MAX_SGES) * SGE_BYTES - SGE_BYTES
    }

    /// Returns the request of this head and the rest that it speaks of ([`Request::rest_bytes`]); `None` if
    /// no honest application wrote them.
    #[must_use]
    #[inline]
    pub fn decode(head: &[u8; HEAD_BYTES], rest: &[u8]) -> Option<Self> {
        let data = decode_data(head, rest)?;
        let addr = u64::from_le_bytes(get(head, 16));
        let remote = RemoteAddr { addr, rkey: u32::from_le_bytes(get(head, 24)) };
        let imm = u32::from_le_bytes(get(head, 28));
        let operand = u64::from_le_bytes(get(head, OPERAND));
        let (inline, is_word) = (data.is_inline(), data.bytes() == 8);
        let (op, fits) = match head[0] {
            WRITE => (SendOp::Write(remote), true),
            WRITE_IMM => (SendOp::WriteImm(remote, imm), true),
            READ => (SendOp::Read(remote), !inline),
            SEND => (SendOp::Send, true),
            SEND_IMM => (SendOp::SendImm(imm), true),
            SEND_TO => (SendOp::SendTo(destination(&remote)), true),
            SEND_IMM_TO => (SendOp::SendImmTo(destination(&remote), imm), true),
            COMPARE_SWAP if rest.len() == SWAP_BYTES => {
                let swap = u64::from_le_bytes(get(rest, 0));
                (SendOp::CompareSwap { remote, compare: operand, swap }, !inline && is_word)
            }
            FETCH_ADD => (SendOp::FetchAdd { remote, add: operand }, !inline && is_word),
            RECEIVE => return (!inline).then(|| Self::of(head, Work::Receive, data)),
            _ => return None,
        };
        let has = |bit| head[1] & bit != 0;
        let (signaled, fence, solicited) = (has(SIGNALED), has(FENCE), has(SOLICITED));
        fits.then(|| Self::of(head, Work::Send { op, signaled, fence, solicited }, data))
    }

    fn of(head: &[u8; HEAD_BYTES], work: Work, data: Data) -> Self {
        let queue_pair = u32::from_le_bytes(get(head, 4));
        Self { queue_pair, seq: u64::from_le_bytes(get(head, 8)), work, data }
    }
}

fn decode_data(head: &[u8; HEAD_BYTES], rest: &[u8]) -> Option<Data> {
    match head[3] {
        0 => {
            let count = usize::from(head[2]);
            let is_word = head[0] == COMPARE_SWAP;
            let more = if is_word { 0 } else { count.saturating_sub(1) };
            if count > MAX_SGES
                || (is_word && count != 1)
                || (!is_word && rest.len() < more * SGE_BYTES)
            {
                return None;
            }
            let mut all = [Sge::default(); MAX_SGES];
            if count > 0 {
                all[0] = get_sge(head, FIRST_SGE);
            }
            for n in 0..more {
                all[n + 1] = get_sge(rest, n * SGE_BYTES);
            }
            Some(Data::Elements(all, count as u8))
        }
        1 => {
            let count = u16::from_le_bytes(get(head, FIRST_SGE));
            (usize::from(count) == rest.len()).then_some(Data::Inline(count))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(n: u64) -> Sge {
        Sge { addr: 1000 * n, bytes: 10 * n as u32, lkey: n as u32 }
    }

    /// Writes a request and reads it.
    fn again(request: &Request) -> Option<Request> {
        let head = request.head().unwrap();
        let (mut rest, count) = ([7; REST_BYTES], Request::rest_bytes(&head));
        let (written, more) = request.rest();
        rest[..more].copy_from_slice(&written[..more]);
        Request::decode(&head, &rest[..count])
    }

    #[test]
    fn requests_read_back() {
        let remote = RemoteAddr { addr: u64::MAX - 3, rkey: 0xdead_beef };
        let to = Destination { ah: 3, qpn: 0xff_ffff, qkey: 0x7fff_ffff };
        let eight = Data::of_elements(&[Sge { bytes: 8, ..sge(1) }]).unwrap();
        let four = Data::of_elements(&[sge(1), sge(2), sge(3), sge(4)]).unwrap();
        let inline = Data::Inline(MAX_INLINE_BYTES as u16);
        let nothing = Data::of_elements(&[]).unwrap();
        for (op, data) in [
            (SendOp::Write(remote), four),
            (SendOp::Write(remote), inline),
            (SendOp::WriteImm(remote, u32::MAX), nothing),
            (SendOp::Read(remote), four),
            (SendOp::Send, inline),
            (SendOp::SendImm(9), four),
            (SendOp::SendTo(to), inline),
            (SendOp::SendImmTo(Destination { ah: u32::MAX, qpn: 0, qkey: 1 }, 7), four),
            (SendOp::CompareSwap { remote, compare: 1, swap: u64::MAX }, eight),
            (SendOp::FetchAdd { remote, add: 77 }, eight),
        ] {
            for bits in 0..8u8 {
                let [signaled, fence, solicited] = [0, 1, 2].map(|bit| bits >> bit & 1 == 1);
                let work = Work::Send { op, signaled, fence, solicited };
                let request = Request { queue_pair: 0xff_ffff, seq: u64::MAX, work, data };
                assert_eq!(again(&request), Some(request));
            }
        }
        let receive = Request { queue_pair: 5, seq: 6, work: Work::Receive, data: four };
        assert_eq!(again(&receive), Some(receive));
    }

    #[test]
    fn what_no_application_asks_for_is_no_request() {
        let remote = RemoteAddr::default();
        let of = |op, data| {
            let work = Work::Send { op, signaled: true, fence: false, solicited: false };
            Request { queue_pair: 1, seq: 1, work, data }
        };
        let inline = Data::Inline(8);
        let nine = Data::of_elements(&[Sge { bytes: 9, ..sge(1) }]).unwrap();
        let swap = SendOp::CompareSwap { remote, compare: 1, swap: 2 };
        for (op, data) in [
            (SendOp::Read(remote), inline),
            (SendOp::FetchAdd { remote, add: 1 }, inline),
            (SendOp::FetchAdd { remote, add: 1 }, nine),
            (swap, inline),
            (swap, nine),
            (swap, Data::of_elements(&[sge(0), Sge { bytes: 8, ..sge(1) }]).unwrap()),
        ] {
            assert_eq!(again(&of(op, data)), None, "{op:?}");
        }
        assert!(of(SendOp::SendInvalidate(1), inline).head().is_none());
        let good = of(SendOp::Send, inline).head().unwrap();
        for (at, value) in [(0, 0), (0, RECEIVE), (0, 11), (FIRST_SGE + 1, 2), (3, 2)] {
            let mut head = good;
            head[at] = value;
            let rest = [0; REST_BYTES];
            let decoded = Request::decode(&head, &rest[..Request::rest_bytes(&head)]);
            assert_eq!(decoded, None, "byte {at} = {value}");
        }
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
