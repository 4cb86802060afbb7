//! The mechanism over shared memory, in place and with copies.
#![allow(missing_docs, clippy::disallowed_methods)]
mod common;

use catchment_transfer::{header::FLAG_CRC, layout::MIN_BLOCK_BYTES, *};
use common::*;

const BOTH: [Mode; 2] = [Mode::InPlace, COPY];

#[test]
fn a_block_goes_over_and_its_slot_comes_back() {
    for mode in BOTH {
        let Pair {
            sender, receiver, ..
        } = &pair(mode, 3, 100);
        for number in 0..50u64 {
            let mut block = sender.reserve(7, 100).unwrap();
            block.write_at(0, &[number as u8; 100]).unwrap();
            let meta = BlockMeta {
                capture_time_ns: 5,
                flags: 0x4200,
                ..whole(number, 100)
            };
            block.commit(&meta, true).unwrap();
            let block = receiver.poll().unwrap().expect("a block");
            let header = block.header();
            assert_eq!((header.stream, header.packet_number), (7, number));
            assert_eq!(header.flags, 0x4200 | FLAG_CRC);
            assert_eq!(block.payload().to_vec(), [number as u8; 100]);
            block.check_crc().unwrap();
        }
        assert!(receiver.poll().unwrap().is_none());
        assert_eq!(receiver.stats().blocks, 50);
        assert_eq!(sender.stats().blocks, 50);
    }
}

/// Payload lengths, contents, shortening and checksums at random; a full ring now and then.
fn random_blocks(mode: Mode, count: u64) {
    const MOST: u32 = 4000;
    let Pair {
        sender, receiver, ..
    } = &pair(mode, 8, MOST);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(0x1234_5678);
            let mut payload = vec![0; MOST as usize];
            for number in 0..count {
                let bytes = random.below(u64::from(MOST) + 1) as u32;
                let room = bytes + random.below(u64::from(MOST - bytes) + 1) as u32;
                random.fill(&mut payload[..bytes as usize]);
                let mut block = reserve(sender, 0, room);
                block.write_at(0, &payload[..bytes as usize]).unwrap();
                block.truncate(bytes);
                let crc = random.below(2) == 0;
                block.commit(&whole(number, bytes), crc).unwrap();
            }
        });
        let mut random = Random(0x1234_5678);
        let (mut wanted, mut seen) = (vec![0; MOST as usize], vec![0; MOST as usize]);
        for number in 0..count {
            let bytes = random.below(u64::from(MOST) + 1) as u32;
            random.below(u64::from(MOST - bytes) + 1);
            random.fill(&mut wanted[..bytes as usize]);
            let crc = random.below(2) == 0;
            let block = receive(receiver);
            assert_eq!(block.header().packet_number, number);
            assert_eq!(block.header().crc().is_some(), crc);
            block.copy_out(&mut seen).unwrap();
            assert!(
                seen[..bytes as usize] == wanted[..bytes as usize],
                "{number}"
            );
        }
    });
    assert!(receiver.poll().unwrap().is_none());
    assert_eq!(receiver.stats().hints_wrong, 0);
}

#[test]
fn s1_2_payloads_of_random_blocks_are_equal() {
    for mode in BOTH {
        random_blocks(mode, 100_000);
    }
}

#[test]
#[ignore = "a minute: run by hand"]
fn s1_2_payloads_of_a_million_random_blocks_are_equal() {
    for mode in BOTH {
        random_blocks(mode, 1_000_000);
    }
}

#[test]
fn s1_8_block_sizes_from_64_bytes_to_22_megabytes() {
    let sizes = (6..=23).map(|power| 1u32 << power);
    for bytes in sizes.chain([22_000_000]) {
        for mode in BOTH {
            let Pair {
                sender, receiver, ..
            } = &pair(mode, 2, bytes);
            let mut payload = vec![0; bytes as usize];
            Random(u64::from(bytes)).fill(&mut payload);
            for number in 0..3 {
                let mut block = sender.reserve(0, bytes).unwrap();
                block.write_at(0, &payload).unwrap();
                block.commit(&whole(number, bytes), true).unwrap();
                let block = receiver.poll().unwrap().expect("a block");
                let mut seen = vec![0; bytes as usize];
                block.copy_out(&mut seen).unwrap();
                assert!(seen == payload, "{bytes} bytes");
            }
            assert!(
                sender
                    .reserve(0, sender.layout().max_payload_bytes() + 1)
                    .is_err()
            );
        }
    }
    assert_eq!(RingLayout::block_bytes_for(64).unwrap(), MIN_BLOCK_BYTES);
}
