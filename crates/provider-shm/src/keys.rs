//! The keys of a context's regions, and the two tables that peers map to see them.
//!
//! A key is `generation << 16 | slot`. The *valid* table, read-only for peers, holds at each slot
//! the key that is valid there now; so revoking a key is one store, and a peer's check is one
//! load. The *bells* table, writable for peers, holds at each slot two words of flags: whether the
//! owner sleeps, and which peers sleep. The worst that a peer can do to them is to cause or to
//! suppress wake-ups of this context.
use crate::mr::MrCore;
use catchment_verbs::{
    VerbsError,
    mem::{MemError, Region, RegionOptions},
};
use std::sync::{
    Arc, RwLock, Weak,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

/// Regions registered at once in one context. Fixed, so that peers map the tables once.
pub(crate) const SLOTS: usize = 1 << 16;
/// Bytes of the valid table.
pub(crate) const VALID_BYTES: usize = SLOTS * 8;
/// Bytes of the bells table.
pub(crate) const BELLS_BYTES: usize = SLOTS * BELL_STRIDE;

const BELL_STRIDE: usize = 16;
/// Generations of a slot: all that 16 bits hold, without 0.
const GENERATIONS: u32 = u16::MAX as u32;

/// The slot of a key.
#[inline]
pub(crate) fn slot_of(key: u32) -> usize {
    (key & 0xffff) as usize
}

/// Where the word of a slot is in the valid table.
#[inline]
pub(crate) fn valid_offset(key: u32) -> usize {
    slot_of(key) * 8
}

/// Where the flag of the sleeping owner is in the bells table.
#[inline]
pub(crate) fn owner_bell_offset(key: u32) -> usize {
    slot_of(key) * BELL_STRIDE
}

/// Where the flags of the sleeping peers are.
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
    /// The word at `offset`.
    pub(crate) fn new(region: &Arc<Region>, offset: usize) -> Result<SharedWord, MemError> {
        region.whole().atomic_u32(offset)?;
        Ok(SharedWord {
            region: Arc::clone(region),
            offset,
        })
    }

    /// The word.
    #[inline]
    pub(crate) fn get(&self) -> &AtomicU32 {
        self.region
            .whole()
            .atomic_u32(self.offset)
            .expect("the offset was checked when the word was made")
    }
}

struct Slot {
    generation: u16,
    used: u32,
    mr: Weak<MrCore>,
}

struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

/// The keys of one context.
pub(crate) struct KeyTable {
    valid: Arc<Region>,
    bells: Arc<Region>,
    first_generation: u16,
    slots: RwLock<Slots>,
}

impl KeyTable {
    /// An empty table. Keys start at a random generation, so that the key of one context is
    /// hardly ever valid in another.
    pub(crate) fn new(first_generation: u16) -> Result<KeyTable, MemError> {
        let lazily = RegionOptions { populate: false };
        Ok(KeyTable {
            valid: Region::alloc(VALID_BYTES, lazily)?,
            bells: Region::alloc(BELLS_BYTES, lazily)?,
            first_generation: first_generation.max(1),
            slots: RwLock::new(Slots {
                slots: Vec::new(),
                free: Vec::new(),
            }),
        })
    }

    /// The table of valid keys.
    pub(crate) fn valid(&self) -> &Arc<Region> {
        &self.valid
    }

    /// The table of flags.
    pub(crate) fn bells(&self) -> &Arc<Region> {
        &self.bells
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Slots> {
        self.slots
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Gives a region that `make` builds a new key.
    pub(crate) fn insert(
        &self,
        make: impl FnOnce(u32) -> Result<MrCore, MemError>,
    ) -> Result<Arc<MrCore>, VerbsError> {
        let mut slots = self.write();
        let at = slots.free_slot(self.first_generation)?;
        let key = u32::from(slots.slots[at].generation) << 16 | at as u32;
        let mr = match make(key) {
            Ok(mr) => Arc::new(mr),
            Err(error) => {
                slots.free.push(at);
                return Err(error.into());
            }
        };
        slots.slots[at].mr = Arc::downgrade(&mr);
        self.clear_flags(key);
        self.valid_word(key).store(key.into(), Ordering::Release);
        Ok(mr)
    }

    /// Takes a key back: from now on no peer can use it.
    pub(crate) fn remove(&self, key: u32) {
        let mut slots = self.write();
        self.valid_word(key).store(0, Ordering::Release);
        let at = slot_of(key);
        let slot = &mut slots.slots[at];
        slot.mr = Weak::new();
        slot.used += 1;
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        if slot.used < GENERATIONS {
            slots.free.push(at);
        }
    }

    /// The region of a key.
    pub(crate) fn lookup(&self, key: u32) -> Option<Arc<MrCore>> {
        let slots = self
            .slots
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mr = slots.slots.get(slot_of(key))?.mr.upgrade()?;
        (mr.key() == key && mr.is_valid()).then_some(mr)
    }

    /// All registered regions.
    pub(crate) fn all(&self) -> Vec<Arc<MrCore>> {
        let slots = self
            .slots
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        slots.slots.iter().filter_map(|s| s.mr.upgrade()).collect()
    }

    fn valid_word(&self, key: u32) -> &AtomicU64 {
        self.valid
            .whole()
            .atomic_u64(valid_offset(key))
            .expect("a slot lies in the table")
    }

    fn clear_flags(&self, key: u32) {
        for offset in [owner_bell_offset(key), peers_bell_offset(key)] {
            if let Ok(word) = self.bells.whole().atomic_u32(offset) {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl Slots {
    fn free_slot(&mut self, first_generation: u16) -> Result<usize, VerbsError> {
        if let Some(at) = self.free.pop() {
            return Ok(at);
        }
        if self.slots.len() == SLOTS {
            return Err(VerbsError::Limit {
                what: "registered regions of a context",
                asked: SLOTS as u64 + 1,
                limit: SLOTS as u64,
            });
        }
        self.slots.push(Slot {
            generation: first_generation,
            used: 0,
            mr: Weak::new(),
        });
        Ok(self.slots.len() - 1)
    }
}
