//! What the two ends exchange before they connect: address, key, queue pair number and GID.
//!
//! 72 bytes, numbers big-endian:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | `CDPX` |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | length, 72 |
//! | 8 | 16 | GID |
//! | 24 | 4 | queue pair number, 24 bits |
//! | 28 | 4 | first packet sequence number, 24 bits |
//! | 32 | 8 | address of the memory exposed to the peer |
//! | 40 | 4 | its key |
//! | 44 | 8 | its length |
//! | 52 | 4 | slots at its beginning |
//! | 56 | 4 | most payload bytes of a slot |
//! | 60 | 2 | UDP port; 0 where the provider has no network |
//! | 62 | 2 | path MTU; 0 where the provider has no network |
//! | 64 | 4 | extensions of the provider, one bit each |
//! | 68 | 4 | CRC32C of all before |
use crate::RemoteMemory;
use catchment_verbs::{Endpoint, Gid, NetEnd};
use std::fmt;
use std::str::FromStr;

/// Bytes of a card.
pub const CARD_BYTES: usize = 72;
const MAGIC: &[u8; 4] = b"CDPX";
const VERSION: u16 = 1;
const MAX_24_BITS: u32 = 0xff_ffff;

/// The description of an end for its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Card {
    /// Its queue pair.
    pub endpoint: Endpoint,
    /// Its memory: slots, then what both ends share.
    pub memory: RemoteMemory,
    /// Slots.
    pub blocks: u32,
    /// Most payload bytes of a slot.
    pub payload_bytes: u32,
}

/// Bytes that are not a card, or one that does not fit this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CardError {
    /// Another protocol.
    #[error("the peer speaks another protocol: it begins with {0:02x?}")]
    Magic([u8; 4]),
    /// A text that is not [`CARD_BYTES`] bytes as hexadecimal digits.
    #[error("a card of {0} characters: this version has {digits} hexadecimal digits", digits = 2 * CARD_BYTES)]
    Text(usize),
    /// Another version of the format.
    #[error("unsupported card version {0}: this program reads version {VERSION}")]
    Version(u16),
    /// A length that this version does not have.
    #[error("a card of {0} bytes: this version has {CARD_BYTES}")]
    Length(u16),
    /// The card was corrupted in transit.
    #[error("card checksum {computed:#010x}, the peer computed {announced:#010x}")]
    Checksum {
        /// What the peer computed.
        announced: u32,
        /// What this side computed.
        computed: u32,
    },
    /// A number out of range.
    #[error("{what} = {value} is out of range")]
    Range {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The two ends have different shapes.
    #[error(
        "the peer has {blocks} slots of {payload_bytes} bytes, this end {our_blocks} of \
         {our_payload_bytes}: both need the same"
    )]
    Shape {
        /// Slots of the peer.
        blocks: u32,
        /// Most payload bytes of them.
        payload_bytes: u32,
        /// Slots here.
        our_blocks: u32,
        /// Most payload bytes of them.
        our_payload_bytes: u32,
    },
    /// The peer's memory is shorter than its slots.
    #[error("the peer offers {given} bytes, its slots need {needed}")]
    Memory {
        /// Bytes that it offers.
        given: u64,
        /// Bytes of the slots.
        needed: u64,
    },
}

impl fmt::Display for Card {
    /// Writes the 72 bytes as hexadecimal digits.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.encode().iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl FromStr for Card {
    type Err = CardError;

    /// Reads what [`Card`] displays as.
    fn from_str(text: &str) -> Result<Self, CardError> {
        let wrong = || CardError::Text(text.chars().count());
        let mut bytes = [0; CARD_BYTES];
        if text.len() != 2 * CARD_BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Self::decode(&bytes)
    }
}

impl Card {
    /// Returns the 72 bytes.
    pub fn encode(&self) -> [u8; CARD_BYTES] {
        let net = self.endpoint.net;
        let mut out = [0; CARD_BYTES];
        let mut put = |offset: usize, bytes: &[u8]| {
            out[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        put(0, MAGIC);
        put(4, &VERSION.to_be_bytes());
        put(6, &(CARD_BYTES as u16).to_be_bytes());
        put(8, &self.endpoint.gid.0);
        put(24, &self.endpoint.qpn.to_be_bytes());
        put(28, &self.endpoint.psn.to_be_bytes());
        put(32, &self.memory.addr.to_be_bytes());
        put(40, &self.memory.rkey.to_be_bytes());
        put(44, &self.memory.bytes.to_be_bytes());
        put(52, &self.blocks.to_be_bytes());
        put(56, &self.payload_bytes.to_be_bytes());
        if let Some(net) = net {
            put(60, &net.udp_port.to_be_bytes());
            put(62, &(net.path_mtu as u16).to_be_bytes());
            put(64, &net.extensions.to_be_bytes());
        }
        let checksum = crc32c::crc32c(&out[..CARD_BYTES - 4]);
        out[CARD_BYTES - 4..].copy_from_slice(&checksum.to_be_bytes());
        out
    }

    /// Reads and checks the 72 bytes of a peer.
    ///
    /// # Errors
    /// [`CardError`] with the first thing that is wrong.
    pub fn decode(bytes: &[u8; CARD_BYTES]) -> Result<Self, CardError> {
        check_frame(bytes)?;
        let card = Self {
            endpoint: Endpoint {
                gid: Gid(field(bytes, 8)),
                qpn: in_24_bits("queue pair number", u32_at(bytes, 24))?,
                psn: in_24_bits("packet sequence number", u32_at(bytes, 28))?,
                net: net(bytes)?,
            },
            memory: RemoteMemory {
                addr: u64_at(bytes, 32),
                rkey: u32_at(bytes, 40),
                bytes: u64_at(bytes, 44),
            },
            blocks: u32_at(bytes, 52),
            payload_bytes: u32_at(bytes, 56),
        };
        if card.memory.addr.checked_add(card.memory.bytes).is_none() {
            return Err(CardError::Range {
                what: "length of the memory",
                value: card.memory.bytes,
            });
        }
        Ok(card)
    }
}

fn check_frame(bytes: &[u8; CARD_BYTES]) -> Result<(), CardError> {
    let magic: [u8; 4] = field(bytes, 0);
    if magic != *MAGIC {
        return Err(CardError::Magic(magic));
    }
    let version = u16_at(bytes, 4);
    if version != VERSION {
        return Err(CardError::Version(version));
    }
    let length = u16_at(bytes, 6);
    if usize::from(length) != CARD_BYTES {
        return Err(CardError::Length(length));
    }
    let announced = u32_at(bytes, CARD_BYTES - 4);
    let computed = crc32c::crc32c(&bytes[..CARD_BYTES - 4]);
    if announced != computed {
        return Err(CardError::Checksum { announced, computed });
    }
    Ok(())
}

fn net(bytes: &[u8; CARD_BYTES]) -> Result<Option<NetEnd>, CardError> {
    let (udp_port, path_mtu) = (u16_at(bytes, 60), u16_at(bytes, 62));
    let extensions = u32_at(bytes, 64);
    let range = |what, value| Err(CardError::Range { what, value });
    match (udp_port, path_mtu) {
        (0, 0) if extensions == 0 => Ok(None),
        (0, _) => range("UDP port", 0),
        (_, 256 | 512 | 1024 | 2048 | 4096) => {
            Ok(Some(NetEnd { udp_port, path_mtu: path_mtu.into(), extensions, key: None }))
        }
        (_, other) => range("path MTU", other.into()),
    }
}

fn in_24_bits(what: &'static str, value: u32) -> Result<u32, CardError> {
    if value <= MAX_24_BITS {
        return Ok(value);
    }
    Err(CardError::Range { what, value: value.into() })
}

fn field<const N: usize>(bytes: &[u8; CARD_BYTES], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[offset..offset + N]);
    out
}

fn u16_at(bytes: &[u8; CARD_BYTES], offset: usize) -> u16 {
    u16::from_be_bytes(field(bytes, offset))
}

fn u32_at(bytes: &[u8; CARD_BYTES], offset: usize) -> u32 {
    u32::from_be_bytes(field(bytes, offset))
}

fn u64_at(bytes: &[u8; CARD_BYTES], offset: usize) -> u64 {
    u64::from_be_bytes(field(bytes, offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn card() -> Card {
        Card {
            endpoint: Endpoint {
                gid: Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 2]),
                qpn: 0x00ab_cdef,
                psn: 0x0012_3456,
                net: Some(NetEnd { extensions: 1, ..NetEnd::of_rnic(4096) }),
            },
            memory: RemoteMemory {
                addr: 0x7f01_0203_0405_0000,
                rkey: 0xdead_beef,
                bytes: 0x0010_0000,
            },
            blocks: 16,
            payload_bytes: 65_536,
        }
    }

    /// Puts the right checksum behind changed bytes.
    fn sealed(mut bytes: [u8; CARD_BYTES]) -> [u8; CARD_BYTES] {
        let checksum = crc32c::crc32c(&bytes[..68]).to_be_bytes();
        bytes[68..].copy_from_slice(&checksum);
        bytes
    }

    #[test]
    fn s3_6_golden_bytes() {
        let golden = [
            b'C', b'D', b'P', b'X', 0, 1, 0, 72, // magic, version, length
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 2, // GID
            0, 0xab, 0xcd, 0xef, 0, 0x12, 0x34, 0x56, // QPN, PSN
            0x7f, 1, 2, 3, 4, 5, 0, 0, // address
            0xde, 0xad, 0xbe, 0xef, // R_KEY
            0, 0, 0, 0, 0, 0x10, 0, 0, // length
            0, 0, 0, 16, 0, 1, 0, 0, // slots, payload
            0x12, 0xb7, 0x10, 0, 0, 0, 0, 1, // port, path MTU, extensions
        ];
        let bytes = card().encode();
        assert_eq!(bytes[..68], golden);
        assert_eq!(bytes[68..], crc32c::crc32c(&golden).to_be_bytes());
        assert_eq!(Card::decode(&bytes), Ok(card()));
    }

    #[test]
    fn s3_6_bad_data_of_a_peer_is_rejected_with_what_was_seen() {
        let good = card().encode();
        let changed = |offset: usize, bytes: &[u8]| {
            let mut out = good;
            out[offset..offset + bytes.len()].copy_from_slice(bytes);
            Card::decode(&sealed(out)).unwrap_err()
        };
        assert_eq!(changed(0, b"HTTP"), CardError::Magic(*b"HTTP"));
        assert_eq!(changed(4, &[0, 2]), CardError::Version(2));
        assert_eq!(changed(6, &[0, 71]), CardError::Length(71));
        for (offset, bytes, what, value) in [
            (24, &[1, 0, 0, 0][..], "queue pair number", 1 << 24),
            (28, &[1, 0, 0, 0], "packet sequence number", 1 << 24),
            (44, &[0xff; 8], "length of the memory", u64::MAX),
            (60, &[0, 0], "UDP port", 0),
            (62, &[0, 1], "path MTU", 1),
        ] {
            assert_eq!(changed(offset, bytes), CardError::Range { what, value });
        }
        let mut torn = good;
        torn[33] ^= 1;
        assert!(matches!(Card::decode(&torn), Err(CardError::Checksum { .. })));
    }

    #[test]
    fn a_card_without_a_network_reads_back() {
        let mut local = card();
        local.endpoint.net = None;
        assert_eq!(Card::decode(&local.encode()), Ok(local));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes: [u8; 32], rest: [u8; 32], tail: [u8; 8]) {
            let mut all = [0; CARD_BYTES];
            all[..32].copy_from_slice(&bytes);
            all[32..64].copy_from_slice(&rest);
            all[64..].copy_from_slice(&tail);
            let _ = Card::decode(&all);
            all[..8].copy_from_slice(&card().encode()[..8]);
            if let Ok(card) = Card::decode(&sealed(all)) {
                prop_assert_eq!(Card::decode(&card.encode()), Ok(card));
            }
        }
    }
}
