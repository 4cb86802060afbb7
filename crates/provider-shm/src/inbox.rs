//! The shared memory in which a queue pair receives its messages.
//!
//! One memfd per queue pair, owned by the receiver, mapped by the one peer that sends:
//!
//! | offset | word | written by |
//! |---|---|---|
//! | 0 | alive: 1 while the owner's queue pair takes requests | owner |
//! | 64 | head: bytes taken | owner |
//! | 72 | posted: receives posted so far | owner |
//! | 128 | tail: bytes put | sender |
//! | 192 | flags: the owner sleeps until something comes | owner sets, sender takes |
//! | 256 | flags: the sender sleeps until something is taken or posted | sender sets, owner takes |
//! | 512 | for each posted receive the bytes that it takes | owner |
//! | then | the ring of records | sender |
//!
//! The owner never reads back what it wrote there. A sender starts message `n` only when `posted`
//! is above `n`: that is RNR without a message in either direction.
use crate::tables::SharedWord;
use catchment_verbs::mem::{MemError, Region, RegionOptions, VolatileSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a record's header; records are padded to a multiple of it, so headers never wrap.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;
/// Bytes of the ring of a queue pair that can receive.
pub(crate) const RING_BYTES: u32 = 1 << 16;
/// Most payload of one record: a long message fills the ring while it is being emptied.
pub(crate) const MAX_FRAGMENT_BYTES: usize = 1 << 14;
/// Largest ring that a peer may offer.
const MAX_RING_BYTES: u32 = 1 << 24;
/// Most receives that a peer may offer.
pub(crate) const MAX_RECV_SLOTS: u32 = 1 << 16;
/// In the table of posted receives: this one is unusable.
pub(crate) const BAD_RECEIVE: u64 = u64::MAX;

const HEAD: usize = 64;
const POSTED: usize = 72;
const TAIL: usize = 128;
const OWNER_FLAG: usize = 192;
const SENDER_FLAG: usize = 256;
const RECEIVES: usize = 512;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A piece of a SEND.
    Send = 1,
    /// The immediate of a WRITE.
    WriteImm,
    /// The message does not fit the receive; the sender already knows.
    TooLong,
    /// The receive is unusable; the sender already knows.
    Unusable,
}

const KINDS: [Kind; 4] = [Kind::Send, Kind::WriteImm, Kind::TooLong, Kind::Unusable];

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    /// The message ends here.
    pub(crate) last: bool,
    /// Wake a receiver that waits for solicited events only.
    pub(crate) solicited: bool,
    /// Immediate data, if there are any.
    pub(crate) imm: Option<u32>,
    /// Payload bytes that follow.
    pub(crate) bytes: u32,
    /// For [`Kind::WriteImm`]: the bytes that were written.
    pub(crate) message_bytes: u64,
}

impl Record {
    /// Returns the bytes that it occupies in the ring.
    pub(crate) fn ring_bytes(&self) -> u64 {
        let bytes = RECORD_HEADER_BYTES + self.bytes as usize;
        bytes.next_multiple_of(RECORD_HEADER_BYTES) as u64
    }

    /// Returns its header.
    pub(crate) fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut out = [0; RECORD_HEADER_BYTES];
        out[0] = self.kind as u8;
        out[1] = u8::from(self.last) | u8::from(self.solicited) << 1;
        out[2] = u8::from(self.imm.is_some());
        out[4..8].copy_from_slice(&self.imm.unwrap_or(0).to_le_bytes());
        out[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.message_bytes.to_le_bytes());
        out
    }

    /// Returns the record of these bytes; `None` if no honest sender wrote them.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let record = Self {
            kind: KINDS.into_iter().find(|kind| *kind as u8 == bytes[0])?,
            last: bytes[1] & 1 != 0,
            solicited: bytes[1] & 2 != 0,
            imm: (bytes[2] == 1).then(|| u32_at(4)),
            bytes: u32_at(8),
            message_bytes: u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32,
        };
        (record.bytes as usize <= MAX_FRAGMENT_BYTES).then_some(record)
    }
}

/// An inbox, on either side.
#[derive(Debug, Clone)]
pub(crate) struct Inbox {
    region: Arc<Region>,
    pub(crate) ring_bytes: u32,
    pub(crate) recv_slots: u32,
    ring_at: usize,
}

impl Inbox {
    /// Allocates an inbox and its descriptor; without a ring if no receive can be posted.
    pub(crate) fn alloc(recv_slots: u32) -> Result<(Self, OwnedFd), MemError> {
        let ring_bytes = if recv_slots == 0 { 0 } else { RING_BYTES };
        let (ring_at, bytes) = layout(ring_bytes, recv_slots);
        let (region, fd) = Region::alloc_with_fd(bytes, RegionOptions { populate: false })?;
        Ok((Self { region, ring_bytes, recv_slots, ring_at }, fd))
    }

    /// Maps a peer's inbox, described over the socket; `None` for sizes of no honest peer.
    pub(crate) fn from_peer(
        fd: OwnedFd,
        ring_bytes: u32,
        recv_slots: u32,
    ) -> Option<Result<Self, MemError>> {
        let ring_ok = ring_bytes == 0 && recv_slots == 0
            || ring_bytes.is_power_of_two()
                && (4 * MAX_FRAGMENT_BYTES as u32..=MAX_RING_BYTES).contains(&ring_bytes)
                && recv_slots > 0;
        if !ring_ok || recv_slots > MAX_RECV_SLOTS {
            return None;
        }
        let (ring_at, bytes) = layout(ring_bytes, recv_slots);
        Some(Region::from_peer(fd, bytes, true).map(|region| Self {
            region,
            ring_bytes,
            recv_slots,
            ring_at,
        }))
    }

    /// Returns whether a page of it could not be had.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.region.is_broken()
    }

    #[inline]
    fn u64_at(&self, offset: usize) -> &AtomicU64 {
        self.region
            .whole()
            .atomic_u64(offset)
            .expect("the layout lies in the region, which is writable")
    }

    #[inline]
    fn u32_at(&self, offset: usize) -> &AtomicU32 {
        self.region
            .whole()
            .atomic_u32(offset)
            .expect("the layout lies in the region, which is writable")
    }

    /// Sets whether the owner's queue pair accepts requests.
    pub(crate) fn set_alive(&self, alive: bool) {
        self.u32_at(0).store(alive.into(), Ordering::Release);
    }

    /// Returns that word, at the sender.
    pub(crate) fn alive_word(&self) -> Result<SharedWord, MemError> {
        SharedWord::new(&self.region, 0)
    }

    #[inline]
    pub(crate) fn head(&self) -> &AtomicU64 {
        self.u64_at(HEAD)
    }

    #[inline]
    pub(crate) fn tail(&self) -> &AtomicU64 {
        self.u64_at(TAIL)
    }

    #[inline]
    pub(crate) fn posted(&self) -> &AtomicU64 {
        self.u64_at(POSTED)
    }

    /// Returns the flag that is set while the owner sleeps.
    #[inline]
    pub(crate) fn owner_flag(&self) -> &AtomicU32 {
        self.u32_at(OWNER_FLAG)
    }

    /// Returns the flag that is set while the sender sleeps.
    #[inline]
    pub(crate) fn sender_flag(&self) -> &AtomicU32 {
        self.u32_at(SENDER_FLAG)
    }

    /// Returns the capacity of receive number `n` in bytes.
    pub(crate) fn receive(&self, n: u64) -> &AtomicU64 {
        let slot = n % u64::from(self.recv_slots.max(1));
        self.u64_at(RECEIVES + slot as usize * 8)
    }

    /// Visits the one or two pieces of the ring that hold `bytes` from count `at` on.
    pub(crate) fn pieces(&self, at: u64, bytes: usize) -> [Option<VolatileSlice<'_>>; 2] {
        let mask = u64::from(self.ring_bytes).wrapping_sub(1);
        let start = (at & mask) as usize;
        let first = bytes.min(self.ring_bytes as usize - start);
        let piece =
            |offset: usize, bytes: usize| self.region.slice(self.ring_at + offset, bytes).ok();
        [piece(start, first), piece(0, bytes - first)]
    }

    /// Copies `data` into the ring at count `at`.
    pub(crate) fn put(&self, at: u64, data: &[u8]) {
        let mut data = data;
        for piece in self.pieces(at, data.len()).into_iter().flatten() {
            let (now, later) = data.split_at(piece.bytes());
            let _ = piece.write_at(0, now);
            data = later;
        }
    }

    /// Copies registered memory into the ring at count `at`.
    pub(crate) fn put_memory(&self, at: u64, data: VolatileSlice<'_>) {
        let mut done = 0;
        for piece in self.pieces(at, data.bytes()).into_iter().flatten() {
            if let Ok(part) = data.subslice(done, piece.bytes()) {
                let _ = piece.copy_from(0, part);
            }
            done += piece.bytes();
        }
    }

    /// Copies out of the ring from count `at`.
    pub(crate) fn get(&self, at: u64, out: &mut [u8]) {
        let mut out = out;
        for piece in self.pieces(at, out.len()).into_iter().flatten() {
            let (now, later) = out.split_at_mut(piece.bytes());
            let _ = piece.read_at(0, now);
            out = later;
        }
    }
}

/// Returns where the ring begins, and the total bytes.
fn layout(ring_bytes: u32, recv_slots: u32) -> (usize, usize) {
    let ring_at = (RECEIVES + recv_slots as usize * 8).next_multiple_of(64);
    (ring_at, (ring_at + ring_bytes as usize).next_multiple_of(4096))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back_and_garbage_does_not() {
        for kind in KINDS {
            for imm in [None, Some(0), Some(u32::MAX)] {
                let record = Record {
                    kind,
                    last: imm.is_none(),
                    solicited: imm.is_some(),
                    imm,
                    bytes: 16_384,
                    message_bytes: 1 << 40 | 3,
                };
                assert_eq!(Record::decode(&record.encode()), Some(record));
            }
        }
        assert_eq!(Record::decode(&[0; 32]), None);
        let mut long = [0; 32];
        long[0] = 1;
        long[10] = 1;
        assert_eq!(Record::decode(&long), None);
    }

    #[test]
    fn what_is_put_over_the_end_comes_out_again() {
        let (inbox, _fd) = Inbox::alloc(4).unwrap();
        let data: Vec<u8> = (0..100).collect();
        let at = u64::from(RING_BYTES) * 5 - 32;
        inbox.put(at, &data);
        let mut seen = vec![0; 100];
        inbox.get(at, &mut seen);
        assert_eq!(seen, data);
        let region = Region::alloc(100, RegionOptions::default()).unwrap();
        region.whole().write_at(0, &data[..]).unwrap();
        inbox.put_memory(at + 1, region.whole());
        inbox.get(at + 1, &mut seen);
        assert_eq!(seen, data);
    }

    #[test]
    fn sizes_that_no_honest_peer_has_are_refused() {
        let (_ours, ours) = Inbox::alloc(4).unwrap();
        let fd = || ours.try_clone().unwrap();
        assert!(Inbox::from_peer(fd(), RING_BYTES, 4).unwrap().is_ok());
        for (ring, slots) in [
            (RING_BYTES + 1, 4),
            (1 << 31, 4),
            (0, 4),
            (RING_BYTES, 0),
            (RING_BYTES, u32::MAX),
            (64, 1),
        ] {
            assert!(Inbox::from_peer(fd(), ring, slots).is_none(), "{ring} {slots}");
        }
        assert!(Inbox::from_peer(fd(), 2 * RING_BYTES, 4).unwrap().is_err());
    }
}
