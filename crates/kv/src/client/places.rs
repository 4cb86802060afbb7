//! Where keys were found.
use crate::operation::Place;

#[derive(Debug)]
struct Entry {
    key: Box<[u8]>,
    place: Place,
    epoch: u32,
}

/// Places by the hash of the key, each in one entry that the next key of it takes over.
#[derive(Debug)]
pub(super) struct Places {
    entries: Vec<Option<Entry>>,
}

impl Places {
    /// Remembers up to so many; none if it is 0.
    pub(super) fn new(most: usize) -> Self {
        Self { entries: (0..most).map(|_| None).collect() }
    }

    fn entry(&mut self, hash: u64) -> Option<&mut Option<Entry>> {
        let count = self.entries.len() as u64;
        let index = hash.checked_rem(count)?;
        self.entries.get_mut(index as usize)
    }

    /// Returns where a key was found, and the last question that was answered then.
    pub(super) fn get(&mut self, hash: u64, key: &[u8]) -> Option<(Place, u32)> {
        let entry = self.entry(hash)?.as_ref()?;
        (*entry.key == *key).then_some((entry.place, entry.epoch))
    }

    /// Remembers a place.
    pub(super) fn put(&mut self, hash: u64, key: &[u8], place: Place, epoch: u32) {
        let Some(entry) = self.entry(hash) else { return };
        match entry {
            Some(entry) if *entry.key == *key => (entry.place, entry.epoch) = (place, epoch),
            _ => *entry = Some(Entry { key: key.into(), place, epoch }),
        }
    }

    /// Forgets a key.
    pub(super) fn forget(&mut self, hash: u64, key: &[u8]) {
        if let Some(entry) = self.entry(hash)
            && entry.as_ref().is_some_and(|entry| *entry.key == *key)
        {
            *entry = None;
        }
    }
}
