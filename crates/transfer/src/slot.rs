//! The slot protocol: how one block is transferred, and its slot released.
//!
//! Pure over [`SlotMemory`], so that the model checker runs the very code that production runs.
//! What a peer can write is never trusted: each side counts generations in memory of its own.
use crate::commit::{HEADER_WORDS, commit_word};
use crate::inline::without_payload;
use crate::status::{full_byte, held_byte, released_byte};
use crate::sync::{AtomicU64, Ordering, Threads, Update as _};

/// The shared memory of a ring, as the protocol sees it.
///
/// Loads acquire and stores release, except that header words are plain: the commit word orders
/// them.
pub trait SlotMemory {
    /// Loads a byte of `full[]`.
    fn load_full(&self, slot: u32) -> u8;
    /// Stores a byte of `full[]`. Only the sender does.
    fn store_full(&self, slot: u32, value: u8);
    /// Loads a byte of `free[]`.
    fn load_free(&self, slot: u32) -> u8;
    /// Stores a byte of `free[]`. Only the receiver does.
    fn store_free(&self, slot: u32, value: u8);
    /// Loads the commit word.
    fn load_commit(&self, slot: u32) -> u64;
    /// Stores the commit word.
    fn store_commit(&self, slot: u32, word: u64);
    /// Copies the header out.
    fn read_header(&self, slot: u32) -> [u64; HEADER_WORDS];
    /// Copies the header in: of an inline block the words behind its payload only.
    fn write_header(&self, slot: u32, words: &[u64; HEADER_WORDS]);
}

/// Makes a block valid whose payload was filled in place, in a ring without hints.
#[inline]
pub fn seal(
    memory: &impl SlotMemory,
    epoch: u64,
    slot: u32,
    generation: u64,
    header: &[u64; HEADER_WORDS],
) {
    memory.write_header(slot, header);
    memory.store_commit(slot, commit_word(epoch, slot, generation, header));
}

/// Makes a block valid whose payload was filled in place, and tells where it is.
///
/// The hint is stored before the commit word. After that word the receiver may take the block and
/// release the slot, and another thread may send the next block: a later hint would overwrite that
/// one's, and its block would not be found.
#[inline]
pub fn publish(
    memory: &impl SlotMemory,
    epoch: u64,
    slot: u32,
    generation: u64,
    header: &[u64; HEADER_WORDS],
) {
    memory.store_full(slot, full_byte(generation));
    seal(memory, epoch, slot, generation, header);
}

/// What a byte of `free[]` means to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseStatus {
    /// The receiver released the block: the slot belongs to the caller, which learnt it first.
    Released,
    /// The receiver keeps the block.
    Held,
    /// Nothing new: an old byte, or nothing was outstanding.
    Nothing,
}

/// The sender's own count for every slot: generation, and whether a block of it is outstanding.
#[derive(Debug)]
pub struct SenderSlots {
    /// Generation, shifted left by one, and the bit "outstanding".
    state: Box<[AtomicU64]>,
}

impl SenderSlots {
    /// Creates the counts of a fresh ring: nothing written.
    pub fn new(blocks: u32) -> Self {
        Self { state: zeros(blocks) }
    }

    /// Returns the generation of the slot's next block. The caller owns the slot.
    #[inline]
    pub fn next_generation(&self, slot: u32) -> u64 {
        (self.state[slot as usize].load(Ordering::Acquire) >> 1) + 1
    }

    /// Notes that the block of this generation is sent. Call it before its commit word or hint is
    /// stored: the answer may arrive at once.
    #[inline]
    pub fn launch(&self, slot: u32, generation: u64) {
        self.state[slot as usize].store(generation << 1 | 1, Ordering::Release);
    }

    /// Returns the number of blocks ever sent from all slots.
    pub fn total(&self) -> u64 {
        self.state.iter().map(|slot| slot.load(Ordering::Relaxed) >> 1).sum()
    }

    /// Returns the generation of the outstanding block, if there is one.
    #[inline]
    pub fn outstanding(&self, slot: u32) -> Option<u64> {
        let state = self.state[slot as usize].load(Ordering::Acquire);
        (state & 1 == 1).then_some(state >> 1)
    }

    /// Forgets the block of this generation, which was launched and whose commit word left nowhere: the slot is the
    /// caller's, as before. `threads`: who may do so now. False if the receiver says that it has released the block.
    pub fn recall(&self, threads: Threads, slot: u32, generation: u64) -> bool {
        let (launched, before) = (generation << 1 | 1, (generation - 1) << 1);
        self.state[slot as usize].replace_by(threads, launched, before).is_ok()
    }

    /// Notes a byte of `free[]`, however old it is. Any thread may do so at any time, or with
    /// [`Threads::One`] this one alone; exactly one gets [`ReleaseStatus::Released`] for a released
    /// block.
    #[inline]
    pub fn note_free(&self, threads: Threads, slot: u32, byte: u8) -> ReleaseStatus {
        let state = self.state[slot as usize].load(Ordering::Acquire);
        let generation = state >> 1;
        if state & 1 == 0 {
            return ReleaseStatus::Nothing;
        }
        if byte == held_byte(generation) {
            return ReleaseStatus::Held;
        }
        if byte != released_byte(generation) {
            return ReleaseStatus::Nothing;
        }
        match self.state[slot as usize].replace_by(threads, state, state & !1) {
            Ok(_) => ReleaseStatus::Released,
            Err(_) => ReleaseStatus::Nothing,
        }
    }
}

/// What the receiver found in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// A block. It belongs to the caller until [`ReceiverSlots::end`].
    Block {
        /// Its generation.
        generation: u64,
        /// Its header, as it was committed.
        header: [u64; HEADER_WORDS],
        /// Its commit word.
        word: u64,
    },
    /// The next block has not arrived, or not all of it.
    NotYet,
    /// Another thread was faster.
    Raced,
    /// A block of this generation, written over an unreleased one.
    Overwritten {
        /// Its generation.
        generation: u64,
        /// Its commit word.
        word: u64,
    },
}

/// The receiver's own count for every slot: the generation taken last, and whether its block was
/// released.
#[derive(Debug)]
pub struct ReceiverSlots {
    /// Generation, shifted left by one, and the bit "not released".
    state: Box<[AtomicU64]>,
}

impl ReceiverSlots {
    /// Creates the counts of a fresh ring: nothing taken.
    pub fn new(blocks: u32) -> Self {
        Self { state: zeros(blocks) }
    }

    /// Returns the generation taken last; 0 for none.
    #[inline]
    pub fn generation(&self, slot: u32) -> u64 {
        self.state[slot as usize].load(Ordering::Acquire) >> 1
    }

    /// Returns the number of blocks taken from all slots so far.
    pub fn total(&self) -> u64 {
        self.state.iter().map(|slot| slot.load(Ordering::Relaxed) >> 1).sum()
    }

    /// Takes the next block of the slot, if it is committed and `accept` approves its header. `threads`:
    /// who may take and release blocks now.
    #[inline]
    pub fn take(
        &self,
        threads: Threads,
        memory: &impl SlotMemory,
        epoch: u64,
        slot: u32,
        accept: impl FnOnce(&[u64; HEADER_WORDS]) -> bool,
    ) -> Taken {
        let state = self.state[slot as usize].load(Ordering::Acquire);
        let generation = (state >> 1) + 1;
        let word = memory.load_commit(slot);
        let header = without_payload(memory.read_header(slot));
        if word != commit_word(epoch, slot, generation, &header) || !accept(&header) {
            return Taken::NotYet;
        }
        match self.state[slot as usize].replace_by(threads, state, generation << 1 | 1) {
            Ok(before) if before & 1 == 1 => Taken::Overwritten { generation, word },
            Ok(_) => Taken::Block { generation, header, word },
            Err(_) => Taken::Raced,
        }
    }

    /// Ends the caller's ownership of the block of this generation. Call it before the release is stored
    /// in `free[]`. False if the sender has written over it: the slot belongs to that block now.
    #[inline]
    pub fn end(&self, slot: u32, generation: u64) -> bool {
        let state = &self.state[slot as usize];
        // Only a sender that breaks the protocol can change it between the load and the store; one of
        // its blocks would be reported twice.
        let ours = state.load(Ordering::Acquire) == generation << 1 | 1;
        if ours {
            state.store(generation << 1, Ordering::Release);
        }
        ours
    }
}

/// Tells the sender that the receiver keeps the block. Only for a block that the caller took: full to
/// unavailable, never free to unavailable (S1.18).
#[inline]
pub fn hold(memory: &impl SlotMemory, slot: u32, generation: u64) {
    memory.store_free(slot, held_byte(generation));
}

/// Tells the sender that the slot is free. Only after [`ReceiverSlots::end`], and once.
#[inline]
pub fn release(memory: &impl SlotMemory, slot: u32, generation: u64) {
    memory.store_free(slot, released_byte(generation));
}

fn zeros(blocks: u32) -> Box<[AtomicU64]> {
    (0..blocks).map(|_| AtomicU64::new(0)).collect()
}
