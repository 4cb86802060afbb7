//! The keys of a context's regions.
//!
//! Every key is drawn from the system's random source, so that no peer can guess the key of a region from
//! those of others, and none is used twice in the life of a context.
use crate::region::MrCore;
use catchment_verbs::VerbsError;
use catchment_verbs::provider::{KeySlots, full, random};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most regions registered at once.
const REGIONS_MAX: usize = KeySlots::<()>::MAX;
/// Most keys in the life of a context: half of all, so that a draw is soon one that was not used.
const KEYS_MAX: usize = 1 << 31;

/// The keys of one context.
#[derive(Default)]
pub(crate) struct KeyTable {
    regions: Vec<Option<Arc<MrCore>>>,
    free: Vec<usize>,
    /// Where the region of a key stands. Keys are drawn by chance here, so no peer can choose ones that
    /// collide, and the fastest hash does.
    places: FxHashMap<u32, usize>,
    /// All keys so far, a few bytes each.
    used: FxHashSet<u32>,
    /// The place that was looked up last: consecutive packets mostly name the same region. Only a
    /// hint, which any thread may write.
    last: AtomicUsize,
}

impl KeyTable {
    /// Adds the region that `make` builds under a new key.
    pub(crate) fn insert(
        &mut self,
        make: impl FnOnce(u32) -> MrCore,
    ) -> Result<Arc<MrCore>, VerbsError> {
        if self.places.len() == REGIONS_MAX {
            return Err(full("registered regions of a context", REGIONS_MAX));
        }
        let key = self.draw()?;
        let at = self.free.pop().unwrap_or_else(|| {
            self.regions.push(None);
            self.regions.len() - 1
        });
        self.places.insert(key, at);
        Ok(Arc::clone(self.regions[at].insert(Arc::new(make(key)))))
    }

    fn draw(&mut self) -> Result<u32, VerbsError> {
        if self.used.len() == KEYS_MAX {
            return Err(full("keys in the life of a context", KEYS_MAX));
        }
        loop {
            let key = random()?;
            if self.used.insert(key) {
                return Ok(key);
            }
        }
    }

    /// Revokes a key.
    pub(crate) fn remove(&mut self, key: u32) {
        if let Some(at) = self.places.remove(&key) {
            self.regions[at] = None;
            self.free.push(at);
        }
    }

    #[inline]
    pub(crate) fn lookup(&self, key: u32) -> Option<&Arc<MrCore>> {
        match self.at(self.last.load(Ordering::Relaxed), key) {
            Some(mr) => Some(mr),
            None => self.find(key),
        }
    }

    /// Looks up a key that was not the last one: not inlined, so that the other case stays short.
    #[inline(never)]
    fn find(&self, key: u32) -> Option<&Arc<MrCore>> {
        let at = *self.places.get(&key)?;
        self.last.store(at, Ordering::Relaxed);
        self.at(at, key)
    }

    /// Returns the region in this place, if it has this key.
    #[inline]
    fn at(&self, place: usize, key: u32) -> Option<&Arc<MrCore>> {
        self.regions.get(place)?.as_ref().filter(|mr| mr.key == key)
    }

    /// Returns all regions.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<MrCore>> {
        self.regions.iter().flatten()
    }
}
