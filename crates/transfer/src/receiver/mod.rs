//! The receiving side of a ring.
//!
//! It posts nothing and gets no completion. It polls memory, and releases slots by a store. Any number
//! of threads may poll at once, and release blocks in any order.
mod block;

use crate::checksum::crc32c_of;
use crate::commit::HEADER_WORDS;
use crate::counters::Counter;
use crate::header::{BlockHeader, HeaderError, extent, is_segmented};
use crate::layout::{LARGE_BLOCK_BYTES, LINE_BYTES, RingLayout};
use crate::memory::RingMemory;
use crate::mirror::ByteMirror;
use crate::releases::Releases;
use crate::slot::{ReceiverSlots, SlotMemory, Taken};
use crate::status::full_byte;
use crate::sync::Threads;
pub use block::{CrcMismatch, ReceivedBlock};
use catchment_verbs::bias::{Bias, BiasedArc};
use catchment_verbs::mem::{MemError, RegionSlice};
use catchment_verbs::{Mr, Watch};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How a receiver decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiverOptions {
    /// Take a block only when the CRC32C of its payload matches too: for devices that do not promise
    /// the order within a WRITE ([`catchment_verbs::Caps::data_in_order`]). Every block must then have
    /// a checksum.
    pub crc_decides: bool,
}

/// A ring cannot be received from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiverError {
    /// The registered memory does not fit the layout.
    #[error("the memory of the ring does not fit its layout: {0}")]
    Memory(#[from] MemError),
}

/// The source broke the protocol: end the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerMisbehaved {
    /// A committed block whose header is wrong.
    #[error("block {slot} (generation {generation}): {reason}")]
    Header {
        /// The slot.
        slot: u32,
        /// The slot's generation.
        generation: u64,
        /// What is wrong.
        reason: HeaderError,
    },
    /// A block in a slot whose last block was not released: its bytes may be wrong now.
    #[error("block {slot} (generation {generation}) was written over an unreleased one")]
    Overwritten {
        /// The slot.
        slot: u32,
        /// The slot's generation.
        generation: u64,
    },
    /// A block without the checksum that [`ReceiverOptions::crc_decides`] needs.
    #[error("block {slot} (generation {generation}) has no checksum; this device needs one")]
    NoCrc {
        /// The slot.
        slot: u32,
        /// The slot's generation.
        generation: u64,
    },
}

/// What a receiver has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiverStats {
    /// Blocks taken.
    pub blocks: u64,
    /// Payload bytes of them.
    pub payload_bytes: u64,
    /// Hints that arrived before their block: WRITEs overtook each other.
    pub hints_early: u64,
    /// Hints with a value that a correct source does not write.
    pub hints_wrong: u64,
}

#[derive(Debug, Default)]
struct Counters {
    hints_early: Counter,
    hints_wrong: Counter,
}

/// The receiving side of one ring in one session.
///
/// Released slots are published to the source several at a time: when a quarter of the ring is due, or
/// when a complete poll ([`Receiver::poll`]) finds nothing, and from then on each at once.
///
/// The ring's memory belongs to this session until the receiver and all its blocks are dropped.
pub struct Receiver {
    shared: BiasedArc<Shared>,
}

struct Shared {
    mr: Arc<dyn Mr>,
    memory: RingMemory,
    epoch: u64,
    options: ReceiverOptions,
    /// Whether one thread alone takes and releases.
    bias: Bias,
    slots: ReceiverSlots,
    /// `full[]` as of the blocks that were taken.
    consumed: ByteMirror,
    notes: Box<[Note]>,
    releases: Releases,
    /// The slot in which the next block is expected.
    next: AtomicU32,
    counters: Counters,
}

/// What the receiver keeps for a slot. Only the thread that took its block writes, so that plain stores
/// suffice.
#[derive(Debug, Default)]
struct Note {
    /// The commit word taken last, to detect a change with one comparison.
    seen: AtomicU64,
    /// Payload bytes of all its blocks.
    payload_bytes: AtomicU64,
    /// The checked header of the block that was taken last.
    header: [AtomicU64; HEADER_WORDS],
}

impl Note {
    fn set_header(&self, words: &[u64; HEADER_WORDS]) {
        self.header.iter().zip(words).for_each(|(kept, word)| kept.store(*word, Ordering::Relaxed));
    }

    /// Returns bytes of room and of payload: two loads, where a header is seven.
    #[inline]
    fn extent(&self) -> (u32, u32) {
        let [first, .., last] = &self.header;
        extent(first.load(Ordering::Relaxed), last.load(Ordering::Relaxed))
    }

    fn header(&self) -> BlockHeader {
        BlockHeader::from_checked(&self.header.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }
}

impl Receiver {
    /// Prepares the ring in `mr` for a new session: all status bytes and commit words become 0.
    /// Call it before the peer may write. The ring begins at the first byte of `mr`.
    ///
    /// # Errors
    /// [`ReceiverError::Memory`] when `mr` is smaller than the layout.
    pub fn new(
        mr: Arc<dyn Mr>,
        layout: RingLayout,
        epoch: u64,
        options: ReceiverOptions,
    ) -> Result<Self, ReceiverError> {
        let bytes = RegionSlice::new(Arc::clone(mr.region()), 0, layout.total_bytes())?;
        let memory = RingMemory::new(bytes, layout)?;
        memory.clear();
        let blocks = layout.blocks();
        let shared = Shared {
            mr,
            memory,
            epoch,
            options,
            bias: Bias::new(),
            slots: ReceiverSlots::new(blocks),
            consumed: ByteMirror::new(blocks),
            notes: (0..blocks).map(|_| Note::default()).collect(),
            releases: Releases::new(blocks, layout.block_bytes() >= LARGE_BLOCK_BYTES),
            next: AtomicU32::new(0),
            counters: Counters::default(),
        };
        Ok(Self { shared: BiasedArc::new(shared) })
    }

    /// Takes a block, if there is one: polls the slot where the next one is expected, then all others, by
    /// their commit words, or by `full[]` where the ring has hints. Never blocks.
    ///
    /// # Errors
    /// [`PeerMisbehaved`]; the slot was released, and other blocks can still be taken.
    #[inline(always)]
    pub fn poll(&self) -> Result<Option<ReceivedBlock>, PeerMisbehaved> {
        match self.poll_next()? {
            Some(block) => Ok(Some(block)),
            None if self.shared.memory.layout.has_hints() => self.scan(),
            None => self.scan_commits(),
        }
    }

    /// Takes the block in the slot where the next one is expected, if it is there. Reads nothing else,
    /// so that a thread that spins here shares one cache line with the source. A block in another slot
    /// is not found: call [`Receiver::poll`] now and then, and before sleeping.
    ///
    /// # Errors
    /// As for [`Receiver::poll`].
    #[inline(always)]
    pub fn poll_next(&self) -> Result<Option<ReceivedBlock>, PeerMisbehaved> {
        let shared = &*self.shared;
        let slot = shared.next.load(Ordering::Relaxed);
        if !shared.is_new(slot) {
            shared.prefetch_payload(slot);
            return Ok(None);
        }
        self.take(slot)
    }

    /// Checks all commit words. Blocks come while it looks: the first that it finds may have come after one
    /// in a slot that it had passed. All that came before the one found are visible then, so it looks once
    /// more and takes the first in ring order.
    fn scan_commits(&self) -> Result<Option<ReceivedBlock>, PeerMisbehaved> {
        let shared = &*self.shared;
        let polled = shared.next.load(Ordering::Relaxed);
        let ring = (polled..shared.memory.layout.blocks()).chain(0..polled);
        if ring.clone().any(|slot| shared.is_new(slot)) {
            for slot in ring.filter(|slot| shared.is_new(*slot)) {
                if let Some(block) = self.take(slot)? {
                    return Ok(Some(block));
                }
            }
        }
        shared.found_nothing();
        Ok(None)
    }

    /// Checks all hints.
    fn scan(&self) -> Result<Option<ReceivedBlock>, PeerMisbehaved> {
        let shared = &*self.shared;
        let first = shared.next.load(Ordering::Relaxed);
        let scan = shared.consumed.look(&shared.memory.whole(), first, |slot| {
            if !shared.hint_is_new(slot) {
                return ControlFlow::Continue(());
            }
            match self.take(slot) {
                Ok(None) => {
                    shared.counters.hints_early.add(1);
                    ControlFlow::Continue(())
                }
                found => ControlFlow::Break(found),
            }
        });
        match scan {
            ControlFlow::Continue(()) => {
                shared.found_nothing();
                Ok(None)
            }
            ControlFlow::Break(found) => found,
        }
    }

    /// Takes a committed block whether or not its hint arrived: for after the peer's death, and where
    /// hints can get lost. Checks every slot; `None` when nothing is left.
    ///
    /// # Errors
    /// As for [`Receiver::poll`]; call it again for the rest.
    pub fn drain(&self) -> Result<Option<ReceivedBlock>, PeerMisbehaved> {
        let blocks = self.shared.memory.layout.blocks();
        let first = self.shared.next.load(Ordering::Relaxed);
        for slot in (0..blocks).map(|i| (first + i) % blocks) {
            if let Some(block) = self.take(slot)? {
                return Ok(Some(block));
            }
        }
        self.shared.found_nothing();
        Ok(None)
    }

    #[inline(always)]
    fn take(&self, slot: u32) -> Result<Option<ReceivedBlock>, PeerMisbehaved> {
        match self.shared.take(slot) {
            Ok(None) => Ok(None),
            Ok(Some(generation)) => {
                Ok(Some(ReceivedBlock::new(self.shared.clone(), slot, generation.get())))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the watch for what the source writes; `None` if the provider has no doorbell.
    ///
    /// Arm it, call [`Receiver::poll`] once more, then wait.
    pub fn watch(&self) -> Option<Arc<dyn Watch>> {
        // A part of a block without its commit word is nothing to look for.
        let layout = &self.shared.memory.layout;
        self.shared.mr.watch_ends(layout.blocks_offset(), layout.block_bytes() as usize)
    }

    /// Returns the shape of the ring.
    pub fn layout(&self) -> &RingLayout {
        &self.shared.memory.layout
    }

    /// Returns the registered memory of the ring.
    pub fn mr(&self) -> &Arc<dyn Mr> {
        &self.shared.mr
    }

    /// Returns the number of blocks taken and not released yet.
    pub fn outstanding(&self) -> usize {
        BiasedArc::count(&self.shared) as usize - 1
    }

    /// Returns what was done so far.
    pub fn stats(&self) -> ReceiverStats {
        let counters = &self.shared.counters;
        ReceiverStats {
            blocks: self.shared.slots.total(),
            payload_bytes: self.payload_bytes(),
            hints_early: counters.hints_early.get(),
            hints_wrong: counters.hints_wrong.get(),
        }
    }

    fn payload_bytes(&self) -> u64 {
        self.shared.notes.iter().map(|note| note.payload_bytes.load(Ordering::Relaxed)).sum()
    }

    /// Ends the session and returns the memory for another one.
    ///
    /// # Errors
    /// The receiver itself while blocks of it are not released: a late release would disturb the
    /// next session.
    pub fn into_mr(self) -> Result<Arc<dyn Mr>, Self> {
        let shared = self.shared.clone();
        drop(self);
        match BiasedArc::try_unwrap(shared) {
            Ok(shared) => Ok(shared.mr),
            Err(shared) => Err(Self { shared }),
        }
    }
}

/// Polling has stopped, so later releases are published immediately.
impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.found_nothing();
    }
}

impl Shared {
    /// The last payload line of a small block lies directly before the trailer. Asking for it
    /// while waiting overlaps its transfer between the caches with that of the trailer.
    #[inline]
    fn prefetch_payload(&self, slot: u32) {
        self.memory.whole().prefetch(self.memory.layout.trailer_offset(slot) - LINE_BYTES as usize);
    }

    /// Takes the block of a slot, if there is one, and returns its generation. No block
    /// is returned: what the caller copies out of memory just after it was written there waits for all
    /// stores before it.
    fn take(&self, slot: u32) -> Result<Option<NonZeroU64>, PeerMisbehaved> {
        let accept = |words: &[u64; HEADER_WORDS]| self.payload_is_there(slot, words);
        let section = self.bias.enter();
        let threads = section.threads();
        let taken = self.slots.take(threads, &self.memory, self.epoch, slot, accept);
        let (generation, words) = match taken {
            Taken::Block { generation, header, word } => {
                self.note_taken(threads, slot, generation, word);
                (generation, header)
            }
            Taken::Overwritten { generation, word } => {
                self.note_taken(threads, slot, generation, word);
                return Err(PeerMisbehaved::Overwritten { slot, generation });
            }
            Taken::NotYet | Taken::Raced => return Ok(None),
        };
        if let Err(error) = self.check(slot, generation, &words) {
            self.release(slot, generation);
            return Err(error);
        }
        self.note_header(slot, &words);
        Ok(NonZeroU64::new(generation))
    }

    /// Returns whether the slot's commit word is another one than that taken last.
    #[inline]
    fn is_new(&self, slot: u32) -> bool {
        let seen = self.notes[slot as usize].seen.load(Ordering::Relaxed);
        self.memory.load_commit(slot) != seen
    }

    #[inline]
    fn note_taken(&self, threads: Threads, slot: u32, generation: u64, word: u64) {
        if self.memory.layout.has_hints() {
            self.consumed.change(threads, slot, full_byte(generation - 1), full_byte(generation));
        }
        self.notes[slot as usize].seen.store(word, Ordering::Relaxed);
        self.releases.note_busy();
        let after = slot + 1;
        let next = if after == self.memory.layout.blocks() { 0 } else { after };
        self.next.store(next, Ordering::Relaxed);
    }

    /// Returns whether `full[]` names the next generation, and not one that another thread has just
    /// taken.
    fn hint_is_new(&self, slot: u32) -> bool {
        let taken = self.slots.generation(slot);
        let hint = self.memory.load_full(slot);
        // A hint may also be late: its block was found without it.
        let ahead = hint.wrapping_sub(full_byte(taken)) as i8;
        if !(-1..=1).contains(&ahead) {
            self.counters.hints_wrong.add(1);
        }
        ahead == 1
    }

    #[inline]
    fn payload_is_there(&self, slot: u32, words: &[u64; HEADER_WORDS]) -> bool {
        if !self.options.crc_decides && !is_segmented(words) {
            return true;
        }
        // A wrong header is taken, so that it can be reported.
        let Ok(header) = BlockHeader::read(words, &self.memory.layout) else { return true };
        let payload = self.memory.payload(slot, header.room_bytes, header.payload_bytes);
        header.crc().is_none_or(|crc| crc == crc32c_of(&payload))
    }

    #[inline]
    fn check(
        &self,
        slot: u32,
        generation: u64,
        words: &[u64; HEADER_WORDS],
    ) -> Result<(), PeerMisbehaved> {
        let header = BlockHeader::read(words, &self.memory.layout)
            .map_err(|reason| PeerMisbehaved::Header { slot, generation, reason })?;
        if self.options.crc_decides && header.crc().is_none() {
            return Err(PeerMisbehaved::NoCrc { slot, generation });
        }
        Ok(())
    }

    #[inline]
    fn note_header(&self, slot: u32, words: &[u64; HEADER_WORDS]) {
        let note = &self.notes[slot as usize];
        note.set_header(words);
        let before = note.payload_bytes.load(Ordering::Relaxed);
        let (_, bytes) = extent(words[0], words[HEADER_WORDS - 1]);
        note.payload_bytes.store(before + u64::from(bytes), Ordering::Relaxed);
    }

    #[inline]
    fn release(&self, slot: u32, generation: u64) {
        let next = self.next.load(Ordering::Relaxed);
        let block = (slot, generation);
        let published = {
            let section = self.bias.enter();
            let threads = section.threads();
            self.releases.give_back(threads, &self.memory, &self.slots, block, next)
        };
        if published {
            self.mr.notify();
        }
    }

    fn found_nothing(&self) {
        let next = self.next.load(Ordering::Relaxed);
        let published = {
            let section = self.bias.enter();
            self.releases.note_idle(section.threads(), &self.memory, &self.slots, next)
        };
        if published {
            self.mr.notify();
        }
    }
}
