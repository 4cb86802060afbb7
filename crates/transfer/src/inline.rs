//! The inline format: payload, header and commit word of a small block in one line.
//!
//! The line is the last one of the slot, as the trailer of any block. Its first 40 bytes are the payload,
//! the next 16 the header, the last eight the commit word. What a block needs that the header has no room
//! for keeps it from being inline: then it has a whole trailer behind its payload.
use crate::commit::HEADER_WORDS;

/// Most payload bytes of an inline block.
pub const INLINE_BYTES: u32 = 40;
/// The version byte of its header.
pub const INLINE_VERSION: u8 = 2;
/// Words of the line that are payload.
pub(crate) const PAYLOAD_WORDS: usize = 5;

/// Returns whether the words of a trailer are those of an inline block.
#[inline]
pub(crate) fn is_inline(words: &[u64; HEADER_WORDS]) -> bool {
    has_version(words[HEADER_WORDS - 1])
}

/// Returns whether the last word of a header is that of an inline block.
#[inline]
pub(crate) fn has_version(last: u64) -> bool {
    (last >> 16) as u8 == INLINE_VERSION
}

/// Returns the payload bytes that the last word of an inline block's header has.
#[inline]
pub(crate) fn payload_bytes(last: u64) -> u32 {
    u32::from((last >> 24) as u8)
}

/// Returns what the commit word mixes: of an inline block the payload counts as zeros.
#[inline]
pub(crate) fn without_payload(mut words: [u64; HEADER_WORDS]) -> [u64; HEADER_WORDS] {
    if is_inline(&words) {
        words[..PAYLOAD_WORDS].fill(0);
    }
    words
}

/// What the header of an inline block has, beside its payload bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields {
    /// At most 255.
    pub(crate) stream: u32,
    /// Those of the application.
    pub(crate) flags: u16,
    /// At most 2^32 - 1.
    pub(crate) packet_number: u64,
    pub(crate) capture_time_ns: u64,
}

/// Encodes the header, with zeros for the payload.
#[inline]
pub(crate) fn encode(fields: &Fields, payload_bytes: u32) -> [u64; HEADER_WORDS] {
    let low = fields.stream & 0xff
        | u32::from(fields.flags & 0xff00)
        | u32::from(INLINE_VERSION) << 16
        | payload_bytes << 24;
    let last = u64::from(low) | fields.packet_number << 32;
    [0, 0, 0, 0, 0, fields.capture_time_ns, last]
}

/// Decodes the header; [`payload_bytes`] is apart.
#[inline]
pub(crate) fn decode(words: &[u64; HEADER_WORDS]) -> Fields {
    let [.., capture_time_ns, last] = *words;
    Fields {
        stream: (last as u8).into(),
        flags: last as u16 & 0xff00,
        packet_number: last >> 32,
        capture_time_ns,
    }
}
