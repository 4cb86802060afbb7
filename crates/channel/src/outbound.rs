//! Messages that go out: the window of the peer's slots.
use super::operations::Operations;
use crate::geometry::{Arrived, Geometry, INSIDE, header_words};
use crate::{ClaimError, EndError, PeerFault, Tag};
use catchment_transfer::HeaderError;
use catchment_transfer::header::encode_trailer;
use catchment_transfer::layout::{TRAILER_BYTES, padded};
use catchment_verbs::mem::VolatileSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Messages of this end given back by the peer. Counted by whoever takes the completions.
#[derive(Debug, Default)]
pub struct Credit {
    back: AtomicU64,
    sent: AtomicU64,
}

impl Credit {
    /// So many more came back.
    ///
    /// # Errors
    /// When that is more than were on their way.
    pub fn add(&self, count: u32) -> Result<(), PeerFault> {
        let known = self.back.load(Ordering::Relaxed);
        let sent = self.sent.load(Ordering::Acquire);
        let back = known + u64::from(count);
        if back > sent {
            return Err(PeerFault::Credit { count: back, known, sent });
        }
        self.back.store(back, Ordering::Release);
        Ok(())
    }
}

/// What was posted, for whoever fills.
struct Posted {
    /// For each slot the request that reads its send block.
    request_of: Box<[AtomicU64]>,
    /// Messages of which that is known.
    count: AtomicU64,
}

/// The sending half. One thread at a time uses it.
pub struct Outbound {
    geometry: Geometry,
    credit: Arc<Credit>,
    sent: u64,
    posted: Arc<Posted>,
}

impl Outbound {
    pub(super) fn new(geometry: Geometry, credit: Arc<Credit>) -> Self {
        let request_of = (0..geometry.blocks()).map(|_| AtomicU64::new(0));
        let posted = Posted { request_of: request_of.collect(), count: AtomicU64::new(0) };
        Self { credit, sent: 0, posted: Arc::new(posted), geometry }
    }

    /// Fills messages that this one sends, from another thread. To be made before anything was sent.
    pub fn filler(&self) -> Filler {
        Filler {
            geometry: self.geometry,
            credit: Arc::clone(&self.credit),
            posted: Arc::clone(&self.posted),
            filled: self.sent,
        }
    }

    /// Returns the number of messages sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the slot of the next message, if the peer gave it back and its send block was read.
    pub fn free_slot(&self, operations: &Operations) -> Option<u32> {
        let blocks = u64::from(self.geometry.blocks());
        let back = self.credit.back.load(Ordering::Acquire);
        let slot = (self.sent % blocks) as u32;
        let is_free = self.sent - back < blocks && self.posted.is_done(operations, slot);
        is_free.then_some(slot)
    }

    /// Sends the next message that a [`Filler`] filled, and with it that messages of the peer were given
    /// back. False if the queue is full; nothing was sent then.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub fn send_filled(
        &mut self,
        operations: &Operations,
        filled: &Filled,
        given_back: u32,
    ) -> Result<bool, EndError> {
        self.send(operations, filled.slot, &filled.header, given_back)
    }

    /// Returns where a message of so many bytes is filled.
    pub fn memory<'a>(
        &self,
        operations: &'a Operations,
        slot: u32,
        room_bytes: u32,
        bytes: u32,
    ) -> VolatileSlice<'a> {
        self.geometry.payload(operations.outgoing(), slot, room_bytes, bytes)
    }

    /// Sends the message that was filled in the slot which [`Outbound::free_slot`] named, and with it
    /// that so many of the peer's were given back. False if the queue is full; nothing was sent then.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub(crate) fn send(
        &mut self,
        operations: &Operations,
        slot: u32,
        header: &Arrived,
        given_back: u32,
    ) -> Result<bool, EndError> {
        let trailer_offset = self.geometry.trailer_offset(slot);
        let trailer = encode_trailer(&header_words(header), 0);
        operations.outgoing().write_at(trailer_offset, &trailer).expect(INSIDE);
        let offset = trailer_offset - header.room_bytes as usize;
        let bytes = header.room_bytes + TRAILER_BYTES;
        let imm = imm(Some(slot), given_back);
        // Before the request: the peer may answer at once.
        self.sent += 1;
        self.credit.sent.store(self.sent, Ordering::Release);
        let signaled = self.free_slot(operations).is_none();
        let Some(ticket) = operations.message(offset, bytes, imm, signaled)? else {
            self.sent -= 1;
            self.credit.sent.store(self.sent, Ordering::Release);
            return Ok(false);
        };
        self.posted.request_of[slot as usize].store(ticket.0, Ordering::Relaxed);
        self.posted.count.store(self.sent, Ordering::Release);
        Ok(true)
    }

    /// Says alone that so many of the peer's messages were given back. False if the queue is full.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub fn announce(&self, operations: &Operations, given_back: u32) -> Result<bool, EndError> {
        Ok(operations.notice(imm(None, given_back))?.is_some())
    }
}

impl Posted {
    fn is_done(&self, operations: &Operations, slot: u32) -> bool {
        let request = self.request_of[slot as usize].load(Ordering::Relaxed);
        operations.is_done(super::Ticket(request))
    }
}

/// Fills messages in place for an [`Outbound`] of another thread: one after the other, each in the
/// slot that it will have at the peer.
pub struct Filler {
    geometry: Geometry,
    credit: Arc<Credit>,
    posted: Arc<Posted>,
    filled: u64,
}

/// A message that was filled, for [`Outbound::send_filled`].
#[derive(Debug)]
pub struct Filled {
    slot: u32,
    header: Arrived,
}

impl Filler {
    /// Returns the number of messages filled.
    pub fn filled(&self) -> u64 {
        self.filled
    }

    /// Returns whether all that was filled was posted.
    pub fn all_posted(&self) -> bool {
        self.posted.count.load(Ordering::Acquire) == self.filled
    }

    /// Returns where the next message of so many bytes is filled; `None` while its slot is in use:
    /// the message before in it was not posted yet, or its request is not done, or the peer has not
    /// given it back.
    ///
    /// # Errors
    /// [`ClaimError::Length`] for more bytes than a slot has.
    pub fn memory<'a>(
        &self,
        operations: &'a Operations,
        bytes: u32,
    ) -> Result<Option<VolatileSlice<'a>>, ClaimError> {
        self.geometry.check_length(bytes, u32::MAX)?;
        if !self.is_free(operations) {
            return Ok(None);
        }
        let (outgoing, room_bytes) = (operations.outgoing(), padded(bytes));
        Ok(Some(self.geometry.payload(outgoing, self.slot(), room_bytes, bytes)))
    }

    fn slot(&self) -> u32 {
        (self.filled % u64::from(self.geometry.blocks())) as u32
    }

    fn is_free(&self, operations: &Operations) -> bool {
        let Some(before) = self.filled.checked_sub(u64::from(self.geometry.blocks())) else {
            return true;
        };
        self.posted.count.load(Ordering::Acquire) > before
            && self.credit.back.load(Ordering::Acquire) > before
            && self.posted.is_done(operations, self.slot())
    }

    /// Completes the message in the memory that [`Filler::memory`] returned last.
    ///
    /// # Errors
    /// [`EndError::Packet`] for a number that no message can have.
    pub fn finish(&mut self, tag: Tag, bytes: u32) -> Result<Filled, EndError> {
        if tag.packet == u64::MAX {
            return Err(EndError::Packet(HeaderError::PacketNumber(tag.packet)));
        }
        let header =
            Arrived { stream: tag.stream, packet: tag.packet, bytes, room_bytes: padded(bytes) };
        let slot = self.slot();
        self.filled += 1;
        Ok(Filled { slot, header })
    }
}

/// Returns the slot of a message, counted from 1, in the lower half; the upper half says how many
/// messages of the other end were given back since the last immediate.
pub(super) fn imm(slot: Option<u32>, given_back: u32) -> u32 {
    given_back << 16 | slot.map_or(0, |slot| slot + 1)
}

/// Returns the reverse of [`imm`].
pub(super) fn split(imm: u32) -> (Option<u32>, u32) {
    ((imm & 0xffff).checked_sub(1), imm >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_immediate_says_slot_and_messages_given_back() {
        for (slot, given_back, value) in [
            (None, 1, 0x0001_0000),
            (Some(0), 0, 0x0000_0001),
            (Some(2), 3, 0x0003_0003),
            (Some(32_767), 32_768, 0x8000_8000),
        ] {
            assert_eq!(imm(slot, given_back), value);
            assert_eq!(split(value), (slot, given_back));
        }
    }

    #[test]
    fn more_back_than_sent_is_the_peers_fault() {
        let credit = Credit::default();
        credit.sent.store(5, Ordering::Relaxed);
        credit.add(3).unwrap();
        assert_eq!(credit.add(3), Err(PeerFault::Credit { count: 6, known: 3, sent: 5 }));
        credit.add(2).unwrap();
    }
}
