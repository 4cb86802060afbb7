//! The messages between service threads: one fixed length, little endian, every field checked.
use catchment_verbs::Gid;

/// Bytes of every message.
pub(crate) const MESSAGE_BYTES: usize = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"CShm");
/// Raised with every change; both sides must have the same.
pub(crate) const VERSION: u16 = 4;

/// A bit of the reply to Hello. Who does not know it sends 0, does not look at it, and makes its fences.
const FENCES_FOR_WRITERS: u32 = 1;

/// What a peer must know of a queue pair to send to it. Sent with the inbox's descriptor, then the
/// descriptors of the two channels, if `channels` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QpFacts {
    /// Its number.
    pub(crate) qpn: u32,
    /// Rights of the peer, as in INIT.
    pub(crate) access: u32,
    /// Number of this inbox: a queue pair gets a new one at each reset.
    pub(crate) inbox_id: u64,
    /// Bytes of the inbox's message ring; a power of two, or 0 if no receive can be posted.
    pub(crate) ring_bytes: u32,
    /// Receives that can be posted.
    pub(crate) recv_slots: u32,
    /// How long a sender waits while no receive is posted.
    pub(crate) rnr_timer_us: u32,
    /// Which channels exist: [`QpFacts::RECV_CHANNEL`], [`QpFacts::SEND_CHANNEL`].
    pub(crate) channels: u32,
}

impl QpFacts {
    /// A descriptor that wakes a thread waiting for messages.
    pub(crate) const RECV_CHANNEL: u32 = 1;
    /// A descriptor that wakes a thread waiting until messages are taken.
    pub(crate) const SEND_CHANNEL: u32 = 2;

    /// Returns how many descriptors must come with it.
    pub(crate) fn descriptors(&self) -> usize {
        1 + self.channels.count_ones() as usize
    }
}

/// Requests of one context to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// The first message: identifies the sender, and shows that it was told the GID of the receiver.
    Hello { gid: Gid, peer: Gid },
    /// Connects the caller's queue pair with `target`.
    OpenQp { target: u32, caller: QpFacts },
    /// Requests the region of `rkey`.
    Resolve { target: u32, rkey: u32 },
    /// Reports that a request of the caller's queue pair was not allowed: `target` fails.
    Fault { target: u32, status: u32 },
}

/// Replies of the other context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// With the descriptors of the key table (read only) and of the bells. `fences_for_writers`: a thread that
    /// sleeps on a region makes the fence of registered processes that write it (membarrier).
    Hello { fences_for_writers: bool },
    /// With the descriptors that [`QpFacts`] names.
    Qp(QpFacts),
    /// The two queue pairs are connected already, by a request that the other one made.
    Known,
    /// With the descriptor of the region and the event counter of its owner.
    Region { addr: u64, bytes: u64, access: u32 },
    /// Refused.
    Refused(Refusal),
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The queue pair is not in RTR yet, or still has an older connection.
    #[error("its queue pair is not ready yet")]
    NotReady,
    /// There is no such queue pair.
    #[error("it has no queue pair of that number; exchange the endpoints again")]
    NoQueuePair,
    /// The queue pair is connected to a different one.
    #[error("its queue pair expects another peer; exchange the endpoints again")]
    NotYourPeer,
    /// The queue pair is in the error state.
    #[error("its queue pair is in the error state")]
    Broken,
    /// No region has that key, or one of another protection domain.
    #[error("no region of its protection domain has that key")]
    NoRegion,
    /// The message was invalid.
    #[error("it did not understand the message; both sides must run the same version")]
    Malformed,
    /// The system refused a descriptor.
    #[error("its process has no file descriptor left; raise its limit (ulimit -n)")]
    NoDescriptor,
    /// The process of the asker, or all together, have as many connections as they may.
    #[error(
        "it has as many connections of this process, or of all, as it takes; close some, or raise its \
         limit of file descriptors (ulimit -n)"
    )]
    TooMany,
}

const REFUSALS: [Refusal; 8] = [
    Refusal::NotReady,
    Refusal::NoQueuePair,
    Refusal::NotYourPeer,
    Refusal::Broken,
    Refusal::NoRegion,
    Refusal::Malformed,
    Refusal::NoDescriptor,
    Refusal::TooMany,
];

struct Writer {
    bytes: [u8; MESSAGE_BYTES],
    at: usize,
}

impl Writer {
    fn new(kind: u16) -> Self {
        let mut writer = Self { bytes: [0; MESSAGE_BYTES], at: 0 };
        writer.put(&MAGIC.to_le_bytes());
        writer.put(&VERSION.to_le_bytes());
        writer.put(&kind.to_le_bytes());
        writer
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    fn facts(&mut self, facts: &QpFacts) -> &mut Self {
        self.u32(facts.qpn)
            .u32(facts.access)
            .u64(facts.inbox_id)
            .u32(facts.ring_bytes)
            .u32(facts.recv_slots)
            .u32(facts.rnr_timer_us)
            .u32(facts.channels)
    }
}

/// Returns the version of a message of another version.
pub(crate) fn other_version(bytes: &[u8]) -> Option<u16> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let version = u16::from_le_bytes(*rest.first_chunk()?);
    (u32::from_le_bytes(*magic) == MAGIC && version != VERSION).then_some(version)
}

/// Reads fields; every message has its full length, so no read is beyond the end.
struct Reader<'a> {
    bytes: &'a [u8; MESSAGE_BYTES],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Returns the kind and the rest, if it is a message of ours.
    fn new(bytes: &'a [u8]) -> Option<(u16, Self)> {
        let mut reader = Reader { bytes: bytes.try_into().ok()?, at: 0 };
        let ours = reader.u32() == MAGIC && reader.u16() == VERSION;
        let kind = reader.u16();
        ours.then_some((kind, reader))
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        out
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn facts(&mut self) -> Option<QpFacts> {
        let facts = QpFacts {
            qpn: self.u32(),
            access: self.u32(),
            inbox_id: self.u64(),
            ring_bytes: self.u32(),
            recv_slots: self.u32(),
            rnr_timer_us: self.u32(),
            channels: self.u32(),
        };
        (facts.channels & !(QpFacts::RECV_CHANNEL | QpFacts::SEND_CHANNEL) == 0).then_some(facts)
    }
}

impl Request {
    /// Encodes it.
    pub(crate) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        match self {
            Self::Hello { gid, peer } => Writer::new(1).put(&gid.0).put(&peer.0).bytes,
            Self::OpenQp { target, caller } => Writer::new(2).u32(*target).facts(caller).bytes,
            Self::Resolve { target, rkey } => Writer::new(3).u32(*target).u32(*rkey).bytes,
            Self::Fault { target, status } => Writer::new(4).u32(*target).u32(*status).bytes,
        }
    }

    /// Returns the request in these bytes, if there is one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, mut reader) = Reader::new(bytes)?;
        if kind == 1 {
            return Some(Self::Hello { gid: Gid(reader.take()), peer: Gid(reader.take()) });
        }
        let target = reader.u32();
        Some(match kind {
            2 => Self::OpenQp { target, caller: reader.facts()? },
            3 => Self::Resolve { target, rkey: reader.u32() },
            4 => Self::Fault { target, status: reader.u32() },
            _ => return None,
        })
    }

    /// Returns how many descriptors must come with it.
    pub(crate) fn descriptors(&self) -> usize {
        match self {
            Self::OpenQp { caller, .. } => caller.descriptors(),
            Self::Hello { .. } | Self::Resolve { .. } | Self::Fault { .. } => 0,
        }
    }
}

impl Reply {
    /// Encodes it.
    pub(crate) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        match self {
            Self::Hello { fences_for_writers } => {
                Writer::new(101).u32(if *fences_for_writers { FENCES_FOR_WRITERS } else { 0 }).bytes
            }
            Self::Qp(facts) => Writer::new(102).facts(facts).bytes,
            Self::Region { addr, bytes, access } => {
                Writer::new(103).u64(*addr).u64(*bytes).u32(*access).bytes
            }
            Self::Known => Writer::new(104).bytes,
            Self::Refused(reason) => {
                let code = REFUSALS.iter().position(|r| r == reason).unwrap_or(0);
                Writer::new(105).u32(code as u32).bytes
            }
        }
    }

    /// Returns the reply in these bytes, if there is one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, mut reader) = Reader::new(bytes)?;
        Some(match kind {
            101 => Self::Hello { fences_for_writers: reader.u32() & FENCES_FOR_WRITERS != 0 },
            102 => Self::Qp(reader.facts()?),
            103 => Self::Region { addr: reader.u64(), bytes: reader.u64(), access: reader.u32() },
            104 => Self::Known,
            105 => Self::Refused(*REFUSALS.get(reader.u32() as usize)?),
            _ => return None,
        })
    }

    /// Returns how many descriptors must come with it.
    pub(crate) fn descriptors(&self) -> usize {
        match self {
            Self::Hello { .. } | Self::Region { .. } => 2,
            Self::Qp(facts) => facts.descriptors(),
            Self::Known | Self::Refused(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: QpFacts = QpFacts {
        qpn: 0x12_3456,
        access: 7,
        inbox_id: u64::MAX - 3,
        ring_bytes: 65_536,
        recv_slots: 300,
        rnr_timer_us: 640,
        channels: 3,
    };

    #[test]
    fn every_message_reads_back_what_was_written() {
        for request in [
            Request::Hello { gid: Gid([9; 16]), peer: Gid([8; 16]) },
            Request::OpenQp { target: 5, caller: FACTS },
            Request::Resolve { target: 6, rkey: 7 },
            Request::Fault { target: 8, status: 2 },
        ] {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        let mut replies = vec![
            Reply::Hello { fences_for_writers: false },
            Reply::Hello { fences_for_writers: true },
            Reply::Qp(FACTS),
            Reply::Region { addr: 1 << 40, bytes: 3, access: 15 },
            Reply::Known,
        ];
        replies.extend(REFUSALS.map(Reply::Refused));
        for reply in replies {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }

    /// The messages of section 10 of docs/spec/shm.md, in its order.
    #[test]
    fn messages_are_those_of_the_page() {
        let (target, facts) = (0x12_3456, QpFacts { qpn: 0xab_cdef, inbox_id: 3, ..FACTS });
        let expected = [
            Request::Hello { gid: Gid([1; 16]), peer: Gid([2; 16]) }.encode(),
            Request::OpenQp { target, caller: facts }.encode(),
            Request::Resolve { target, rkey: 0x89ab_cdef }.encode(),
            Request::Fault { target, status: 1 }.encode(),
            Reply::Hello { fences_for_writers: true }.encode(),
            Reply::Region { addr: 0x7f00_0000_1000, bytes: 1 << 20, access: 15 }.encode(),
            Reply::Refused(Refusal::TooMany).encode(),
        ];
        let page = include_str!("../../../docs/spec/shm.md");
        let rows =
            page.lines().filter_map(|line| line.split_once("| `4353686d")?.1.split_once('`'));
        let seen: Vec<String> = rows.map(|(hex, _)| hex.replace(' ', "")).collect();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(seen.len(), expected.len());
        for (seen, expected) in seen.iter().zip(expected) {
            assert_eq!(format!("{seen:0<120}"), hex(&expected[4..]));
        }
    }

    #[test]
    fn foreign_bytes_are_no_message() {
        let good = Request::Hello { gid: Gid([9; 16]), peer: Gid([8; 16]) }.encode();
        assert_eq!(Request::decode(&good[..63]), None);
        assert_eq!(Request::decode(&[]), None);
        assert_eq!(Reply::decode(&good), None);
        for (at, version) in [(0, None), (4, Some(VERSION ^ 0x40)), (6, None)] {
            let mut bad = good;
            bad[at] ^= 0x40;
            assert_eq!(Request::decode(&bad), None, "byte {at}");
            assert_eq!(other_version(&bad), version);
        }
        assert_eq!(other_version(&good), None);
        let mut bad = Reply::Refused(Refusal::Malformed).encode();
        bad[8] = 200;
        assert_eq!(Reply::decode(&bad), None);
    }
}
