//! Keys for the regions of a device.
use super::{full, random};
use crate::VerbsError;
use std::collections::HashSet;

/// Slots: what the low half of a key names.
const SLOTS: usize = 1 << 16;
/// Slots of a page, which is allocated when a key of it is first drawn.
const PAGE_SLOTS: usize = 64;
/// Most keys in the life of a table: half of all, so that a draw is soon one that was not used.
const KEYS_MAX: usize = 1 << 31;

/// A table of values under keys that nobody guesses and that are never used twice.
///
/// Each key is drawn from the system's random source. Its low 16 bits are its slot, which no other key in
/// use shares; 0 is no key. Locking is the caller's.
#[derive(Debug)]
pub struct KeySlots<T> {
    pages: Vec<Option<Box<Page<T>>>>,
    count: usize,
    /// All keys so far, a few bytes each.
    used: HashSet<u32>,
}

type Page<T> = [Option<(u32, T)>; PAGE_SLOTS];

impl<T> KeySlots<T> {
    /// Most keys in use at once: half of the slots, so that a draw is soon one that is free.
    pub const MAX: usize = SLOTS / 2;
    /// Slots.
    pub const SLOTS: usize = SLOTS;

    /// Returns the slot of a key, below [`KeySlots::SLOTS`].
    #[inline]
    pub fn slot_of(key: u32) -> usize {
        (key & 0xffff) as usize
    }

    /// Adds the value that `make` builds for a new key. Returns the value.
    ///
    /// # Errors
    /// [`VerbsError::Limit`] when the table is full; [`VerbsError::Os`] when the system provides no random
    /// number; what `make` returns.
    pub fn insert<E: From<VerbsError>>(
        &mut self,
        make: impl FnOnce(u32) -> Result<T, E>,
    ) -> Result<&T, E> {
        if self.count == Self::MAX {
            return Err(full("registered regions of a context", Self::MAX).into());
        }
        let key = self.draw()?;
        let value = make(key)?;
        self.count += 1;
        let (page, at) = place(key);
        let page = self.pages[page].get_or_insert_with(|| Box::new([const { None }; PAGE_SLOTS]));
        Ok(&page[at].insert((key, value)).1)
    }

    fn draw(&mut self) -> Result<u32, VerbsError> {
        if self.used.len() >= KEYS_MAX {
            return Err(full("keys in the life of a context", KEYS_MAX));
        }
        loop {
            let key = random()?;
            if key != 0 && self.slot(key).is_none() && self.used.insert(key) {
                return Ok(key);
            }
        }
    }

    /// Removes a key; it will not be used again.
    pub fn remove(&mut self, key: u32) {
        let (page, at) = place(key);
        let slot = self.pages[page].as_mut().map(|page| &mut page[at]);
        if slot.and_then(|slot| slot.take_if(|(known, _)| *known == key)).is_some() {
            self.count -= 1;
        }
    }

    /// Returns the value of a key in use.
    #[inline]
    pub fn get(&self, key: u32) -> Option<&T> {
        self.slot(key).and_then(|(known, value)| (*known == key).then_some(value))
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        let slots = self.pages.iter().flatten().flat_map(|page| page.iter());
        slots.flatten().map(|(_, value)| value)
    }

    #[inline]
    fn slot(&self, key: u32) -> Option<&(u32, T)> {
        let (page, at) = place(key);
        self.pages[page].as_ref()?[at].as_ref()
    }
}

impl<T> Default for KeySlots<T> {
    fn default() -> Self {
        let pages = (0..SLOTS / PAGE_SLOTS).map(|_| None).collect();
        Self { pages, count: 0, used: HashSet::new() }
    }
}

/// Returns the page of a key's slot, and where the slot is in it.
#[inline]
fn place(key: u32) -> (usize, usize) {
    let slot = (key & 0xffff) as usize;
    (slot / PAGE_SLOTS, slot % PAGE_SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(table: &mut KeySlots<u32>) -> u32 {
        *table.insert(Ok::<_, VerbsError>).unwrap()
    }

    /// Who knows many keys of a table must not know the next one: they are neither in order nor close.
    #[test]
    fn the_keys_before_say_nothing_of_the_next() {
        let mut table = KeySlots::default();
        let keys: Vec<u32> = (0..2000).map(|_| insert(&mut table)).collect();
        let steps: HashSet<u32> = keys.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
        assert!(steps.len() > 1990, "{} different steps", steps.len());
        for bit in 0..32 {
            let set = keys.iter().filter(|key| *key >> bit & 1 != 0).count();
            assert!((700..1300).contains(&set), "bit {bit} is set in {set} of 2000");
        }
    }

    #[test]
    fn a_removed_key_is_not_found_and_leaves_its_slot_to_others() {
        let mut table = KeySlots::default();
        let key = insert(&mut table);
        assert_eq!(table.get(key), Some(&key));
        assert_eq!(table.get(key ^ 1 << 16), None, "another key of its slot");
        table.remove(key ^ 1 << 16);
        assert_eq!(table.values().collect::<Vec<_>>(), [&key]);
        table.remove(key);
        assert_eq!((table.get(key), table.values().count(), table.count), (None, 0, 0));
    }

    #[test]
    fn a_value_that_cannot_be_made_leaves_nothing() {
        let mut table = KeySlots::<u32>::default();
        assert!(table.insert(|_| Err(VerbsError::Invalid("no".into()))).is_err());
        assert_eq!((table.values().count(), table.count), (0, 0));
    }

    #[test]
    fn a_full_table_is_reported_and_its_slots_are_all_different() {
        let mut table = KeySlots::default();
        let keys: Vec<_> = (0..KeySlots::<u32>::MAX).map(|_| insert(&mut table)).collect();
        let slots: HashSet<_> = keys.iter().map(|key| KeySlots::<u32>::slot_of(*key)).collect();
        assert_eq!(slots.len(), keys.len());
        let refused = table.insert(Ok::<_, VerbsError>);
        assert!(matches!(refused, Err(VerbsError::Limit { limit: 32768, .. })));
        table.remove(keys[7]);
        insert(&mut table);
    }
}
