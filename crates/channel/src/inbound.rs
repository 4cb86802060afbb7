//! Incoming messages.
use super::outbound::{Window, split};
use crate::geometry::{Arrived, Geometry, INSIDE, read_header};
use crate::{EndError, PeerFault, Tag};
use catchment_transfer::layout::TRAILER_BYTES;
use catchment_transfer::protocol::commit_word;
use catchment_verbs::Mr;
use catchment_verbs::mem::VolatileSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// The slot may be written by the peer.
const WITH_PEER: u8 = 0;
/// Its message was taken.
const TAKEN: u8 = 1;
/// Its message was released, which was not announced to the peer yet.
const GIVEN_BACK: u8 = 2;

/// What a message or a notice brought.
pub struct Arrival {
    /// The message; `None` for a notice.
    pub block: Option<Message>,
    /// Messages of this end that the peer released.
    pub given_back: u32,
}

/// The receiving half. One thread at a time passes completed receives to it; any thread may release
/// messages.
pub struct Inbound {
    slots: Arc<Slots>,
    window: Arc<Window>,
    /// Messages that arrived.
    came: u64,
    words: Option<Words>,
}

/// The words that a peer writes where nothing tells of it ([`crate::Mode::Write`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// Of its commit words.
    pub(super) epoch: u64,
    /// Where its credit word is.
    pub(super) credit_offset: usize,
}

/// The slots of this end, as all messages share them.
pub struct Slots {
    geometry: Geometry,
    memory: Arc<dyn Mr>,
    state: Box<[AtomicU8]>,
    /// Where the message of each slot lies.
    places: Box<[AtomicU32]>,
    /// Messages released but not announced to the peer.
    pending: AtomicU32,
    /// Slots that the peer does not know to be free, as far as this end knows: those of messages that came,
    /// until their release was announced.
    used: AtomicU32,
    /// The receiver wants to be woken when one is released.
    idle: AtomicBool,
    wake: Box<Wake>,
}

/// Called when a message is released while the receiver is idle.
pub type Wake = dyn Fn() + Send + Sync;

impl Inbound {
    /// Calls `wake` when a message is released while the receiver is idle ([`Slots::set_idle`]).
    pub(super) fn new(
        geometry: Geometry,
        memory: Arc<dyn Mr>,
        window: Arc<Window>,
        wake: Box<Wake>,
        words: Option<Words>,
    ) -> Self {
        let state = (0..geometry.blocks()).map(|_| AtomicU8::new(WITH_PEER));
        let places = (0..geometry.blocks()).map(AtomicU32::new);
        Self {
            slots: Arc::new(Slots {
                geometry,
                memory,
                state: state.collect(),
                places: places.collect(),
                pending: AtomicU32::new(0),
                used: AtomicU32::new(0),
                idle: AtomicBool::new(false),
                wake,
            }),
            window,
            came: 0,
            words,
        }
    }

    /// Returns the slots, for the thread that announces releases to the peer.
    pub fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    /// Takes the message or notice with this immediate.
    ///
    /// # Errors
    /// [`EndError::Peer`] if the peer broke the protocol.
    pub fn arrived(&mut self, imm: u32, bytes: u64) -> Result<Arrival, EndError> {
        self.told(imm, bytes, None)
    }

    /// Takes the message or notice that came into the receive of this place ([`crate::Mode::Send`]).
    pub(super) fn received(
        &mut self,
        imm: u32,
        bytes: u64,
        place: u32,
    ) -> Result<Arrival, EndError> {
        self.told(imm, bytes, Some(place))
    }

    fn told(&mut self, imm: u32, bytes: u64, receive: Option<u32>) -> Result<Arrival, EndError> {
        let (slot, given_back) = split(imm);
        self.window.add_credit(given_back)?;
        let Some(slot) = slot else {
            return Ok(Arrival { block: None, given_back });
        };
        let geometry = &self.slots.geometry;
        if slot != self.next_slot() {
            return Err(PeerFault::Immediate(imm).into());
        }
        self.check_with_peer(slot)?;
        // In a receive the block begins where that does.
        let trailer = match receive {
            None => Some((slot, geometry.trailer_offset(slot))),
            Some(place) => bytes.checked_sub(TRAILER_BYTES.into()).map(|room_bytes| {
                let most = u64::from(geometry.block_bytes() - TRAILER_BYTES);
                (place, geometry.slot_offset(place) + room_bytes.min(most) as usize)
            }),
        };
        let (place, at) = trailer.ok_or(PeerFault::Message(bytes))?;
        let words = read_header(&self.slots.memory.region().whole(), at);
        let arrived = geometry.check(place, &words)?;
        if bytes != u64::from(arrived.room_bytes) + u64::from(TRAILER_BYTES) {
            return Err(PeerFault::Message(bytes).into());
        }
        self.slots.places[slot as usize].store(place, Ordering::Relaxed);
        Ok(Arrival { block: Some(self.take(slot, at, arrived)), given_back })
    }

    /// Looks for the next message in its slot, and at the credit word, where nothing tells of either.
    ///
    /// # Errors
    /// [`EndError::Peer`] if the peer broke the protocol.
    pub(super) fn look(&mut self) -> Result<Option<Message>, EndError> {
        let Some(Words { epoch, credit_offset }) = self.words else { return Ok(None) };
        let Slots { geometry, memory, .. } = &*self.slots;
        let memory = memory.region().whole();
        let load = |offset| u64::from_le(memory.load_u64(offset, Ordering::Acquire).expect(INSIDE));
        self.window.note_back(load(credit_offset))?;
        let slot = self.next_slot();
        let generation = 1 + self.came / u64::from(geometry.blocks());
        let (commit, at) = (load(geometry.tail_offset(slot)), geometry.trailer_offset(slot));
        // The peer may write meanwhile: what was copied is what is checked.
        let words = read_header(&memory, at);
        if commit != commit_word(epoch, slot, generation, &words) {
            return Ok(None);
        }
        let arrived = geometry.check(slot, &words)?;
        self.check_with_peer(slot)?;
        Ok(Some(self.take(slot, at, arrived)))
    }

    fn next_slot(&self) -> u32 {
        (self.came % u64::from(self.slots.geometry.blocks())) as u32
    }

    /// Returns messages that arrived, plus those of this end that the peer is known to have released.
    pub(super) fn seen(&self) -> u64 {
        self.came + self.window.back()
    }

    fn check_with_peer(&self, slot: u32) -> Result<(), PeerFault> {
        let state = self.slots.state[slot as usize].load(Ordering::Acquire);
        if state == WITH_PEER { Ok(()) } else { Err(PeerFault::Overwritten(slot)) }
    }

    /// Hands out the message of a slot, whose trailer is at this offset.
    fn take(&mut self, slot: u32, trailer_at: usize, arrived: Arrived) -> Message {
        self.slots.state[slot as usize].store(TAKEN, Ordering::Relaxed);
        self.came += 1;
        self.slots.used.fetch_add(1, Ordering::SeqCst);
        // What was released before may be due now.
        self.slots.wake_if_due();
        let payload_at = trailer_at - arrived.room_bytes as usize;
        Message { slots: Arc::clone(&self.slots), slot, payload_at, arrived }
    }
}

impl Slots {
    /// Returns how many releases to announce to the peer now; they count as announced. `announced`
    /// is the number before, kept by the one thread that announces.
    pub fn take_given_back(&self, announced: &mut u64) -> u32 {
        self.pending.store(0, Ordering::SeqCst);
        let blocks = u64::from(self.geometry.blocks());
        let mut count = 0;
        while u64::from(count) < blocks {
            let slot = (*announced % blocks) as usize;
            if self.state[slot].load(Ordering::Acquire) != GIVEN_BACK {
                break;
            }
            self.state[slot].store(WITH_PEER, Ordering::Relaxed);
            *announced += 1;
            count += 1;
        }
        self.used.fetch_sub(count, Ordering::SeqCst);
        count
    }

    /// Returns the places of messages that were announced, after so many before them, where they lie in receives.
    pub(super) fn places(&self, announced: u64, count: u32) -> impl Iterator<Item = u32> {
        let blocks = u64::from(self.geometry.blocks());
        let slots = (announced..announced + u64::from(count)).map(move |n| (n % blocks) as usize);
        slots.map(|slot| self.places[slot].load(Ordering::Relaxed))
    }

    /// Returns the number of messages released but not announced to the peer.
    pub fn pending(&self) -> u32 {
        self.pending.load(Ordering::SeqCst)
    }

    /// Returns whether a notice of its own is due: enough are pending, or the receiver is idle and half of
    /// the slots or more are in use. With fewer the peer has room, and the next message carries the news.
    pub fn is_due(&self) -> bool {
        let (blocks, pending) = (self.geometry.blocks(), self.pending());
        let is_short = || 2 * self.used.load(Ordering::SeqCst) >= blocks;
        pending >= blocks.div_ceil(4)
            || (pending > 0 && self.idle.load(Ordering::SeqCst) && is_short())
    }

    /// Sets whether the receiver is idle: what is due is then announced at once, and a message that makes
    /// it due wakes the thread that announces it.
    pub fn set_idle(&self, idle: bool) {
        if self.idle.load(Ordering::Relaxed) != idle {
            self.idle.store(idle, Ordering::SeqCst);
        }
    }

    fn give_back(&self, slot: u32) {
        self.state[slot as usize].store(GIVEN_BACK, Ordering::Release);
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.wake_if_due();
    }

    fn wake_if_due(&self) {
        if self.idle.load(Ordering::SeqCst) && self.is_due() {
            (self.wake)();
        }
    }
}

/// A received message. Dropping it, on any thread, releases its slot.
pub struct Message {
    slots: Arc<Slots>,
    slot: u32,
    payload_at: usize,
    arrived: Arrived,
}

impl Message {
    /// Returns the stream and number that the sender gave the message.
    pub fn tag(&self) -> Tag {
        self.arrived.tag()
    }

    /// Returns the bytes of the message, in place.
    pub fn payload(&self) -> VolatileSlice<'_> {
        let memory = self.slots.memory.region().whole();
        let bytes = self.arrived.bytes as usize;
        memory.subslice(self.payload_at, bytes).expect(INSIDE)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.slots.give_back(self.slot);
    }
}
