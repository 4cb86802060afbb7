//! Packets on their way out: gathered from registered memory, grouped into trains.
use super::{
    SendCounters, SendFault, UdpSocket,
    control::Control,
    icrc::ICRC_BYTES,
    name::Name,
    sys::{MAX_MESSAGES, Message},
};
use catchment_roce::wire::CrcWay;
use catchment_verbs::mem::{MemError, Region};
use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
    sync::Arc,
};

/// Most packets of one GSO send: what every kernel takes (newer ones take 128). Packets of 1 KiB
/// fill the 64 KiB of a send before that.
pub const MAX_TRAIN_PACKETS: usize = 64;
/// Most bytes of one send, so that an IPv6 or IPv4 packet of them is below 64 KiB.
const MAX_TRAIN_BYTES: usize = 65_487;
/// Bytes of a batch's own for each packet: headers, inline payload, pad and ICRC.
const ARENA_BYTES_PER_PACKET: usize = 128;
/// Longest transport headers with inline payload of one packet.
const MAX_HEAD_BYTES: usize = 4096 + 64;
/// Gather entries for each packet on average: head, two pieces, trailer.
const VECTORS_PER_PACKET: usize = 4;
/// Most pieces of one packet.
pub const MAX_PIECES: usize = 32;
/// Most gather entries of one message, as the kernel has it (UIO_MAXIOV).
const MAX_TRAIN_VECTORS: usize = 1024;
/// Pad and ICRC.
const TRAILER_BYTES: usize = 3 + ICRC_BYTES;

/// From where to where, and how marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The address that the packets come from: that of the socket, or one of them where it is
    /// bound to all.
    pub local: IpAddr,
    /// The peer, with its RoCE port.
    pub remote: SocketAddr,
    /// The two ECN bits: 0 not capable, 1 and 2 capable, 3 congestion met.
    pub ecn: u8,
}

/// A piece of registered memory that is (part of) a packet's payload.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// The memory. The batch keeps it mapped until the packet is with the kernel.
    pub region: &'a Arc<Region>,
    /// First byte.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// A packet was not taken into a batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Full {
    /// No room: flush and try again.
    #[error("the batch holds {packets} packets and has no room for another one: flush it")]
    NoRoom {
        /// Packets in it.
        packets: usize,
    },
    /// The packet is longer than a datagram may be, or its headers longer than any.
    #[error("a packet of {bytes} bytes with {head_bytes} of its own is too long")]
    TooLong {
        /// Bytes with pad and ICRC.
        bytes: usize,
        /// Bytes given as headers and inline payload.
        head_bytes: usize,
    },
    /// The payload is scattered over too many places.
    #[error("a packet of {pieces} pieces; {MAX_PIECES} at most")]
    Scattered {
        /// Pieces given.
        pieces: usize,
    },
    /// A piece is not inside of its memory.
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// One packet: where its parts are.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketSlot {
    /// First of its gather entries; the last one is the trailer.
    pub(super) first_vector: usize,
    pub(super) vectors: usize,
    /// Length with pad and ICRC.
    pub(super) bytes: usize,
    /// Where pad and ICRC are in the arena.
    pub(super) trailer: usize,
    pub(super) pad: usize,
}

/// Packets to one peer that go to the kernel in one message.
#[derive(Debug, Clone)]
pub(super) struct Train {
    pub(super) route: Route,
    pub(super) packets: Range<usize>,
    /// First of its gather entries.
    pub(super) first_vector: usize,
    /// Length of all but the last packet.
    pub(super) segment_bytes: usize,
    pub(super) bytes: usize,
    /// Nothing may be added.
    pub(super) closed: bool,
    /// The ICRCs are there.
    pub(super) sealed: bool,
}

impl Train {
    /// Whether the kernel has to cut it.
    pub(super) fn is_cut(&self) -> bool {
        self.packets.len() > 1
    }
}

/// Packets that wait for one flush of one socket.
///
/// Equal packets in a row to one peer (the last may be shorter) become one GSO send, where the
/// socket and the way allow it. All memory is allocated at creation.
pub struct SendBatch {
    pub(super) local: SocketAddr,
    gso: bool,
    pub(super) crc: CrcWay,
    arena: Box<[u8]>,
    arena_used: usize,
    pub(super) vectors: Box<[libc::iovec]>,
    vectors_used: usize,
    /// What one system call needs, written anew for each.
    pub(super) names: Box<[Name]>,
    pub(super) controls: Box<[Control]>,
    pub(super) messages: Box<[Message]>,
    pub(super) packets: Vec<PacketSlot>,
    packets_max: usize,
    pub(super) trains: Vec<Train>,
    /// The first train that is not with the kernel.
    pub(super) next: usize,
    /// Keeps the memory of the pieces mapped.
    keep: Vec<Arc<Region>>,
    /// Peers to which GSO was refused.
    gso_refused: Vec<IpAddr>,
    pub(super) counters: SendCounters,
    pub(super) faults: Vec<SendFault>,
}

// SAFETY: the pointers in `vectors` lead into `arena` and into regions that `keep` holds, those in
// `messages` into the boxes beside it and are written anew before each use: all of it is owned by
// the batch and bound to no thread.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// A batch of at most `packets` packets for `socket`.
    pub fn new(socket: &UdpSocket, packets: usize) -> SendBatch {
        let packets = packets.max(1);
        let nothing = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        SendBatch {
            local: socket.local(),
            gso: socket.has_gso(),
            crc: CrcWay::default(),
            arena: vec![0; packets * ARENA_BYTES_PER_PACKET + MAX_HEAD_BYTES].into(),
            arena_used: 0,
            vectors: vec![nothing; packets * VECTORS_PER_PACKET + MAX_PIECES].into(),
            vectors_used: 0,
            names: vec![Name::none(); MAX_MESSAGES].into(),
            controls: vec![Control::empty(); MAX_MESSAGES].into(),
            messages: vec![Message::empty(); MAX_MESSAGES].into(),
            packets: Vec::with_capacity(packets),
            packets_max: packets,
            trains: Vec::with_capacity(packets),
            next: 0,
            keep: Vec::with_capacity(packets),
            gso_refused: Vec::new(),
            counters: SendCounters::default(),
            faults: Vec::new(),
        }
    }

    /// The same with ICRCs computed in this way.
    #[must_use]
    pub fn with_crc(self, crc: CrcWay) -> SendBatch {
        SendBatch { crc, ..self }
    }

    /// Adds a packet: `head` is copied (transport headers, and payload that is not in registered
    /// memory), the pieces are read when the packet goes. Pad and ICRC are added; the pad count in
    /// the BTH is the caller's.
    ///
    /// # Errors
    /// [`Full::NoRoom`]: flush first. Others: this packet can never go.
    #[inline]
    pub fn push(&mut self, route: &Route, head: &[u8], pieces: &[Piece<'_>]) -> Result<(), Full> {
        let slot = self.plan(head, pieces)?;
        self.place(&slot, head, pieces)?;
        self.join(route, &slot);
        self.packets.push(slot);
        Ok(())
    }

    /// Where the packet would go.
    fn plan(&self, head: &[u8], pieces: &[Piece<'_>]) -> Result<PacketSlot, Full> {
        if pieces.len() > MAX_PIECES {
            return Err(Full::Scattered {
                pieces: pieces.len(),
            });
        }
        let payload: usize = pieces.iter().map(|piece| piece.bytes).sum();
        let pad = (head.len() + payload).wrapping_neg() % 4;
        let bytes = head.len() + payload + pad + ICRC_BYTES;
        if bytes > MAX_TRAIN_BYTES || head.len() > MAX_HEAD_BYTES {
            return Err(Full::TooLong {
                bytes,
                head_bytes: head.len(),
            });
        }
        let slot = PacketSlot {
            first_vector: self.vectors_used,
            vectors: pieces.len() + 2,
            bytes,
            trailer: self.arena_used + head.len(),
            pad,
        };
        let fits = self.packets.len() < self.packets_max
            && slot.trailer + TRAILER_BYTES <= self.arena.len()
            && slot.first_vector + slot.vectors <= self.vectors.len();
        if fits {
            Ok(slot)
        } else {
            Err(Full::NoRoom {
                packets: self.packets.len(),
            })
        }
    }

    /// Copies the head and notes the pieces.
    fn place(&mut self, slot: &PacketSlot, head: &[u8], pieces: &[Piece<'_>]) -> Result<(), Full> {
        let mut at = slot.first_vector + 1;
        for piece in pieces {
            let memory = piece.region.slice(piece.offset, piece.bytes)?;
            self.vectors[at] = libc::iovec {
                iov_base: memory.addr() as *mut _,
                iov_len: memory.bytes(),
            };
            at += 1;
            self.keep_mapped(piece.region);
        }
        let start = self.arena_used;
        self.arena[start..slot.trailer].copy_from_slice(head);
        self.vectors[slot.first_vector] = self.own(start, head.len());
        // The pad is zero: the arena began so, and a trailer is written before it is sent.
        self.vectors[at] = self.own(slot.trailer, slot.pad + ICRC_BYTES);
        self.arena_used = slot.trailer + slot.pad + ICRC_BYTES;
        self.vectors_used = at + 1;
        Ok(())
    }

    fn own(&mut self, at: usize, bytes: usize) -> libc::iovec {
        libc::iovec {
            iov_base: self.arena[at..at + bytes].as_mut_ptr().cast(),
            iov_len: bytes,
        }
    }

    fn keep_mapped(&mut self, region: &Arc<Region>) {
        // Packets in a row mostly come from the same region.
        if !self
            .keep
            .last()
            .is_some_and(|last| Arc::ptr_eq(last, region))
        {
            self.keep.push(Arc::clone(region));
        }
    }

    /// Puts the packet that comes next into the last train, or begins another one.
    fn join(&mut self, route: &Route, slot: &PacketSlot) {
        let (at, bytes) = (self.packets.len(), slot.bytes);
        let vectors_end = slot.first_vector + slot.vectors;
        let may_cut = self.may_cut(route);
        if let Some(train) = self.trains.last_mut()
            && may_cut
            && !train.closed
            && train.route == *route
            && bytes <= train.segment_bytes
            && train.bytes + bytes <= MAX_TRAIN_BYTES
            && train.packets.len() < MAX_TRAIN_PACKETS
            && vectors_end - train.first_vector <= MAX_TRAIN_VECTORS
        {
            train.packets.end = at + 1;
            train.bytes += bytes;
            // Only the last segment may be shorter.
            train.closed = bytes < train.segment_bytes;
            return;
        }
        self.trains.push(Train {
            route: *route,
            packets: at..at + 1,
            first_vector: slot.first_vector,
            segment_bytes: bytes,
            bytes,
            closed: false,
            sealed: false,
        });
    }

    fn may_cut(&self, route: &Route) -> bool {
        self.gso && !self.gso_refused.contains(&route.remote.ip())
    }

    /// Never uses GSO to this peer again: the way there numbers packets wrongly, or refuses.
    pub fn refuse_gso(&mut self, peer: IpAddr) {
        if !self.gso_refused.contains(&peer) {
            self.gso_refused.push(peer);
        }
    }

    /// Peers to which GSO is not used, although the socket has it.
    pub fn gso_refused(&self) -> &[IpAddr] {
        &self.gso_refused
    }

    /// Packets that are not with the kernel yet.
    pub fn waiting_packets(&self) -> usize {
        let first = self.trains.get(self.next).map(|train| train.packets.start);
        first.map_or(0, |first| self.packets.len() - first)
    }

    /// Packets that still have room.
    pub fn room_packets(&self) -> usize {
        self.packets_max - self.packets.len()
    }

    /// Forgets all packets, sent or not.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.trains.clear();
        self.next = 0;
        self.arena_used = 0;
        self.vectors_used = 0;
        self.keep.clear();
    }

    /// Pad and ICRC of a packet.
    pub(super) fn trailer_mut(&mut self, slot: PacketSlot) -> &mut [u8] {
        &mut self.arena[slot.trailer..slot.trailer + slot.pad + ICRC_BYTES]
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch")
            .field("local", &self.local)
            .field("waiting_packets", &self.waiting_packets())
            .field("gso_refused", &self.gso_refused)
            .finish_non_exhaustive()
    }
}
