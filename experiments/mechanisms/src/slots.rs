//! The sending end of mechanisms whose blocks go into slots of the receiver: one block is claimed at a
//! time, and what a mechanism adds is how it learns of free slots and gets a block there.
use super::{ClaimError, Counts, EndError, FirstError, Helper, SendEnd};
use catchment_channel::geometry::Arrived;
use catchment_transfer::HeaderError;
use catchment_transfer::layout::padded;
use catchment_verbs::Watch;
use catchment_verbs::mem::VolatileSlice;
use std::sync::Arc;

/// What a mechanism adds to a [`SlotSender`].
pub trait Slots: Send + 'static {
    /// A slot that may be filled and sent now.
    type Slot: Copy + Send;
    /// Messages of the sender for each block.
    const INTERACTIONS: u64;

    /// Returns the slot for the next block of a stream, if one can be used.
    fn find(&mut self, stream: u32) -> Result<Option<Self::Slot>, ClaimError>;
    /// Returns where the so many bytes of the block for this slot are filled in.
    fn memory(&self, slot: Self::Slot, bytes: u32) -> VolatileSlice<'_>;
    /// Sends the block that was filled for this slot.
    fn send(&mut self, slot: Self::Slot, block: &Arrived) -> Result<(), EndError>;
    /// Does what is due for blocks sent before.
    fn progress(&mut self) -> Result<(), EndError>;
    /// Notices the end of the session where no request would.
    fn check(&self) -> Result<(), EndError>;
    /// Returns what to sleep on until a slot can be used.
    fn watch(&self) -> Option<Arc<dyn Watch>>;
    /// Hands out, once, work for a thread of its own.
    fn helper(&mut self) -> Option<Box<dyn Helper>> {
        None
    }
}

/// The sending end. One thread at a time uses it.
pub struct SlotSender<S> {
    pub(crate) slots: S,
    /// Most payload bytes of a block.
    limit: u32,
    /// An older claim than the last cannot be committed.
    claims: u64,
    counts: Counts,
    broken: FirstError,
}

/// A claimed block of a [`SlotSender`].
#[derive(Debug)]
#[must_use = "a block that is claimed and not committed is not sent"]
pub struct SlotClaim<T> {
    number: u64,
    slot: T,
    stream: u32,
    bytes: u32,
}

impl<S: Slots> SlotSender<S> {
    pub(crate) fn over(slots: S, limit: u32) -> Self {
        Self { slots, limit, claims: 0, counts: Counts::default(), broken: FirstError::default() }
    }

    #[cold]
    fn refuse(&mut self) -> ClaimError {
        self.counts.would_blocks += 1;
        match self.slots.check() {
            Ok(()) => ClaimError::WouldBlock,
            Err(error) => self.broken.set(error).into(),
        }
    }
}

impl<S: Slots> SendEnd for SlotSender<S> {
    type Claim = SlotClaim<S::Slot>;

    #[inline]
    fn claim(&mut self, stream: u32, bytes: u32) -> Result<SlotClaim<S::Slot>, ClaimError> {
        let limit = self.limit;
        if bytes > limit {
            return Err(ClaimError::Length { asked: bytes, limit, exactly: false });
        }
        self.broken.check()?;
        let slot = match self.slots.find(stream) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Err(self.refuse()),
            Err(ClaimError::End(error)) => return Err(self.broken.set(error).into()),
            Err(other) => return Err(other),
        };
        self.claims += 1;
        Ok(SlotClaim { number: self.claims, slot, stream, bytes })
    }

    #[inline]
    fn memory<'a>(&'a self, claim: &'a SlotClaim<S::Slot>) -> VolatileSlice<'a> {
        self.slots.memory(claim.slot, claim.bytes)
    }

    #[inline]
    fn commit(&mut self, claim: SlotClaim<S::Slot>, packet: u64) -> Result<(), EndError> {
        if claim.number != self.claims {
            return Err(EndError::StaleClaim);
        }
        if packet == u64::MAX {
            return Err(EndError::Packet(HeaderError::PacketNumber(packet)));
        }
        // No second commit of it.
        self.claims += 1;
        let SlotClaim { slot, stream, bytes, .. } = claim;
        let block = Arrived { stream, packet, bytes, room_bytes: padded(bytes) };
        self.slots.send(slot, &block).map_err(|error| self.broken.set(error))?;
        self.counts.blocks += 1;
        self.counts.payload_bytes += u64::from(bytes);
        Ok(())
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.broken.check()?;
        let result = self.slots.progress().and_then(|()| self.slots.check());
        result.map_err(|error| self.broken.set(error))
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.slots.watch()
    }

    fn helper(&mut self) -> Option<Box<dyn Helper>> {
        self.slots.helper()
    }

    fn counts(&self) -> Counts {
        Counts { interactions: S::INTERACTIONS * self.counts.blocks, ..self.counts }
    }
}
