//! Numbers for the regions of a device.
use super::full;
use crate::VerbsError;

/// Most regions registered at once: what the slot of a key has room for.
const MAX_SLOTS: usize = 1 << 16;
/// Generations of a slot: all that 16 bits hold, without 0.
const GENERATIONS: u32 = u16::MAX as u32;

/// A table of values under keys that are never used twice.
///
/// A key is `generation << 16 | slot`. A slot whose generations are used up is retired, so a stale
/// key never leads to another value. Locking is the caller's.
#[derive(Debug)]
pub struct KeySlots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    first_generation: u16,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u16,
    used: u32,
    value: Option<T>,
}

impl<T> KeySlots<T> {
    /// Most keys in use at once.
    pub const MAX: usize = MAX_SLOTS;

    /// Creates an empty table. Generations start at `first_generation`, or at 1 where that is 0:
    /// with a random start, the key of one device is hardly ever valid at another.
    pub fn new(first_generation: u16) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), first_generation: first_generation.max(1) }
    }

    /// Returns the slot of a key.
    #[inline]
    pub fn slot_of(key: u32) -> usize {
        (key & 0xffff) as usize
    }

    /// Adds the value that `make` builds for a new key. Returns the key and the value.
    ///
    /// # Errors
    /// [`VerbsError::Limit`] when the table is full; what `make` returns.
    pub fn insert<E: From<VerbsError>>(
        &mut self,
        make: impl FnOnce(u32) -> Result<T, E>,
    ) -> Result<&T, E> {
        let at = self.free_slot()?;
        let key = u32::from(self.slots[at].generation) << 16 | at as u32;
        match make(key) {
            Ok(value) => Ok(self.slots[at].value.insert(value)),
            Err(error) => {
                self.free.push(at);
                Err(error)
            }
        }
    }

    /// Removes a key that is in use; it will not be used again.
    pub fn remove(&mut self, key: u32) {
        let at = Self::slot_of(key);
        let slot = &mut self.slots[at];
        debug_assert_eq!(u32::from(slot.generation), key >> 16, "a key in use");
        slot.value = None;
        slot.used += 1;
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        if slot.used < GENERATIONS {
            self.free.push(at);
        }
    }

    /// Returns the value in a slot, of whatever generation.
    #[inline]
    pub fn at(&self, slot: usize) -> Option<&T> {
        self.slots.get(slot)?.value.as_ref()
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    fn free_slot(&mut self) -> Result<usize, VerbsError> {
        if let Some(at) = self.free.pop() {
            return Ok(at);
        }
        if self.slots.len() == MAX_SLOTS {
            return Err(full("registered regions of a context", MAX_SLOTS));
        }
        self.slots.push(Slot { generation: self.first_generation, used: 0, value: None });
        Ok(self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(table: &mut KeySlots<u32>) -> u32 {
        *table.insert(Ok::<_, VerbsError>).unwrap()
    }

    #[test]
    fn no_key_is_used_twice_and_a_slot_without_generations_is_retired() {
        let mut table = KeySlots::new(0xfffe);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..GENERATIONS {
            let key = insert(&mut table);
            assert!(seen.insert(key) && key >> 16 != 0 && key & 0xffff == 0);
            table.remove(key);
        }
        assert_eq!(insert(&mut table) & 0xffff, 1, "the next slot");
    }

    #[test]
    fn a_value_that_cannot_be_made_leaves_its_slot_free() {
        let mut table = KeySlots::<u32>::new(0);
        assert!(table.insert(|_| Err(VerbsError::Invalid("no".into()))).is_err());
        let key = insert(&mut table);
        assert_eq!((key, table.at(0)), (1 << 16, Some(&key)));
        assert_eq!(table.values().count(), 1);
    }

    #[test]
    fn a_full_table_is_reported() {
        let mut table = KeySlots::new(1);
        let keys: Vec<_> = (0..MAX_SLOTS).map(|_| insert(&mut table)).collect();
        let refused = table.insert(Ok::<_, VerbsError>);
        assert!(matches!(refused, Err(VerbsError::Limit { limit: 65536, .. })));
        table.remove(keys[7]);
        assert_eq!(insert(&mut table) & 0xffff, 7);
    }
}
