//! Messages that go out: the window of the peer's slots.
use super::operations::Operations;
use crate::{
    header::encode_trailer,
    layout::TRAILER_BYTES,
    mechanism::{EndError, PeerFault},
    window::{Arrived, Geometry, INSIDE, header_words},
};
use catchment_verbs::mem::VolatileSlice;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

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
            let count = back;
            return Err(PeerFault::Credit { count, known, sent });
        }
        self.back.store(back, Ordering::Release);
        Ok(())
    }
}

/// The sending half. One thread at a time uses it.
pub struct Outbound {
    geometry: Geometry,
    credit: Arc<Credit>,
    sent: u64,
    /// For each slot the request that reads its send block.
    request_of: Box<[u64]>,
}

impl Outbound {
    pub(super) fn new(geometry: Geometry, credit: Arc<Credit>) -> Outbound {
        Outbound {
            credit,
            sent: 0,
            request_of: vec![0; geometry.blocks() as usize].into(),
            geometry,
        }
    }

    /// Messages sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The slot of the next message, if the peer gave it back and its send block was read.
    pub fn free_slot(&self, operations: &Operations) -> Option<u32> {
        let blocks = u64::from(self.geometry.blocks());
        let back = self.credit.back.load(Ordering::Acquire);
        let slot = (self.sent % blocks) as u32;
        let request = super::Ticket(self.request_of[slot as usize]);
        let is_free = self.sent - back < blocks && operations.is_done(request);
        is_free.then_some(slot)
    }

    /// Where a message of so many bytes is filled.
    pub fn memory<'a>(
        &self,
        operations: &'a Operations,
        slot: u32,
        room_bytes: u32,
        bytes: u32,
    ) -> VolatileSlice<'a> {
        let outgoing = operations.outgoing();
        self.geometry.payload(outgoing, slot, room_bytes, bytes)
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
        let outgoing = operations.outgoing();
        outgoing.write_at(trailer_offset, &trailer).expect(INSIDE);
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
        self.request_of[slot as usize] = ticket.0;
        Ok(true)
    }

    /// Says alone that so many of the peer's messages were given back. False if the queue is full.
    ///
    /// # Errors
    /// [`EndError`]; the session is over.
    pub fn tell(&self, operations: &Operations, given_back: u32) -> Result<bool, EndError> {
        let ticket = operations.notice(imm(None, given_back))?;
        Ok(ticket.is_some())
    }
}

/// The slot of a message, counted from 1, in the lower half; the upper half says how many messages of
/// the other end were given back since the last immediate.
pub(super) fn imm(slot: Option<u32>, given_back: u32) -> u32 {
    given_back << 16 | slot.map_or(0, |slot| slot + 1)
}

/// The reverse of [`imm`].
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
        let fault = PeerFault::Credit {
            count: 6,
            known: 3,
            sent: 5,
        };
        assert_eq!(credit.add(3), Err(fault));
        credit.add(2).unwrap();
    }
}
