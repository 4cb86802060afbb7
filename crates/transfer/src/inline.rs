//! The inline format: payload, header and commit word of a small block in one line.
//!
//! The line is the last one of the slot, as the trailer of any block. Its first 40 bytes are the payload,
//! the next 16 the header, the last eight the commit word. What a block needs that the header has no room
//! for keeps it from being inline: then it has a whole trailer behind its payload.
use crate::commit::HEADER_WORDS;
use crate::header::{APPLICATION_FLAGS, BlockHeader, HeaderError};

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

/// Returns whether a block with this header, but for its room, can be inline: the whole frame, neither
/// checksum nor skipped packets, and small numbers.
#[inline]
pub(crate) fn fits(header: &BlockHeader) -> bool {
    let bytes = header.payload_bytes;
    let ours = header.flags & !APPLICATION_FLAGS;
    (1..=INLINE_BYTES).contains(&bytes)
        && header.frame_bytes == u64::from(bytes)
        && header.frame_offset == 0
        && header.stream <= u8::MAX.into()
        && header.packet_number <= u32::MAX.into()
        && (header.skipped, header.crc32c, ours) == (0, 0, 0)
}

/// Encodes the header of a block that [`fits`], with zeros for its payload.
#[inline]
pub(crate) fn to_words(header: &BlockHeader) -> [u64; HEADER_WORDS] {
    let low = header.stream & 0xff
        | u32::from(header.flags & APPLICATION_FLAGS)
        | u32::from(INLINE_VERSION) << 16
        | header.payload_bytes << 24;
    let last = u64::from(low) | header.packet_number << 32;
    [0, 0, 0, 0, 0, header.capture_time_ns, last]
}

/// Reads and checks the header of an inline block.
///
/// # Errors
/// [`HeaderError::InlineBytes`].
#[inline]
pub(crate) fn from_words(words: &[u64; HEADER_WORDS]) -> Result<BlockHeader, HeaderError> {
    let header = from_checked(words);
    if (1..=INLINE_BYTES).contains(&header.payload_bytes) {
        return Ok(header);
    }
    Err(HeaderError::InlineBytes(header.payload_bytes))
}

/// Reads a header that was checked before.
#[inline]
pub(crate) fn from_checked(words: &[u64; HEADER_WORDS]) -> BlockHeader {
    let [.., capture_time_ns, last] = *words;
    let payload_bytes = payload_bytes(last);
    BlockHeader {
        stream: (last as u8).into(),
        payload_bytes,
        packet_number: last >> 32,
        frame_bytes: payload_bytes.into(),
        capture_time_ns,
        flags: last as u16 & APPLICATION_FLAGS,
        ..BlockHeader::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RingLayout;
    use crate::commit::commit_word;
    use crate::header::{FLAG_CRC, encode_trailer};
    use proptest::prelude::*;

    fn layout() -> RingLayout {
        RingLayout::new(4, 128).unwrap()
    }

    fn sample() -> BlockHeader {
        BlockHeader {
            stream: 9,
            payload_bytes: 5,
            packet_number: 0x1112_1314,
            frame_bytes: 5,
            capture_time_ns: 0x3132_3334_3536_3738,
            flags: 0x8000,
            ..BlockHeader::default()
        }
    }

    #[test]
    fn golden_bytes() {
        let words = sample().to_words();
        let mut line = encode_trailer(&words, commit_word(42, 7, 3, &words));
        line[..5].copy_from_slice(b"hello");
        let hex: String = line.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(&hex[..80], "68656c6c6f".to_owned() + &"0".repeat(70));
        assert_eq!(&hex[80..112], "38373635343332310980020514131211");
        assert_eq!(&hex[112..], "a4ac9fc3dd06777c");
    }

    #[test]
    fn what_has_no_room_in_a_line_is_not_inline() {
        assert!(fits(&sample()));
        let changes: [fn(&mut BlockHeader); 9] = [
            |h| (h.payload_bytes, h.frame_bytes) = (41, 41),
            |h| (h.payload_bytes, h.frame_bytes) = (0, 0),
            |h| h.frame_bytes = 6,
            |h| (h.frame_offset, h.frame_bytes) = (1, 6),
            |h| h.stream = 256,
            |h| h.packet_number = 1 << 32,
            |h| h.skipped = 1,
            |h| h.crc32c = 1,
            |h| h.flags |= FLAG_CRC,
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut header = sample();
            change(&mut header);
            assert!(!fits(&header), "change {i}");
        }
    }

    #[test]
    fn a_length_beyond_the_line_is_refused() {
        for bytes in [0, 41, 64, 255] {
            let words = to_words(&BlockHeader { payload_bytes: bytes, ..sample() });
            let refused = BlockHeader::read(&words, &layout()).unwrap_err();
            assert_eq!(refused, HeaderError::InlineBytes(bytes));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            stream in 0u32..256, bytes in 1u32..=40, number: u32, time: u64, flags: u8, payload: [u64; 5],
        ) {
            let header = BlockHeader {
                stream,
                payload_bytes: bytes,
                packet_number: number.into(),
                frame_bytes: bytes.into(),
                capture_time_ns: time,
                flags: u16::from(flags) << 8,
                ..BlockHeader::default()
            };
            prop_assert!(fits(&header) && header.is_inline());
            let sealed = header.to_words();
            let mut line = sealed;
            line[..5].copy_from_slice(&payload);
            prop_assert_eq!(without_payload(line), sealed);
            prop_assert_eq!(BlockHeader::read(&line, &layout()), Ok(header));
            prop_assert_eq!(BlockHeader::from_checked(&line), header);
            prop_assert!(header.check(&layout()).is_ok());
        }

        #[test]
        fn any_words_are_a_block_inside_of_the_slot_or_refused(mut words: [u64; 7], inline: bool) {
            let version = if inline { INLINE_VERSION } else { 1 };
            words[6] = words[6] & !(0xffff << 16) | u64::from(version) << 16 | words[0] & 63 << 24;
            if let Ok(header) = BlockHeader::read(&words, &layout()) {
                let most = if header.room_bytes == 0 { INLINE_BYTES } else { header.room_bytes };
                prop_assert!(header.room_bytes <= 64 && header.payload_bytes <= most);
            }
        }
    }
}
