//! The places of a key's words in the two tables that peers map, and words in shared memory.
use catchment_verbs::mem::{MemError, Region};
use catchment_verbs::provider::KeySlots;
use catchment_verbs::wait::arm::Flags;
use catchment_verbs::wait::barrier;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// Slots of a context's keys. Fixed, so that peers map the tables once.
const SLOTS: usize = KeySlots::<()>::SLOTS;
/// Bytes of the valid table.
pub(crate) const VALID_BYTES: usize = SLOTS * 8;
/// Bytes of the bells table.
pub(crate) const BELLS_BYTES: usize = SLOTS * BELL_STRIDE;

const BELL_STRIDE: usize = 16;

/// Returns the slot of a key.
#[inline]
fn slot_of(key: u32) -> usize {
    KeySlots::<()>::slot_of(key)
}

/// Returns where the word of a slot is in the valid table.
#[inline]
pub(crate) fn valid_offset(key: u32) -> usize {
    slot_of(key) * 8
}

/// Returns where the flag of the sleeping owner is in the bells table.
#[inline]
pub(crate) fn owner_bell_offset(key: u32) -> usize {
    slot_of(key) * BELL_STRIDE
}

/// Returns where the flags of the sleeping peers are.
#[inline]
pub(crate) fn peers_bell_offset(key: u32) -> usize {
    owner_bell_offset(key) + 4
}

/// An aligned word inside of a region, checked once.
#[derive(Debug, Clone)]
pub(crate) struct SharedWord {
    region: Arc<Region>,
    offset: usize,
}

impl SharedWord {
    /// Returns the word at `offset`.
    pub(crate) fn new(region: &Arc<Region>, offset: usize) -> Result<Self, MemError> {
        region.whole().atomic_u32(offset)?;
        Ok(Self { region: Arc::clone(region), offset })
    }

    /// Returns the word.
    #[inline]
    pub(crate) fn get(&self) -> &AtomicU32 {
        self.region
            .whole()
            .atomic_u32(self.offset)
            .expect("the offset was checked when the word was made")
    }
}

impl Flags for SharedWord {
    #[inline]
    fn set(&self, bits: u32) {
        self.get().set(bits);
    }

    #[inline]
    fn clear(&self, bits: u32) {
        self.get().clear(bits);
    }

    #[inline]
    fn peek(&self) -> u32 {
        self.get().peek()
    }

    #[inline]
    fn take(&self) -> u32 {
        self.get().take()
    }

    #[inline]
    fn fence() {
        AtomicU32::fence();
    }
}

/// The flag of a sleeping owner. Where the owner has promised it, a sleeper makes the fence of the peers that
/// write, too.
#[derive(Debug, Clone)]
pub(crate) struct OwnerFlag {
    pub(crate) word: SharedWord,
    pub(crate) fences_for_writers: bool,
}

impl Flags for OwnerFlag {
    #[inline]
    fn set(&self, bits: u32) {
        self.word.set(bits);
    }

    #[inline]
    fn clear(&self, bits: u32) {
        self.word.clear(bits);
    }

    #[inline]
    fn peek(&self) -> u32 {
        self.word.peek()
    }

    #[inline]
    fn take(&self) -> u32 {
        self.word.take()
    }

    #[inline]
    fn fence() {
        SharedWord::fence();
    }

    fn sleeper_fence(&self) {
        if self.fences_for_writers {
            barrier::heavy();
        } else {
            Self::fence();
        }
    }
}
