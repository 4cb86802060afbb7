//! An item: a key and its value in a block, with commit word, checksum and version.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | commit word: version (62 bits), bit 62: written, bit 63: superseded |
//! | 8 | 4 | CRC32C of the version (8 bytes) and of all from offset 12 to the end of the value |
//! | 12 | 2 | bytes of the key |
//! | 14 | 2 | 1: the key was deleted |
//! | 16 | 4 | bytes of the value |
//! | 20 | 4 | 0 |
//! | 24 | | key, then value |
//!
//! Numbers are little-endian.
use crate::layout::{KEY_BYTES_MAX, UNIT_BYTES, VALUE_BYTES_MAX};

/// Bytes before the key.
pub const HEADER_BYTES: usize = 24;
const WRITTEN: u64 = 1 << 62;
const SUPERSEDED: u64 = 1 << 63;
const VERSION_MASK: u64 = WRITTEN - 1;
const DELETED: u16 = 1;

/// Returns the units of an item with a key and a value of so many bytes.
pub fn item_units(key_bytes: usize, value_bytes: usize) -> u32 {
    (HEADER_BYTES + key_bytes + value_bytes).div_ceil(UNIT_BYTES as usize) as u32
}

/// The commit word of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit(pub u64);

impl Commit {
    /// Returns that of an item that is written and current, once it is in the index.
    pub fn written(version: u64) -> Self {
        Self(version & VERSION_MASK | WRITTEN)
    }

    /// Returns that of an item in whose place another one may be.
    #[must_use]
    pub fn superseded(self) -> Self {
        Self(self.0 | SUPERSEDED)
    }

    /// Returns the version.
    pub fn version(self) -> u64 {
        self.0 & VERSION_MASK
    }

    /// Returns whether there is an item.
    pub fn is_written(self) -> bool {
        self.0 & WRITTEN != 0
    }

    /// Returns whether the index may lead elsewhere already.
    pub fn is_superseded(self) -> bool {
        self.0 & SUPERSEDED != 0
    }
}

/// What an item says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its commit word.
    pub commit: Commit,
    /// The key.
    pub key: &'a [u8],
    /// The value; `None` once the key was deleted.
    pub value: Option<&'a [u8]>,
}

fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[offset..offset + N]);
    out
}

fn checksum(version: u64, rest: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&version.to_le_bytes()), rest)
}

/// The beginning of an item, from which its length is known.
struct Header {
    commit: Commit,
    key_bytes: usize,
    is_deleted: bool,
    end: usize,
}

fn header(bytes: &[u8]) -> Option<Header> {
    if bytes.len() < HEADER_BYTES {
        return None;
    }
    let commit = Commit(u64::from_le_bytes(array(bytes, 0)));
    let key_bytes: usize = u16::from_le_bytes(array(bytes, 12)).into();
    let flags = u16::from_le_bytes(array(bytes, 14));
    let value_bytes = u32::from_le_bytes(array(bytes, 16)) as usize;
    let spare = u32::from_le_bytes(array(bytes, 20));
    let is_sound = commit.is_written()
        && key_bytes <= KEY_BYTES_MAX
        && value_bytes <= VALUE_BYTES_MAX
        && flags <= DELETED
        && spare == 0;
    let end = HEADER_BYTES + key_bytes + value_bytes;
    is_sound.then_some(Header { commit, key_bytes, is_deleted: flags == DELETED, end })
}

impl<'a> Item<'a> {
    /// Reads an item. `None` if the bytes are none: torn, of another use of the block, or too few.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let Header { commit, key_bytes, is_deleted, end } = header(bytes)?;
        let rest = bytes.get(12..end)?;
        if checksum(commit.version(), rest) != u32::from_le_bytes(array(bytes, 8)) {
            return None;
        }
        let (key, value) = bytes[HEADER_BYTES..end].split_at(key_bytes);
        Some(Self { commit, key, value: (!is_deleted).then_some(value) })
    }
}

/// The beginning of an item. Nothing but the index says that the item is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The commit word.
    pub commit: Commit,
    /// Whether the key was deleted.
    pub is_deleted: bool,
    key_bytes: usize,
}

impl Head {
    /// Reads the first bytes of an item; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let Header { commit, key_bytes, is_deleted, .. } = header(bytes)?;
        Some(Self { commit, is_deleted, key_bytes })
    }

    /// Returns whether the item, of which these are the first bytes, has this key.
    pub fn is_of(&self, key: &[u8], bytes: &[u8]) -> bool {
        self.key_bytes == key.len()
            && bytes.get(HEADER_BYTES..HEADER_BYTES + key.len()) == Some(key)
    }

    /// Returns the key, where its item is these bytes and perhaps more.
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(HEADER_BYTES..HEADER_BYTES + self.key_bytes)
    }
}

/// Writes an item into `out`, whose length becomes that of its units.
pub fn encode(version: u64, key: &[u8], value: Option<&[u8]>, out: &mut Vec<u8>) {
    let bytes = value.unwrap_or_default();
    out.clear();
    out.extend_from_slice(&Commit::written(version).0.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(&u16::from(value.is_none()).to_le_bytes());
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(key);
    out.extend_from_slice(bytes);
    let checksum = checksum(Commit::written(version).version(), &out[12..]);
    out[8..12].copy_from_slice(&checksum.to_le_bytes());
    out.resize(out.len().next_multiple_of(UNIT_BYTES as usize), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let mut bytes = Vec::new();
        encode(0x0102, b"key", Some(b"value"), &mut bytes);
        assert_eq!(bytes.len(), 64);
        assert_eq!(bytes[..8], [2, 1, 0, 0, 0, 0, 0, 0x40]);
        assert_eq!(bytes[8..12], [0x4c, 0xb7, 0xd4, 0xe1], "{:02x?}", &bytes[8..12]);
        assert_eq!(bytes[12..24], [3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[24..32], b"keyvalue");
    }

    proptest! {
        #[test]
        fn an_item_reads_back(version in 0_u64..1 << 62, key in vec(any::<u8>(), 0..40), value in proptest::option::of(vec(any::<u8>(), 0..200))) {
            let mut bytes = Vec::new();
            encode(version, &key, value.as_deref(), &mut bytes);
            let long = value.as_ref().map_or(0, Vec::len);
            prop_assert_eq!(bytes.len() as u64, u64::from(item_units(key.len(), long)) * UNIT_BYTES);
            let item = Item::decode(&bytes).unwrap();
            prop_assert_eq!(item, Item { commit: Commit::written(version), key: &key, value: value.as_deref() });
            let bytes = &bytes[..HEADER_BYTES + key.len()];
            let head = Head::decode(bytes).unwrap();
            prop_assert!(head.is_of(&key, bytes) && !head.is_of(b"another key", bytes));
            prop_assert_eq!((head.key(bytes), head.is_deleted), (Some(&key[..]), value.is_none()));
        }

        #[test]
        fn a_changed_bit_is_seen(key in vec(any::<u8>(), 0..20), value in vec(any::<u8>(), 0..80), at: usize, bit in 0..8) {
            let mut bytes = Vec::new();
            encode(77, &key, Some(&value), &mut bytes);
            let at = at % (HEADER_BYTES + key.len() + value.len());
            bytes[at] ^= 1_u8 << bit;
            // The mark that the item was superseded is no part of it.
            let is_mark = at == 7 && bit == 7;
            prop_assert_eq!(Item::decode(&bytes).is_some(), is_mark);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in vec(any::<u8>(), 0..200)) {
            let _ = (Item::decode(&bytes), Head::decode(&bytes));
        }
    }
}
