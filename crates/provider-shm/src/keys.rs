//! The keys of a context's regions, and their two tables, which peers map.
//!
//! Keys are drawn from the system's random source; the low 16 bits of a key are its slot. The *valid*
//! table, read-only for peers, holds at each slot the key that is valid there now; so revoking a key is one store, and a peer's check is one
//! load. The *bells* table, writable for peers, holds at each slot two words of flags: whether the
//! owner sleeps, and which peers sleep. The worst that a peer can do to them is to cause or to
//! suppress wake-ups of this context.
use crate::region::MrCore;
use crate::tables::{BELLS_BYTES, VALID_BYTES, owner_bell_offset, peers_bell_offset, valid_offset};
use catchment_verbs::VerbsError;
use catchment_verbs::mem::{MemError, Region, RegionOptions};
use catchment_verbs::provider::KeySlots;
use catchment_verbs::sync::RwLock;
use catchment_verbs::wait::barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The keys of one context.
pub(crate) struct KeyTable {
    /// The table of valid keys.
    pub(crate) valid: Arc<Region>,
    /// The table of flags.
    pub(crate) bells: Arc<Region>,
    /// Whether a thread that sleeps on a region makes the fence of the peers that write it.
    pub(crate) fences_for_writers: bool,
    slots: RwLock<KeySlots<Weak<MrCore>>>,
}

impl KeyTable {
    /// Creates an empty table.
    pub(crate) fn new() -> Result<Self, MemError> {
        let lazily = RegionOptions { populate: false };
        let valid = Region::alloc(VALID_BYTES, lazily)?;
        // Seals it, and opens what all peers get.
        drop(valid.read_only_fd()?);
        Ok(Self {
            valid,
            bells: Region::alloc(BELLS_BYTES, lazily)?,
            fences_for_writers: barrier::available(),
            slots: RwLock::default(),
        })
    }

    /// Adds the region that `make` builds under a new key.
    pub(crate) fn insert(
        &self,
        make: impl FnOnce(u32) -> Result<MrCore, MemError>,
    ) -> Result<Arc<MrCore>, VerbsError> {
        let mut made = None;
        let mut slots = self.slots.write();
        slots.insert(|key| {
            let mr = Arc::new(make(key)?);
            self.clear_flags(key);
            self.valid_word(key).store(key.into(), Ordering::Release);
            let weak = Arc::downgrade(&mr);
            made = Some(mr);
            Ok::<_, VerbsError>(weak)
        })?;
        Ok(made.expect("a key that was inserted has its region"))
    }

    /// Revokes a key: no peer can use it afterwards.
    pub(crate) fn remove(&self, key: u32) {
        let mut slots = self.slots.write();
        self.valid_word(key).store(0, Ordering::Release);
        slots.remove(key);
    }

    /// Returns the region of a key.
    pub(crate) fn lookup(&self, key: u32) -> Option<Arc<MrCore>> {
        let slots = self.slots.read();
        let mr = slots.get(key)?.upgrade()?;
        mr.is_valid().then_some(mr)
    }

    /// Returns all registered regions.
    pub(crate) fn all(&self) -> Vec<Arc<MrCore>> {
        let slots = self.slots.read();
        slots.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns whether a page of the tables could not be had.
    pub(crate) fn is_broken(&self) -> bool {
        self.valid.is_broken() || self.bells.is_broken()
    }

    fn valid_word(&self, key: u32) -> &AtomicU64 {
        self.valid.whole().atomic_u64(valid_offset(key)).expect("a slot lies in the table")
    }

    fn clear_flags(&self, key: u32) {
        for offset in [owner_bell_offset(key), peers_bell_offset(key)] {
            if let Ok(word) = self.bells.whole().atomic_u32(offset) {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}
