//! Outgoing messages: the window of the peer's slots.
use super::Ticket;
use super::operations::Operations;
use crate::geometry::{Arrived, Geometry, header_words};
use crate::{ClaimError, EndError, PeerFault, Tag};
use catchment_transfer::HeaderError;
use catchment_transfer::layout::{TRAILER_BYTES, padded};
use catchment_transfer::protocol::commit_word;
use catchment_verbs::mem::VolatileSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The peer's slots, as the threads of this end know them. Messages are counted from 0.
pub(super) struct Window {
    geometry: Geometry,
    /// Messages that the peer released. Counted by the thread that takes completions.
    back: AtomicU64,
    /// Messages sent, including one that is being posted.
    sent: AtomicU64,
    /// Messages posted.
    posted: AtomicU64,
    /// For each slot the request that reads its send block.
    request_of: Box<[AtomicU64]>,
}

impl Window {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            back: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            request_of: (0..geometry.blocks()).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Counts messages that came back.
    ///
    /// # Errors
    /// [`PeerFault::Credit`] for more than are outstanding.
    pub(super) fn add_credit(&self, count: u32) -> Result<(), PeerFault> {
        self.note_back(self.back() + u64::from(count))
    }

    /// Returns how many messages came back.
    pub(super) fn back(&self) -> u64 {
        self.back.load(Ordering::Relaxed)
    }

    /// Notes how many messages came back, of all that were sent.
    ///
    /// # Errors
    /// [`PeerFault::Credit`] for more than were sent, or fewer than before.
    pub(super) fn note_back(&self, back: u64) -> Result<(), PeerFault> {
        let known = self.back();
        let sent = self.sent.load(Ordering::Acquire);
        if back < known || back > sent {
            return Err(PeerFault::Credit { count: back, known, sent });
        }
        self.back.store(back, Ordering::Release);
        Ok(())
    }

    fn slot(&self, message: u64) -> u32 {
        (message % u64::from(self.geometry.blocks())) as u32
    }

    /// Returns whether the peer released the slot of this message, and its send block was read. All
    /// messages before it were posted.
    fn is_free(&self, operations: &Operations, message: u64) -> bool {
        let request = self.request_of[self.slot(message) as usize].load(Ordering::Relaxed);
        let outstanding = message - self.back.load(Ordering::Acquire);
        outstanding < self.geometry.blocks().into() && operations.is_done(Ticket(request))
    }
}

/// The sending half. One thread at a time uses it.
pub struct Outbound {
    window: Arc<Window>,
    sent: u64,
    /// Of commit words, where there are any.
    epoch: Option<u64>,
}

impl Outbound {
    pub(super) fn new(window: Arc<Window>, epoch: Option<u64>) -> Self {
        Self { window, sent: 0, epoch }
    }

    /// Makes the half that fills messages, which may be used on another thread. Call it before
    /// anything is sent.
    pub fn filler(&self) -> Filler {
        Filler { window: Arc::clone(&self.window), filled: self.sent }
    }

    /// Returns the number of messages sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends the next message that a [`Filler`] filled, and announces with it that `given_back`
    /// messages of the peer were released. False if the queue is full; nothing was sent then.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub fn send_filled(
        &mut self,
        operations: &Operations,
        filled: &Filled,
        given_back: u32,
    ) -> Result<bool, EndError> {
        Ok(self.send(operations, filled, given_back, false)?.is_some())
    }

    /// As [`Outbound::send_filled`]; the ticket tells when the message is at the peer, if `tells`. `None` if the queue is full.
    pub(super) fn send(
        &mut self,
        operations: &Operations,
        filled: &Filled,
        given_back: u32,
        tells: bool,
    ) -> Result<Option<Ticket>, EndError> {
        let Filled { slot, header } = *filled;
        let window = &*self.window;
        let generation = 1 + self.sent / u64::from(window.geometry.blocks());
        let commit = |epoch| commit_word(epoch, slot, generation, &header_words(&header));
        let tail = self.epoch.map_or(0, commit);
        window.geometry.seal(&operations.outgoing(), slot, &header, tail);
        let offset = window.geometry.trailer_offset(slot) - header.room_bytes as usize;
        let bytes = header.room_bytes + TRAILER_BYTES;
        let imm = imm(Some(slot), given_back);
        // Before the request: the peer may answer at once.
        window.sent.store(self.sent + 1, Ordering::Release);
        let signaled = tells || !window.is_free(operations, self.sent + 1);
        let Some(ticket) = operations.message(offset, bytes, imm, signaled)? else {
            window.sent.store(self.sent, Ordering::Release);
            return Ok(None);
        };
        self.sent += 1;
        window.request_of[slot as usize].store(ticket.0, Ordering::Relaxed);
        window.posted.store(self.sent, Ordering::Release);
        Ok(Some(ticket))
    }

    /// Announces in a notice of its own that so many messages of the peer were released. False if
    /// the queue is full.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub fn announce(&self, operations: &Operations, given_back: u32) -> Result<bool, EndError> {
        Ok(operations.notice(imm(None, given_back))?.is_some())
    }
}

/// Fills messages in place for an [`Outbound`], one after the other, each in the slot that it will
/// have at the peer.
pub struct Filler {
    window: Arc<Window>,
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
        self.window.posted.load(Ordering::Acquire) == self.filled
    }

    /// Returns the memory to fill with the next message of so many bytes; `None` while its slot is
    /// in use: the slot's last message was not posted, its request is not done, or the peer has not
    /// released it.
    ///
    /// # Errors
    /// [`ClaimError::Length`] for more bytes than a slot has.
    pub fn memory<'a>(
        &self,
        operations: &'a Operations,
        bytes: u32,
    ) -> Result<Option<VolatileSlice<'a>>, ClaimError> {
        self.window.geometry.check_length(bytes, u32::MAX)?;
        Ok(self.is_free(operations).then(|| self.payload(operations, bytes)))
    }

    /// Returns the memory of the next message, whether or not its slot is free.
    pub(super) fn payload<'a>(&self, operations: &'a Operations, bytes: u32) -> VolatileSlice<'a> {
        let slot = self.window.slot(self.filled);
        self.window.geometry.payload(operations.outgoing(), slot, padded(bytes), bytes)
    }

    pub(super) fn is_free(&self, operations: &Operations) -> bool {
        let unposted = self.filled - self.window.posted.load(Ordering::Acquire);
        unposted < self.window.geometry.blocks().into()
            && self.window.is_free(operations, self.filled)
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
        let slot = self.window.slot(self.filled);
        self.filled += 1;
        Ok(Filled { slot, header })
    }
}

/// Encodes an immediate: the slot of a message, counted from 1, in the lower half, and the number
/// of the peer's messages released since the last immediate in the upper half.
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
        let window = Window::new(Geometry::new(8, 64, 1).unwrap());
        window.sent.store(5, Ordering::Relaxed);
        window.add_credit(3).unwrap();
        assert_eq!(window.add_credit(3), Err(PeerFault::Credit { count: 6, known: 3, sent: 5 }));
        window.add_credit(2).unwrap();
    }
}
