//! The first 40 bytes.
use super::fields::Reader;
use super::record::{RECORD_BYTES, RECORDS_MAX};

/// What this page of the specification describes.
pub const VERSION: u8 = 1;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 40;
/// Bytes of the header before the authentication code.
pub(super) const SIGNED_BYTES: usize = 24;

/// Who sent a datagram, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// States of transfers, from a source.
    Source,
    /// States of transfers, from a controller.
    Controller,
    /// A controller does not know the source; without records, without a code.
    Hint,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Source => 1,
            Self::Controller => 2,
            Self::Hint => 3,
        }
    }
}

/// What a datagram says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who sent it.
    pub kind: Kind,
    /// Which key, from 0 on.
    pub epoch: u8,
    /// The highest term that its sender knows; a controller's is its own.
    pub term: u32,
    /// The number of the source, from its session with the controller.
    pub source: u32,
    /// Counts datagrams under this key.
    pub sequence: u32,
    /// The sender's clock when it left, in nanoseconds.
    pub stamp_ns: u64,
}

/// Why bytes are no datagram of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Shorter than a header.
    #[error("{seen} bytes are shorter than a header of 40")]
    Short {
        /// Bytes that came.
        seen: usize,
    },
    /// Another version.
    #[error("version {seen}, this end speaks 1")]
    Version {
        /// The version that it has.
        seen: u8,
    },
    /// An unknown kind.
    #[error("kind {seen}, known are 1 to 3")]
    Kind {
        /// The kind that it has.
        seen: u8,
    },
    /// More records than fit, or none where there must be one.
    #[error("{seen} records; at most 24, none in a hint")]
    Count {
        /// The number of records that it states.
        seen: u8,
    },
    /// The length does not fit the number of records.
    #[error("{seen} bytes with {records} records of 56 after a header of 40")]
    Length {
        /// Bytes that came.
        seen: usize,
        /// Records that it states.
        records: u8,
    },
    /// A hint with a code.
    #[error("a hint whose authentication code is not zero")]
    HintCode,
}

impl Header {
    /// Returns its place among the datagrams of its sender under the keys of a session: it grows with each.
    #[must_use]
    pub const fn number(&self) -> u64 {
        ((self.epoch as u64) << 32) | self.sequence as u64
    }

    /// Reads the header of a whole datagram and checks that its length fits. The code is not checked.
    ///
    /// # Errors
    /// [`HeaderError`], with what was seen.
    pub fn read(datagram: &[u8]) -> Result<Self, HeaderError> {
        let seen = datagram.len();
        if seen < HEADER_BYTES {
            return Err(HeaderError::Short { seen });
        }
        let mut reader = Reader::new(datagram);
        let (version, kind, epoch, records) = (reader.u8(), reader.u8(), reader.u8(), reader.u8());
        if version != VERSION {
            return Err(HeaderError::Version { seen: version });
        }
        let kind = match kind {
            1 => Kind::Source,
            2 => Kind::Controller,
            3 => Kind::Hint,
            seen => return Err(HeaderError::Kind { seen }),
        };
        let most = if kind == Kind::Hint { 0 } else { RECORDS_MAX };
        if usize::from(records) > most {
            return Err(HeaderError::Count { seen: records });
        }
        if seen != HEADER_BYTES + usize::from(records) * RECORD_BYTES {
            return Err(HeaderError::Length { seen, records });
        }
        if kind == Kind::Hint && datagram[SIGNED_BYTES..].iter().any(|byte| *byte != 0) {
            return Err(HeaderError::HintCode);
        }
        let (term, source, sequence) = (reader.u32(), reader.u32(), reader.u32());
        Ok(Self { kind, epoch, term, source, sequence, stamp_ns: reader.u64() })
    }

    /// Writes all before the code.
    pub(super) fn write(&self, records: u8) -> [u8; SIGNED_BYTES] {
        let mut bytes = [0; SIGNED_BYTES];
        bytes[..4].copy_from_slice(&[VERSION, self.kind.code(), self.epoch, records]);
        bytes[4..8].copy_from_slice(&self.term.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.source.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16..].copy_from_slice(&self.stamp_ns.to_be_bytes());
        bytes
    }
}

/// Writes the answer of a controller that does not know the source of a datagram: it repeats the source,
/// the sequence and the stamp, and names the controller's term.
#[must_use]
pub fn hint(unknown: &Header, term: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let header = Header { kind: Kind::Hint, epoch: unknown.epoch, term, ..*unknown };
    bytes[..SIGNED_BYTES].copy_from_slice(&header.write(0));
    bytes
}

/// Writes a datagram of somebody who is no source, without records and without a code: a controller answers with a
/// [hint], so that both ways are known to be open. `source` is a number that no source has.
#[must_use]
pub fn probe(source: u32, sequence: u32, stamp_ns: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let header = Header { kind: Kind::Source, epoch: 0, term: 0, source, sequence, stamp_ns };
    bytes[..SIGNED_BYTES].copy_from_slice(&header.write(0));
    bytes
}
