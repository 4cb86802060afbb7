//! The header of a block: the first 56 of the last 64 bytes of its slot.
use crate::commit::HEADER_WORDS;
use crate::inline;
use crate::layout::{LINE_BYTES, RingLayout};
use std::time::SystemTime;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 56;
/// Version that this crate writes and reads.
pub const HEADER_VERSION: u8 = 1;
/// Flag: [`BlockHeader::crc32c`] holds the CRC32C of the payload.
pub const FLAG_CRC: u16 = 1;
/// Flag: the block was sent in several WRITEs, whose order verbs do not promise. It has a checksum, and
/// is complete when that matches.
pub const FLAG_SEGMENTED: u16 = 2;
/// Flags for the application; they are carried and not interpreted.
pub const APPLICATION_FLAGS: u16 = 0xff00;

/// The description of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHeader {
    /// Stream that the frame belongs to.
    pub stream: u32,
    /// Bytes of payload in this block.
    pub payload_bytes: u32,
    /// Number of the frame in its stream, without gaps.
    pub packet_number: u64,
    /// Bytes of the whole frame.
    pub frame_bytes: u64,
    /// Where in the frame this block's payload begins.
    pub frame_offset: u64,
    /// When the frame was captured, nanoseconds of CLOCK_REALTIME.
    pub capture_time_ns: u64,
    /// CRC32C of the payload; 0 without [`FLAG_CRC`].
    pub crc32c: u32,
    /// Packet numbers directly before this one that the source dropped on purpose.
    pub skipped: u32,
    /// [`FLAG_CRC`], [`FLAG_SEGMENTED`] and [`APPLICATION_FLAGS`].
    pub flags: u16,
    /// Bytes from the beginning of the payload to the trailer: a multiple of 64; 0 for an inline block, whose
    /// payload begins where other blocks have their trailer.
    pub room_bytes: u32,
}

/// A header that violates the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Another version of the format.
    #[error("unsupported block format version {0}: this program reads version {HEADER_VERSION}")]
    Version(u8),
    /// Flags or reserved bytes that this version does not have.
    #[error("reserved bits are set: {0:#018x}")]
    Reserved(u64),
    /// More payload than the room before the header, or more room than the slot has.
    #[error("{payload_bytes} bytes of payload in {room_bytes} bytes of a slot that has {limit}")]
    Room {
        /// Payload bytes announced.
        payload_bytes: u32,
        /// Bytes from payload to header announced.
        room_bytes: u32,
        /// Bytes that a slot has before its trailer.
        limit: u32,
    },
    /// The block's part of the frame is outside of the frame.
    #[error("bytes {offset}..+{payload_bytes} are outside of a frame of {frame_bytes} bytes")]
    OutsideFrame {
        /// Where in the frame the payload begins.
        offset: u64,
        /// Bytes of payload.
        payload_bytes: u32,
        /// Bytes of the frame.
        frame_bytes: u64,
    },
    /// An empty part of a frame that is not empty: the frame would never be complete.
    #[error("a block without payload for a frame of {0} bytes")]
    EmptyPart(u64),
    /// More packet numbers skipped than precede this one.
    #[error("packet {packet_number} cannot have {skipped} skipped packets before it")]
    Skipped {
        /// Number of the frame.
        packet_number: u64,
        /// Numbers skipped.
        skipped: u32,
    },
    /// The largest number, which nothing could follow.
    #[error("packet number {0} is beyond the last usable one")]
    PacketNumber(u64),
    /// A checksum without its flag.
    #[error("a checksum ({0:#010x}) without the flag for it")]
    CrcWithoutFlag(u32),
    /// More payload in one line than it has room for, or none.
    #[error("{0} bytes of payload in an inline block, which has 1 to {most}", most = inline::INLINE_BYTES)]
    InlineBytes(u32),
    /// Several WRITEs, and no checksum to tell whether all have arrived.
    #[error("a block of several WRITEs without a checksum")]
    SegmentedWithoutCrc,
}

/// Returns whether the header has [`FLAG_SEGMENTED`].
#[inline]
pub(crate) fn is_segmented(words: &[u64; HEADER_WORDS]) -> bool {
    words[6] & u64::from(FLAG_SEGMENTED) != 0 && !inline::is_inline(words)
}

/// Returns bytes of room and of payload, from the first and the last word of a header that was checked.
#[inline]
pub(crate) fn extent(first: u64, last: u64) -> (u32, u32) {
    if inline::has_version(last) {
        return (0, inline::payload_bytes(last));
    }
    (split(last).1, split(first).1)
}

/// Returns nanoseconds since 1970, as blocks carry them; 0 for earlier times.
pub fn unix_ns(time: SystemTime) -> u64 {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since_epoch.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

impl BlockHeader {
    /// Returns whether payload, header and commit word are in one line.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.room_bytes == 0 && (1..=inline::INLINE_BYTES).contains(&self.payload_bytes)
    }

    /// Returns whether a block with this header, but for its room, can be inline: a whole frame, neither
    /// checksum nor skipped packets, and small numbers.
    #[inline]
    pub(crate) fn fits_inline(&self) -> bool {
        let bytes = self.payload_bytes;
        let ours = self.flags & !APPLICATION_FLAGS;
        (1..=inline::INLINE_BYTES).contains(&bytes)
            && self.frame_bytes == u64::from(bytes)
            && self.frame_offset == 0
            && self.stream <= u8::MAX.into()
            && self.packet_number <= u32::MAX.into()
            && (self.skipped, self.crc32c, ours) == (0, 0, 0)
    }

    /// Returns the header as seven little-endian words; those of an inline block that are payload are 0.
    #[inline]
    pub fn to_words(&self) -> [u64; HEADER_WORDS] {
        if self.is_inline() {
            let fields = inline::Fields {
                stream: self.stream,
                flags: self.flags,
                packet_number: self.packet_number,
                capture_time_ns: self.capture_time_ns,
            };
            return inline::encode(&fields, self.payload_bytes);
        }
        [
            join(self.stream, self.payload_bytes),
            self.packet_number,
            self.frame_bytes,
            self.frame_offset,
            self.capture_time_ns,
            join(self.crc32c, self.skipped),
            join(u32::from(self.flags) | u32::from(HEADER_VERSION) << 16, self.room_bytes),
        ]
    }

    /// Reads and checks the header of a block in a slot of `layout`, inline or not.
    ///
    /// # Errors
    /// [`HeaderError`] with the first violation.
    #[inline]
    pub fn read(words: &[u64; HEADER_WORDS], layout: &RingLayout) -> Result<Self, HeaderError> {
        if inline::is_inline(words) {
            let header = Self::decode_inline(words);
            if header.is_inline() {
                return Ok(header);
            }
            return Err(HeaderError::InlineBytes(header.payload_bytes));
        }
        Self::from_words(words, layout)
    }

    /// Reads and checks the header of a block in a slot of `layout` that is not inline.
    ///
    /// # Errors
    /// [`HeaderError`] with the first violation.
    #[inline]
    pub fn from_words(
        words: &[u64; HEADER_WORDS],
        layout: &RingLayout,
    ) -> Result<Self, HeaderError> {
        let tail = words[6] as u32;
        let version = (tail >> 16) as u8;
        if version != HEADER_VERSION {
            return Err(HeaderError::Version(version));
        }
        if tail >> 24 != 0 {
            return Err(HeaderError::Reserved(words[6]));
        }
        let header = Self::decode(words);
        // Its room says that it is not inline.
        header.check_room(layout.max_payload_bytes())?;
        header.check(layout)?;
        Ok(header)
    }

    /// Reads a header that was checked before.
    #[inline]
    pub(crate) fn from_checked(words: &[u64; HEADER_WORDS]) -> Self {
        if inline::is_inline(words) { Self::decode_inline(words) } else { Self::decode(words) }
    }

    #[inline]
    fn decode_inline(words: &[u64; HEADER_WORDS]) -> Self {
        let fields = inline::decode(words);
        let payload_bytes = inline::payload_bytes(words[HEADER_WORDS - 1]);
        Self {
            stream: fields.stream,
            payload_bytes,
            packet_number: fields.packet_number,
            frame_bytes: payload_bytes.into(),
            capture_time_ns: fields.capture_time_ns,
            flags: fields.flags,
            ..Self::default()
        }
    }

    #[inline]
    fn decode(words: &[u64; HEADER_WORDS]) -> Self {
        let (stream, payload_bytes) = split(words[0]);
        let (crc32c, skipped) = split(words[5]);
        let (tail, room_bytes) = split(words[6]);
        Self {
            stream,
            payload_bytes,
            packet_number: words[1],
            frame_bytes: words[2],
            frame_offset: words[3],
            capture_time_ns: words[4],
            crc32c,
            skipped,
            flags: tail as u16,
            room_bytes,
        }
    }

    /// Checks the fields against the format and a slot of `layout`.
    ///
    /// # Errors
    /// [`HeaderError`] with the first violation.
    #[inline]
    pub fn check(&self, layout: &RingLayout) -> Result<(), HeaderError> {
        if self.flags & !(FLAG_CRC | FLAG_SEGMENTED | APPLICATION_FLAGS) != 0 {
            return Err(HeaderError::Reserved(u64::from(self.flags)));
        }
        if !self.is_inline() {
            self.check_room(layout.max_payload_bytes())?;
        } else if !self.fits_inline() {
            return Err(HeaderError::InlineBytes(self.payload_bytes));
        }
        self.check_frame()?;
        if self.flags & FLAG_CRC == 0 && self.crc32c != 0 {
            return Err(HeaderError::CrcWithoutFlag(self.crc32c));
        }
        if self.flags & (FLAG_CRC | FLAG_SEGMENTED) == FLAG_SEGMENTED {
            return Err(HeaderError::SegmentedWithoutCrc);
        }
        Ok(())
    }

    #[inline]
    fn check_room(&self, limit: u32) -> Result<(), HeaderError> {
        let whole_lines = self.room_bytes.is_multiple_of(LINE_BYTES);
        if whole_lines && self.payload_bytes <= self.room_bytes && self.room_bytes <= limit {
            return Ok(());
        }
        Err(HeaderError::Room {
            payload_bytes: self.payload_bytes,
            room_bytes: self.room_bytes,
            limit,
        })
    }

    #[inline]
    fn check_frame(&self) -> Result<(), HeaderError> {
        let end = self.frame_offset.checked_add(u64::from(self.payload_bytes));
        if end.is_none_or(|end| end > self.frame_bytes) {
            return Err(HeaderError::OutsideFrame {
                offset: self.frame_offset,
                payload_bytes: self.payload_bytes,
                frame_bytes: self.frame_bytes,
            });
        }
        if self.payload_bytes == 0 && self.frame_bytes != 0 {
            return Err(HeaderError::EmptyPart(self.frame_bytes));
        }
        if self.packet_number == u64::MAX {
            return Err(HeaderError::PacketNumber(self.packet_number));
        }
        if u64::from(self.skipped) > self.packet_number {
            return Err(HeaderError::Skipped {
                packet_number: self.packet_number,
                skipped: self.skipped,
            });
        }
        Ok(())
    }

    /// Returns the checksum, if the block has one.
    #[inline]
    pub fn crc(&self) -> Option<u32> {
        (self.flags & FLAG_CRC != 0).then_some(self.crc32c)
    }
}

/// Encodes a trailer: header and commit word.
#[inline]
pub fn encode_trailer(words: &[u64; HEADER_WORDS], commit: u64) -> [u8; 64] {
    let mut out = [0; 64];
    for (bytes, word) in out.chunks_exact_mut(8).zip(words.iter().chain([&commit])) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    out
}

/// Decodes a trailer into header words and commit word.
#[inline]
pub fn decode_trailer(trailer: &[u8; 64]) -> ([u64; HEADER_WORDS], u64) {
    let mut words = [0; HEADER_WORDS + 1];
    for (word, bytes) in words.iter_mut().zip(trailer.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let [w0, w1, w2, w3, w4, w5, w6, commit] = words;
    ([w0, w1, w2, w3, w4, w5, w6], commit)
}

#[inline]
fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::commit_word;
    use proptest::prelude::*;

    fn layout() -> RingLayout {
        RingLayout::new(4, 4096).unwrap()
    }

    fn sample() -> BlockHeader {
        BlockHeader {
            stream: 0x0102_0304,
            payload_bytes: 1000,
            packet_number: 0x1112_1314_1516_1718,
            frame_bytes: 3000,
            frame_offset: 2000,
            capture_time_ns: 0x3132_3334_3536_3738,
            crc32c: 0x4142_4344,
            skipped: 5,
            flags: 0x8000 | FLAG_CRC,
            room_bytes: 1024,
        }
    }

    #[test]
    fn golden_bytes() {
        let words = sample().to_words();
        let trailer = encode_trailer(&words, commit_word(42, 7, 3, &words));
        let hex: String = trailer.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "04030201e8030000\
             1817161514131211\
             b80b000000000000\
             d007000000000000\
             3837363534333231\
             4443424105000000\
             0180010000040000\
             774ea92d566dee88"
        );
        assert_eq!(decode_trailer(&trailer).0, words);
    }

    #[test]
    fn violations_of_the_format_are_refused() {
        let refused = |change: fn(&mut BlockHeader)| {
            let mut header = sample();
            change(&mut header);
            BlockHeader::from_words(&header.to_words(), &layout()).unwrap_err()
        };
        use HeaderError::*;
        assert!(matches!(refused(|h| h.flags |= 4), Reserved(_)));
        let segmented_only = |h: &mut BlockHeader| (h.flags, h.crc32c) = (FLAG_SEGMENTED, 0);
        assert!(matches!(refused(segmented_only), SegmentedWithoutCrc));
        assert!(matches!(refused(|h| h.room_bytes = 1000), Room { .. }));
        assert!(matches!(refused(|h| h.room_bytes = 960), Room { .. }));
        assert!(matches!(refused(|h| h.room_bytes = 4096), Room { .. }));
        assert!(matches!(refused(|h| h.frame_bytes = 2999), OutsideFrame { .. }));
        assert!(matches!(refused(|h| h.frame_offset = u64::MAX), OutsideFrame { .. }));
        assert!(matches!(refused(|h| h.payload_bytes = 0), EmptyPart(3000)));
        assert!(matches!(refused(|h| h.packet_number = 4), Skipped { .. }));
        assert!(matches!(refused(|h| h.packet_number = u64::MAX), PacketNumber(_)));
        assert!(matches!(refused(|h| h.flags = 0), CrcWithoutFlag(_)));
        let mut words = sample().to_words();
        words[6] ^= 3 << 16;
        assert_eq!(BlockHeader::from_words(&words, &layout()).unwrap_err(), Version(2));
    }

    #[test]
    fn an_empty_frame_is_a_frame() {
        let header = BlockHeader { packet_number: 1, ..BlockHeader::default() };
        let read = BlockHeader::from_words(&header.to_words(), &layout()).unwrap();
        assert_eq!((read.payload_bytes, read.frame_bytes), (0, 0));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(stream: u32, payload in 1u32..=4000, number in 9u64..u64::MAX, skipped in 0u32..9, time: u64) {
            let header = BlockHeader {
                stream,
                payload_bytes: payload,
                packet_number: number,
                frame_bytes: 10_000,
                frame_offset: 6000,
                capture_time_ns: time,
                skipped,
                room_bytes: crate::layout::padded(payload),
                ..BlockHeader::default()
            };
            prop_assert_eq!(BlockHeader::from_words(&header.to_words(), &layout()), Ok(header));
        }

        #[test]
        fn no_trailer_panics(bytes: [[u8; 32]; 2]) {
            let mut trailer = [0; 64];
            trailer[..32].copy_from_slice(&bytes[0]);
            trailer[32..].copy_from_slice(&bytes[1]);
            let (words, commit) = decode_trailer(&trailer);
            prop_assert_eq!(encode_trailer(&words, commit), trailer);
            let _ = BlockHeader::from_words(&words, &layout());
        }
    }
}
