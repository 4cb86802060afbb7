//! The bytes of the store: words of the index, tables, classes of blocks. `docs/spec/kv.md` has them all.
//!
//! A place in the region is counted in units of 64 bytes; unit 0 is never a place.
use std::fmt;

/// Bytes of a unit: blocks and tables begin at a multiple, and no item is read in less.
pub const UNIT_BYTES: u64 = 64;
/// Words of a group: one READ of a unit.
pub const GROUP_WORDS: u64 = 8;
/// An insertion that finds no empty word among so many asks for a larger table.
pub const PROBE_WORDS: u64 = 256;
/// Longest key.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Least memory of a store.
pub(crate) const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Most: a place is a number of 32 bits, of units.
pub(crate) const MEMORY_BYTES_MAX: u64 = 1 << 38;

const UNITS_BITS: u32 = 15;
const TAG_BITS: u32 = 15;
const UNITS_SHIFT: u32 = 32;
const TAG_SHIFT: u32 = UNITS_SHIFT + UNITS_BITS;
const FROZEN: u64 = 1 << 62;
const MOVED: u64 = 1 << 63;

/// A word of the index. It belongs to one key from its first value on, as long as its table lives.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Word(pub u64);

impl Word {
    /// Belongs to no key yet.
    pub const EMPTY: Self = Self(0);
    /// Belongs to no key and never will: the next table has what would stand here.
    pub const EMPTY_MOVED: Self = Self(FROZEN | MOVED);

    /// Points to an item of so many units, of a key with this tag.
    pub fn new(at: u32, units: u32, tag: u16) -> Self {
        debug_assert!(at != 0 && units != 0 && units < 1 << UNITS_BITS && tag < 1 << TAG_BITS);
        Self(u64::from(at) | u64::from(units) << UNITS_SHIFT | u64::from(tag) << TAG_SHIFT)
    }

    /// Returns the unit where the item begins.
    pub fn at(self) -> u32 {
        self.0 as u32
    }

    /// Returns the units of the item.
    pub fn units(self) -> u32 {
        (self.0 >> UNITS_SHIFT) as u32 & ((1 << UNITS_BITS) - 1)
    }

    /// Returns bits of the key's hash.
    pub fn tag(self) -> u16 {
        (self.0 >> TAG_SHIFT) as u16 & ((1 << TAG_BITS) - 1)
    }

    /// Returns whether only the server changes it any more: it is about to copy it to the next table.
    pub fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// Returns whether the next table has what stood here.
    pub fn is_moved(self) -> bool {
        self.0 & MOVED != 0
    }

    /// Returns the word with the mark that only the server changes it.
    #[must_use]
    pub fn frozen(self) -> Self {
        Self(self.0 | FROZEN)
    }

    /// Returns the word with the mark that it has moved.
    #[must_use]
    pub fn moved(self) -> Self {
        Self(self.0 | FROZEN | MOVED)
    }

    /// Returns the word without marks.
    #[must_use]
    pub fn plain(self) -> Self {
        Self(self.0 & !(FROZEN | MOVED))
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks = (self.is_frozen(), self.is_moved());
        write!(f, "Word({}+{} tag {} {marks:?})", self.at(), self.units(), self.tag())
    }
}

/// What a key is looked up by: its keyed hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Hashes a key with the store's secret, so that nobody can choose keys that collide.
    pub fn new(seed: (u64, u64), key: &[u8]) -> Self {
        Self(siphasher::sip::SipHasher13::new_with_keys(seed.0, seed.1).hash(key))
    }

    /// Returns all its bits.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the bits that stand in a word.
    pub fn tag(self) -> u16 {
        (self.0 & ((1 << TAG_BITS) - 1)) as u16
    }

    fn group(self, groups: u64) -> u64 {
        (self.0 >> TAG_BITS) & (groups - 1)
    }
}

const LOG2_SHIFT: u32 = 32;
const GENERATION_SHIFT: u32 = 38;
const LOG2_GROUPS_MAX: u32 = 28;
/// Tables that a store can have one after the other.
pub const GENERATIONS: u32 = 1 << 20;
/// The first version of a key in a table is the table's generation shifted so far, plus one.
pub const FLOOR_SHIFT: u32 = 40;

/// Where a table is. It begins with a unit whose first word is the descriptor of the next table, 0
/// without one; then come its groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// The unit where it begins.
    pub at: u32,
    /// It has two to the power of this many groups.
    pub log2_groups: u32,
    /// Counted from 0; the next table has the next number.
    pub generation: u32,
}

impl Table {
    /// Returns the descriptor.
    pub fn encode(self) -> u64 {
        u64::from(self.at)
            | u64::from(self.log2_groups) << LOG2_SHIFT
            | u64::from(self.generation) << GENERATION_SHIFT
    }

    /// Reads a descriptor; `None` for 0 and for what is none in a region of so many bytes.
    pub fn decode(descriptor: u64, region_bytes: u64) -> Option<Self> {
        let table = Self {
            at: descriptor as u32,
            log2_groups: (descriptor >> LOG2_SHIFT) as u32 & 0x3f,
            generation: u32::try_from(descriptor >> GENERATION_SHIFT).ok()?,
        };
        let is_one = table.at != 0
            && table.log2_groups <= LOG2_GROUPS_MAX
            && table.generation < GENERATIONS
            && table.begins() + table.bytes() <= region_bytes;
        is_one.then_some(table)
    }

    /// Returns the bytes of a table with its first unit.
    pub fn bytes(self) -> u64 {
        (self.groups() + 1) * UNIT_BYTES
    }

    /// Returns the groups.
    pub fn groups(self) -> u64 {
        1 << self.log2_groups
    }

    /// Returns the words.
    pub fn words(self) -> u64 {
        self.groups() * GROUP_WORDS
    }

    /// Returns the offset in the region of its first unit, and of the descriptor of the next table.
    pub fn begins(self) -> u64 {
        u64::from(self.at) * UNIT_BYTES
    }

    /// Returns the offset in the region of a word, counted from 0.
    pub fn word(self, index: u64) -> u64 {
        self.begins() + UNIT_BYTES + index * 8
    }

    /// Returns the number of the word at which a key's way through the table begins: that of a group.
    pub fn home(self, hash: KeyHash) -> u64 {
        hash.group(self.groups()) * GROUP_WORDS
    }

    /// Returns the number of the `step`th word on a key's way.
    pub fn on_way(self, hash: KeyHash, step: u64) -> u64 {
        (self.home(hash) + step) & (self.words() - 1)
    }

    /// Returns the first version of a key in this table.
    pub fn floor(self) -> u64 {
        (u64::from(self.generation) << FLOOR_SHIFT) + 1
    }

    /// Returns the first version of a key in the table after this one.
    pub fn next_floor(self) -> u64 {
        ((u64::from(self.generation) + 1) << FLOOR_SHIFT) + 1
    }
}

const STEPS: [u32; 4] = [4, 5, 6, 7];
/// Classes of blocks: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20... units.
pub const CLASSES: usize = 53;

/// Returns the units of the blocks of a class.
pub fn class_units(class: usize) -> u32 {
    match class {
        0..3 => class as u32 + 1,
        _ => STEPS[(class - 3) % 4] << ((class - 3) / 4),
    }
}

/// Returns the class of the blocks that an item of so many units is put in.
pub fn class_of(units: u32) -> usize {
    (0..CLASSES).find(|class| class_units(*class) >= units).unwrap_or(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::item_units;
    use proptest::prelude::*;

    #[test]
    fn the_largest_item_has_a_class_and_a_word() {
        let units = item_units(KEY_BYTES_MAX, VALUE_BYTES_MAX);
        let class = class_of(units);
        assert!(class_units(class) >= units && class_units(class) <= units * 5 / 4, "{units}");
        assert!(class_units(CLASSES - 1) < 1 << UNITS_BITS);
        assert_eq!(Word::new(1, units, 7).units(), units);
    }

    #[test]
    fn classes_grow_and_waste_little() {
        for class in 1..CLASSES {
            let (before, units) = (class_units(class - 1), class_units(class));
            assert!(before < units, "{class}");
            assert!(units <= before + before.div_ceil(4).max(1), "{class}");
            assert_eq!((class_of(units), class_of(before + 1)), (class, class));
        }
    }

    proptest! {
        #[test]
        fn words_and_descriptors_read_back(at in 1..u32::MAX, units in 1_u32..1 << 15, tag in 0_u16..1 << 15, log2 in 0_u32..=28, generation in 0..GENERATIONS) {
            let word = Word::new(at, units, tag);
            for word in [word, word.frozen(), word.moved()] {
                prop_assert_eq!((word.at(), word.units(), word.tag()), (at, units, tag));
                prop_assert_eq!(word.plain(), Word::new(at, units, tag));
            }
            prop_assert!(!word.is_frozen() && word.frozen().is_frozen() && !word.frozen().is_moved());
            let table = Table { at, log2_groups: log2, generation };
            prop_assert_eq!(Table::decode(table.encode(), u64::MAX), Some(table));
            prop_assert_eq!(Table::decode(table.encode(), table.begins()), None);
        }

        #[test]
        fn no_descriptor_leads_out_of_the_region(descriptor: u64, bytes in 0_u64..1 << 40) {
            if let Some(table) = Table::decode(descriptor, bytes) {
                prop_assert!(table.word(table.words() - 1) + 8 <= bytes);
            }
        }

        #[test]
        fn a_way_visits_every_word_once(key: u64, log2 in 0_u32..6) {
            let table = Table { at: 1, log2_groups: log2, generation: 0 };
            let hash = KeyHash::new((1, 2), &key.to_le_bytes());
            let mut seen: Vec<u64> = (0..table.words()).map(|step| table.on_way(hash, step)).collect();
            prop_assert_eq!(seen[0] % GROUP_WORDS, 0);
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..table.words()).collect::<Vec<_>>());
        }
    }
}
