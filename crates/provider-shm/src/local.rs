//! The local regions that a queue pair used recently.
use crate::keys::KeyTable;
use crate::payload::Piece;
use crate::region::MrCore;
use catchment_verbs::{Access, Sge, WcStatus};
use std::sync::{Arc, Weak};

const CACHED: usize = 16;

/// Finds regions without a lock. Keeps none of them alive.
#[derive(Default)]
pub(crate) struct LocalCache {
    entries: Vec<(u32, Weak<MrCore>)>,
    last: usize,
    victim: usize,
}

impl LocalCache {
    /// Checks the elements and adds them to `pieces`.
    #[inline]
    pub(crate) fn gather(
        &mut self,
        keys: &KeyTable,
        pd: u64,
        sges: &[Sge],
        rights: Access,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), WcStatus> {
        for sge in sges.iter().filter(|sge| sge.bytes > 0) {
            let mr = self.find(keys, sge.lkey).ok_or(WcStatus::LocalProtection)?;
            if !mr.allows(pd, sge, rights) {
                return Err(WcStatus::LocalProtection);
            }
            pieces.push(Piece { mr, addr: sge.addr, bytes: sge.bytes });
        }
        Ok(())
    }

    #[inline]
    fn find(&mut self, keys: &KeyTable, lkey: u32) -> Option<Arc<MrCore>> {
        if let Some((key, mr)) = self.entries.get(self.last)
            && *key == lkey
        {
            return mr.upgrade().filter(|mr| mr.is_valid());
        }
        self.find_slowly(keys, lkey)
    }

    fn find_slowly(&mut self, keys: &KeyTable, lkey: u32) -> Option<Arc<MrCore>> {
        if let Some(at) = self.entries.iter().position(|(key, _)| *key == lkey) {
            self.last = at;
            return self.entries[at].1.upgrade().filter(|mr| mr.is_valid());
        }
        let mr = keys.lookup(lkey)?;
        let entry = (lkey, Arc::downgrade(&mr));
        self.entries.retain(|(_, known)| known.strong_count() > 0);
        if self.entries.len() < CACHED {
            self.entries.push(entry);
            self.last = self.entries.len() - 1;
        } else {
            self.victim = (self.victim + 1) % CACHED;
            self.entries[self.victim] = entry;
            self.last = self.victim;
        }
        Some(mr)
    }
}
