//! The ends of mechanisms whose blocks go into slots of the receiver. One block is claimed at a time;
//! a mechanism adds how the sender learns of free slots, and how a block gets there.
use super::{ClaimError, Counts, EndError, Features, FirstError, Helper, SendEnd, Tag, TakenBlock};
use catchment_channel::geometry::{Arrived, Geometry};
use catchment_transfer::HeaderError;
use catchment_transfer::layout::padded;
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::{Mr, Watch};
use std::sync::Arc;

/// The features of a [`SlotSender`] whose blocks have the product's header.
pub(crate) const FEATURES: Features = Features {
    any_length: true,
    in_order: true,
    out_of_order_release: true,
    many_claims: false,
    stream_bits: 32,
    packet_bits: 64,
};

/// What a mechanism adds to a [`SlotSender`].
pub trait Slots: Send + 'static {
    /// A slot that may be filled and sent now.
    type Slot: Copy + Send;
    /// Messages of the sender for each block.
    const INTERACTIONS: u64;

    /// Returns the slot for the next block of a stream, if one can be used.
    fn find(&mut self, stream: u32) -> Result<Option<Self::Slot>, ClaimError>;
    /// Returns the memory to fill with a block of `bytes` bytes for this slot.
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
#[must_use = "a claimed block is sent only by a commit"]
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
        // It cannot be committed twice.
        self.claims += 1;
        let SlotClaim { slot, stream, bytes, .. } = claim;
        let block = Arrived { stream, packet, bytes, room_bytes: padded(bytes) };
        self.slots.send(slot, &block).map_err(|error| self.broken.set(error))?;
        self.counts.add_block(bytes.into());
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

/// The receiver's slots, as its blocks share them.
pub trait Released: Send + Sync + 'static {
    fn geometry(&self) -> &Geometry;
    fn slots(&self) -> &Arc<dyn Mr>;
    /// Releases the block in this place, from any thread.
    fn release(&self, place: u32);
}

/// A received block in a slot.
pub struct SlotBlock<S: Released> {
    shared: Arc<S>,
    place: u32,
    arrived: Arrived,
}

impl<S: Released> SlotBlock<S> {
    /// Reads the block that has arrived in this place.
    #[inline]
    pub(crate) fn arrived(
        shared: &Arc<S>,
        place: u32,
        counts: &mut Counts,
    ) -> Result<Self, EndError> {
        let arrived = shared.geometry().header(&shared.slots().region().whole(), place)?;
        counts.add_block(arrived.bytes.into());
        Ok(Self { shared: Arc::clone(shared), place, arrived })
    }
}

impl<S: Released> TakenBlock for SlotBlock<S> {
    #[inline]
    fn tag(&self) -> Tag {
        self.arrived.tag()
    }

    #[inline]
    fn payload(&self) -> VolatileSlice<'_> {
        let memory = self.shared.slots().region().whole();
        self.shared.geometry().arrived(memory, self.place, &self.arrived)
    }
}

impl<S: Released> Drop for SlotBlock<S> {
    #[inline]
    fn drop(&mut self) {
        self.shared.release(self.place);
    }
}
