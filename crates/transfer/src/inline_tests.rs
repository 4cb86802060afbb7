//! The inline format, byte by byte.
use crate::RingLayout;
use crate::commit::commit_word;
use crate::header::{BlockHeader, FLAG_CRC, HeaderError, encode_trailer};
use crate::inline::{INLINE_BYTES, INLINE_VERSION, without_payload};
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
    assert!(sample().fits_inline());
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
        assert!(!header.fits_inline(), "change {i}");
    }
}

#[test]
fn a_length_beyond_the_line_is_refused() {
    for bytes in [0, 41, 64, 255] {
        let mut words = sample().to_words();
        words[6] = words[6] & !(0xff << 24) | u64::from(bytes) << 24;
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
        prop_assert!(header.fits_inline() && header.is_inline());
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
