//! Packets to be sent: gathered from registered memory, grouped into trains.
use super::control::Control;
use super::icrc::ICRC_BYTES;
use super::name::Name;
use super::sys::{MAX_MESSAGES, Message};
use super::{AUTH_BYTES, Datagrams, Sealer, SendCounters, SendFault};
use catchment_verbs::mem::{MemError, Region};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

/// Most packets of one GSO send: what every kernel takes (newer ones take 128). Packets of 1 KiB
/// fill the 64 KiB of a send before that.
pub const MAX_TRAIN_PACKETS: usize = 64;
/// Most bytes of one send, so that an IPv6 or IPv4 packet of them is below 64 KiB.
const MAX_TRAIN_BYTES: usize = 65_487;
/// Bytes of a batch's own for each packet: headers, inline or copied payload, pad and ICRC.
const ARENA_BYTES_PER_PACKET: usize = 128;
/// Pieces up to this length are copied: for the kernel to read one more gather entry takes longer.
const COPIED_BYTES: usize = 256;
/// Longest transport headers with inline payload of one packet.
const MAX_HEAD_BYTES: usize = 4096 + 64;
/// Most bytes of one packet in the arena.
const MAX_OWN_BYTES: usize = MAX_HEAD_BYTES + COPIED_BYTES + TRAILER_BYTES + AUTH_BYTES;
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
    /// The address and the port that the packets come from.
    pub local: SocketAddr,
    /// The peer, with its RoCE port.
    pub remote: SocketAddr,
    /// DSCP in the upper six bits; below them the two of ECN: 0 not capable, 1 and 2 capable, 3 congestion met.
    pub traffic_class: u8,
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
    /// No room: flush and try again. Packets in it.
    #[error("the batch is full with {0} packets: flush it")]
    NoRoom(usize),
    /// The packet is longer than a datagram may be, or its headers longer than any.
    #[error("packet too long: {bytes} bytes, of them {head_bytes} of headers and inline payload")]
    TooLong {
        /// Bytes with pad and ICRC.
        bytes: usize,
        /// Bytes given as headers and inline payload.
        head_bytes: usize,
    },
    /// The payload is scattered over too many places.
    #[error("payload of a packet in {0} pieces, at most {MAX_PIECES} are supported")]
    Scattered(usize),
    /// A piece is not inside of its memory.
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// One packet: where its parts are. In the arena its head and its trailer follow each other, and
/// those of the next packet follow them.
#[derive(Debug, Clone)]
pub(super) struct PacketSlot {
    /// Headers and copied payload in the arena, up to the trailer.
    pub(super) head: Range<usize>,
    /// Gather entries of the rest of the payload.
    pub(super) pieces: Range<usize>,
    /// Length with pad and ICRC.
    pub(super) bytes: usize,
    pub(super) pad: usize,
    /// The index of who seals it, if it is authenticated.
    pub(super) sealer: Option<usize>,
}

impl PacketSlot {
    /// Pad, counter and tag, and ICRC in the arena.
    pub(super) fn trailer(&self) -> Range<usize> {
        self.head.end..self.seal().end + ICRC_BYTES
    }

    /// Counter and tag in the arena; empty if it is not authenticated.
    pub(super) fn seal(&self) -> Range<usize> {
        let start = self.head.end + self.pad;
        start..start + if self.sealer.is_some() { AUTH_BYTES } else { 0 }
    }
}

/// Packets to one peer that are passed to the kernel in one message.
#[derive(Debug, Clone)]
pub(super) struct Train {
    pub(super) route: Route,
    pub(super) packets: Range<usize>,
    /// Its gather entries. One that leads into the arena has the trailer of a packet and the head
    /// of the next one.
    pub(super) vectors: Range<usize>,
    /// Length of all but the last packet.
    pub(super) segment_bytes: usize,
    pub(super) bytes: usize,
    /// Nothing may be added.
    pub(super) closed: bool,
    /// The ICRCs are there.
    pub(super) sealed: bool,
}

impl Train {
    /// Returns whether the kernel has to cut it.
    pub(super) fn is_cut(&self) -> bool {
        self.packets.len() > 1
    }
}

/// Packets that wait for one flush.
///
/// Equal packets in a row to one peer (the last may be shorter) become one GSO send, where the
/// socket and the path allow it. All memory is allocated at creation.
pub struct SendBatch {
    gso: bool,
    pub(super) arena: Box<[u8]>,
    arena_used: usize,
    pub(super) vectors: Vec<libc::iovec>,
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
    /// Who seals the packets that are authenticated.
    pub(super) sealers: Vec<Arc<Sealer>>,
    /// One packet in one piece, to be sealed.
    pub(super) whole: Vec<u8>,
    /// Peers to which GSO was refused.
    gso_refused: Vec<IpAddr>,
    pub(super) counters: SendCounters,
    pub(super) faults: Vec<SendFault>,
}

// SAFETY: the pointers in `vectors` lead into `arena` and into regions that `keep` holds, those in
// `messages` into the boxes next to it and are rewritten before each use: all of it is owned by
// the batch and bound to no thread.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// Creates a batch of at most `packets` packets for one carrier of datagrams.
    pub fn new(datagrams: &dyn Datagrams, packets: usize) -> Self {
        let packets = packets.max(1);
        Self {
            gso: datagrams.capabilities().segmentation,
            arena: vec![0; packets * ARENA_BYTES_PER_PACKET + MAX_OWN_BYTES].into(),
            arena_used: 0,
            vectors: Vec::with_capacity(packets * VECTORS_PER_PACKET + MAX_PIECES),
            names: vec![Name::none(); MAX_MESSAGES].into(),
            controls: vec![Control::empty(); MAX_MESSAGES].into(),
            messages: vec![Message::empty(); MAX_MESSAGES].into(),
            packets: Vec::with_capacity(packets),
            packets_max: packets,
            trains: Vec::with_capacity(packets),
            next: 0,
            keep: Vec::with_capacity(packets),
            sealers: Vec::new(),
            whole: Vec::new(),
            gso_refused: Vec::new(),
            counters: SendCounters::default(),
            faults: Vec::new(),
        }
    }

    /// Adds a packet: `head` is copied (transport headers, and payload that is not in registered
    /// memory). Short pieces are read at once, longer ones when the packet is sent. Pad and ICRC
    /// are added; the pad count in the BTH is the caller's.
    ///
    /// # Errors
    /// [`Full::NoRoom`]: flush first. Others: this packet can never be sent.
    #[inline]
    pub fn push(&mut self, route: &Route, head: &[u8], pieces: &[Piece<'_>]) -> Result<(), Full> {
        self.push_sealed(route, None, head, pieces)
    }

    /// Like [`SendBatch::push`]; authenticated with counter and tag if there is a sealer.
    ///
    /// # Errors
    /// As [`SendBatch::push`].
    #[inline]
    pub fn push_sealed(
        &mut self,
        route: &Route,
        sealer: Option<&Arc<Sealer>>,
        head: &[u8],
        pieces: &[Piece<'_>],
    ) -> Result<(), Full> {
        let (short, pieces) = pieces.split_at(short(pieces));
        let sealer = sealer.map(|sealer| self.keep_sealer(sealer));
        let mut slot = self.plan(sealer, head, short, pieces)?;
        self.copy(&slot, head, short)?;
        let before = self.vectors.len();
        let joins = self.joins(route, &slot, pieces);
        self.own(slot.head.clone(), joins);
        slot.pieces = match self.gather(pieces) {
            Ok(vectors) => vectors,
            Err(error) => {
                self.forget(before, joins.then_some(slot.head.len()));
                return Err(error.into());
            }
        };
        self.own(slot.trailer(), pieces.is_empty());
        self.arena_used = slot.trailer().end;
        self.note(route, &slot, before, joins);
        self.packets.push(slot);
        Ok(())
    }

    /// Returns the destination of the packet.
    #[inline]
    fn plan(
        &self,
        sealer: Option<usize>,
        head: &[u8],
        short: &[Piece<'_>],
        pieces: &[Piece<'_>],
    ) -> Result<PacketSlot, Full> {
        if short.len() + pieces.len() > MAX_PIECES {
            return Err(Full::Scattered(short.len() + pieces.len()));
        }
        let own = head.len() + bytes_of(short);
        let unpadded = own + bytes_of(pieces);
        let pad = unpadded.wrapping_neg() % 4;
        let authenticated = if sealer.is_some() { AUTH_BYTES } else { 0 };
        let bytes = unpadded + pad + authenticated + ICRC_BYTES;
        if bytes > MAX_TRAIN_BYTES || head.len() > MAX_HEAD_BYTES {
            return Err(Full::TooLong { bytes, head_bytes: head.len() });
        }
        let head = self.arena_used..self.arena_used + own;
        let slot = PacketSlot { head, pieces: 0..0, bytes, pad, sealer };
        let fits = self.packets.len() < self.packets_max
            && slot.trailer().end <= self.arena.len()
            && self.vectors.len() + pieces.len() + 2 <= self.vectors.capacity();
        if fits { Ok(slot) } else { Err(Full::NoRoom(self.packets.len())) }
    }

    /// Copies head and short pieces into the arena.
    #[inline]
    fn copy(
        &mut self,
        slot: &PacketSlot,
        head: &[u8],
        short: &[Piece<'_>],
    ) -> Result<(), MemError> {
        let place = &mut self.arena[slot.head.clone()];
        let (to, mut rest) = place.split_at_mut(head.len());
        to.copy_from_slice(head);
        for piece in short {
            let (to, after) = rest.split_at_mut(piece.bytes);
            piece.region.whole().read_at(piece.offset, to)?;
            rest = after;
        }
        Ok(())
    }

    /// A gather entry for bytes of the arena, or more bytes for the last one, which they follow.
    #[inline]
    fn own(&mut self, bytes: Range<usize>, follows: bool) {
        if follows && let Some(last) = self.vectors.last_mut() {
            last.iov_len += bytes.len();
            return;
        }
        let bytes = &mut self.arena[bytes];
        self.vectors
            .push(libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() });
    }

    /// Gather entries for pieces of memory.
    #[inline]
    fn gather(&mut self, pieces: &[Piece<'_>]) -> Result<Range<usize>, MemError> {
        let first = self.vectors.len();
        for piece in pieces {
            let memory = piece.region.slice(piece.offset, piece.bytes)?;
            self.vectors
                .push(libc::iovec { iov_base: memory.addr() as *mut _, iov_len: memory.bytes() });
            self.keep_mapped(piece.region);
        }
        Ok(first..self.vectors.len())
    }

    /// Takes the gather entries of a packet back of which a piece is wrong.
    #[cold]
    fn forget(&mut self, vectors: usize, joined_bytes: Option<usize>) {
        self.vectors.truncate(vectors);
        if let (Some(bytes), Some(last)) = (joined_bytes, self.vectors.last_mut()) {
            last.iov_len -= bytes;
        }
    }

    /// Returns the index of a sealer, mostly that of the packet before.
    fn keep_sealer(&mut self, sealer: &Arc<Sealer>) -> usize {
        if !self.sealers.last().is_some_and(|last| Arc::ptr_eq(last, sealer)) {
            self.sealers.push(Arc::clone(sealer));
        }
        self.sealers.len() - 1
    }

    #[inline]
    fn keep_mapped(&mut self, region: &Arc<Region>) {
        // Packets in a row mostly come from the same region.
        if !self.keep.last().is_some_and(|last| Arc::ptr_eq(last, region)) {
            self.keep.push(Arc::clone(region));
        }
    }

    /// Returns whether the last train takes this packet. Then its gather entries are the last ones,
    /// too.
    #[inline]
    fn joins(&self, route: &Route, slot: &PacketSlot, pieces: &[Piece<'_>]) -> bool {
        self.trains.last().is_some_and(|train| {
            !train.closed
                && train.route == *route
                && slot.bytes <= train.segment_bytes
                && train.bytes + slot.bytes <= MAX_TRAIN_BYTES
                && train.packets.len() < MAX_TRAIN_PACKETS
                && train.vectors.len() + pieces.len() < MAX_TRAIN_VECTORS
                && self.may_cut(route)
        })
    }

    /// Appends the next packet to the last train, or begins a new one.
    #[inline]
    fn note(&mut self, route: &Route, slot: &PacketSlot, first_vector: usize, joins: bool) {
        let (at, vectors_end) = (self.packets.len(), self.vectors.len());
        if joins && let Some(train) = self.trains.last_mut() {
            train.packets.end = at + 1;
            train.vectors.end = vectors_end;
            train.bytes += slot.bytes;
            // Only the last segment may be shorter.
            train.closed = slot.bytes < train.segment_bytes;
            return;
        }
        self.trains.push(Train {
            route: *route,
            packets: at..at + 1,
            vectors: first_vector..vectors_end,
            segment_bytes: slot.bytes,
            bytes: slot.bytes,
            closed: false,
            sealed: false,
        });
    }

    /// Gather entries for a packet alone, which had them together with its neighbours.
    #[cold]
    pub(super) fn gather_alone(&mut self, at: usize) -> Range<usize> {
        let first = self.vectors.len();
        let slot = self.packets[at].clone();
        self.own(slot.head.clone(), false);
        self.vectors.extend_from_within(slot.pieces.clone());
        self.own(slot.trailer(), slot.pieces.is_empty());
        first..self.vectors.len()
    }

    fn may_cut(&self, route: &Route) -> bool {
        self.gso && !self.gso_refused.contains(&route.remote.ip())
    }

    /// Never uses GSO to this peer again: the path numbers packets wrongly, or refuses.
    pub fn refuse_gso(&mut self, peer: IpAddr) {
        if !self.gso_refused.contains(&peer) {
            self.gso_refused.push(peer);
        }
    }

    /// Peers to which GSO is not used, although the socket has it.
    pub fn gso_refused(&self) -> &[IpAddr] {
        &self.gso_refused
    }

    /// Returns the number of packets that are not with the kernel yet.
    pub fn waiting_packets(&self) -> usize {
        let first = self.trains.get(self.next).map(|train| train.packets.start);
        first.map_or(0, |first| self.packets.len() - first)
    }

    /// Returns the number of packets since it was last empty, with the kernel or not.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Returns the number of packets that still have room.
    pub fn room_packets(&self) -> usize {
        self.packets_max - self.packets.len()
    }

    /// Forgets all packets, sent or not.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.trains.clear();
        self.next = 0;
        self.arena_used = 0;
        self.vectors.clear();
        self.keep.clear();
        self.sealers.clear();
    }
}

/// Returns how many pieces come first that are short, also together.
#[inline]
fn short(pieces: &[Piece<'_>]) -> usize {
    let mut room = COPIED_BYTES;
    let short = pieces.iter().take_while(|piece| {
        let fits = piece.bytes <= room;
        room = room.saturating_sub(piece.bytes);
        fits
    });
    short.count()
}

#[inline]
fn bytes_of(pieces: &[Piece<'_>]) -> usize {
    pieces.iter().map(|piece| piece.bytes).sum()
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch")
            .field("waiting_packets", &self.waiting_packets())
            .field("gso_refused", &self.gso_refused)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SocketOptions, UdpSocket};
    use super::*;
    use catchment_verbs::mem::RegionOptions;

    /// Each entry costs the kernel time.
    #[test]
    fn packets_of_a_train_share_gather_entries_and_short_payloads_need_none() {
        let address = "[::1]:0".parse().unwrap();
        let socket = UdpSocket::bind(address, &SocketOptions::default()).unwrap();
        let region = Region::alloc(1 << 16, RegionOptions::default()).unwrap();
        let route = Route { local: socket.local(), remote: socket.local(), traffic_class: 0 };
        for (bytes, entries) in [(1024, 1 + 10 * 2), (COPIED_BYTES, 1)] {
            let mut batch = SendBatch::new(&socket, 64);
            for i in 0..10 {
                let piece = Piece { region: &region, offset: i * bytes, bytes };
                batch.push(&route, &[0; 28], &[piece]).unwrap();
            }
            assert_eq!(batch.trains.len(), 1);
            assert_eq!(batch.vectors.len(), entries, "{bytes}");
            let gathered: usize = batch.vectors.iter().map(|entry| entry.iov_len).sum();
            assert_eq!(gathered, 10 * (28 + bytes + ICRC_BYTES));
        }
    }
}
