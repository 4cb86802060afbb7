//! The mechanism over any provider: in place where it can map the peer's memory, and with copies.
mod crash;
mod full;
mod gate;
mod hostile;
mod inline;
mod lockstep;
mod permit;
mod segmented;

use super::common::*;
use catchment_probe::load::{did, scaled};
use catchment_probe::random::Random;
use catchment_transfer::header::FLAG_CRC;
use catchment_transfer::layout::MIN_BLOCK_BYTES;
use catchment_transfer::*;
use catchment_verbs::Mr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether blocks can be filled in the collector's memory.
fn is_direct() -> bool {
    side(1, 0, 1).context.caps().direct
}

/// The modes that the provider has.
fn modes() -> Vec<Mode> {
    if is_direct() { vec![Mode::InPlace, COPY] } else { vec![COPY] }
}

#[test]
fn a_block_goes_over_and_its_slot_comes_back() {
    for mode in modes() {
        let Pair { sender, receiver, .. } = &pair(mode, 3, 100);
        for number in 0..50u64 {
            let mut block = reserve(sender, 7, 100);
            block.write_at(0, &[number as u8; 100]).unwrap();
            let meta = BlockMeta { capture_time_ns: 5, flags: 0x4200, ..whole(number, 100) };
            block.commit(&meta, true).unwrap();
            let block = bring(sender, receiver);
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

/// Reads the collector's array until it shows that many free slots.
fn refresh_until_free(sender: &Sender, slots: u32) {
    until("other slots are free", || {
        sender.refresh().unwrap();
        (sender.known_free() == slots).then_some(())
    });
}

/// Payload lengths, contents, shortening and checksums at random; a full ring now and then.
fn random_blocks(mode: Mode, count: u64) {
    const MOST: u32 = 4000;
    let Pair { sender, receiver, .. } = &pair(mode, 8, MOST);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(0x1234_5678);
            let mut payload = vec![0; MOST as usize];
            for number in 0..count {
                let bytes = random.below(u64::from(MOST) + 1) as u32;
                let room = bytes + random.below(u64::from(MOST - bytes) + 1) as u32;
                random.fill(&mut payload[..bytes as usize]);
                let mut block = reserve(sender, 0, room);
                block.write_at(0, &payload[..bytes as usize]).unwrap();
                block.truncate(bytes);
                block.commit(&whole(number, bytes), random.below(2) == 0).unwrap();
            }
            // Blocks that found the queue full are posted by a later call.
            while receiver.stats().blocks < count {
                sender.refresh().unwrap();
                std::thread::yield_now();
            }
        });
        let mut random = Random::new(0x1234_5678);
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
            assert!(seen[..bytes as usize] == wanted[..bytes as usize], "{number}");
        }
    });
    assert!(receiver.poll().unwrap().is_none());
    assert_eq!(receiver.stats().hints_wrong, 0);
}

/// A receiver that keeps up makes the sender use one slot again and again; otherwise it uses others.
#[test]
fn large_blocks_use_as_few_slots_as_they_need() {
    if !is_direct() {
        return;
    }
    let Pair { sender, receiver, .. } = &pair(Mode::InPlace, 80, 128 << 10);
    for number in 0..100 {
        let block = sender.reserve(0, 100_000).unwrap();
        assert_eq!(block.slot(), 0);
        block.commit(&whole(number, 100_000), false).unwrap();
        drop(receive(receiver));
    }
    let many: Vec<_> = (0..80).map(|_| sender.reserve(0, 1).unwrap()).collect();
    assert!(sender.reserve(0, 1).is_err());
    let slots: std::collections::BTreeSet<u32> = many.iter().map(|b| b.slot()).collect();
    assert_eq!(slots.len(), 80);
}

/// Where a READ takes packets, one is for many blocks, however often slots come back.
#[test]
fn large_blocks_do_not_cost_a_read_each() {
    if is_direct() {
        return;
    }
    let Pair { sender, receiver, .. } = &pair(COPY, 64, 64 << 10);
    let count = 512;
    for number in 0..count {
        send(sender, 0, number, &[1; 60_000], false);
        drop(bring(sender, receiver));
    }
    let reads = sender.stats().status_reads;
    assert!((1..=count / 8).contains(&reads), "{reads} READs for {count} blocks");
}

#[test]
fn s1_2_payloads_of_random_blocks_are_equal() {
    let blocks = scaled(100_000);
    for mode in modes() {
        random_blocks(mode, blocks);
        did("S1.2", blocks, &format!("random blocks, {mode:?}"));
    }
}

#[test]
fn s1_8_block_sizes_from_64_bytes_to_22_megabytes() {
    for bytes in (6..=23).map(|power| 1u32 << power).chain([22_000_000]) {
        for mode in modes() {
            let Pair { sender, receiver, .. } = &pair(mode, 2, bytes);
            let mut payload = vec![0; bytes as usize];
            Random::new(u64::from(bytes)).fill(&mut payload);
            for number in 0..3 {
                send(sender, 0, number, &payload, true);
                let block = bring(sender, receiver);
                let mut seen = vec![0; bytes as usize];
                block.copy_out(&mut seen).unwrap();
                assert!(seen == payload, "{bytes} bytes");
            }
            assert!(sender.reserve(0, sender.layout().max_payload_bytes() + 1).is_err());
        }
    }
    assert_eq!(RingLayout::block_bytes_for(64).unwrap(), MIN_BLOCK_BYTES);
}

/// Ten thousand blocks of each of twelve devices, filled by as many threads.
#[test]
fn s1_10_twelve_filling_threads_share_one_queue_pair() {
    let packets = scaled(10_000);
    for mode in modes() {
        let Pair { sender, receiver, .. } = &pair(mode, 16, 256);
        std::thread::scope(|scope| {
            for device in 0..12u32 {
                scope.spawn(move || {
                    for number in 0..packets {
                        send(sender, device, number, &[device as u8; 200], false);
                    }
                });
            }
            let mut orders: Vec<_> = (0..12).map(|_| order::InOrder::new(0)).collect();
            for _ in 0..12 * packets {
                let block = receive(receiver);
                let device = block.header().stream;
                assert_eq!(block.payload().to_vec(), [device as u8; 200]);
                let header = block.header();
                let order = &mut orders[device as usize];
                order.push(header, block, drop);
            }
            for order in orders {
                assert_eq!(order.next_packet(), packets, "{mode:?}");
                assert_eq!(order.early(), 0);
            }
        });
        assert_eq!(sender.stats().blocks, 12 * packets);
        assert!(receiver.poll().unwrap().is_none());
        did("S1.10", 12 * packets, &format!("packets of 12 fillers, {mode:?}"));
    }
}

#[test]
fn s1_22_two_hundred_and_fifty_five_streams_on_one_queue_pair() {
    let Pair { sender, receiver, .. } = &pair(COPY, 32, 64);
    for number in 0..20 {
        for stream in 0..255 {
            commit(reserve(sender, stream, 64), number);
            let block = bring(sender, receiver);
            let header = block.header();
            assert_eq!((header.stream, header.packet_number), (stream, number));
        }
    }
    let error = sender.reserve(256, 64).unwrap_err();
    assert!(matches!(error, ReserveError::Stream { limit: 256, .. }));
}

/// Workers keep blocks for random times and release them in any order.
#[test]
fn s1_31_four_workers_release_out_of_order() {
    let total = scaled(100_000);
    for mode in modes() {
        let Pair { sender, receiver, .. } = &pair(mode, 16, 64);
        let seen: Vec<AtomicU64> = (0..total).map(|_| AtomicU64::new(0)).collect();
        let left = AtomicU64::new(total);
        std::thread::scope(|scope| {
            for seed in 1..=4u64 {
                let (seen, left) = (&seen, &left);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    let mut kept: Vec<ReceivedBlock> = Vec::new();
                    while left.load(Ordering::Relaxed) > 0 {
                        if kept.len() > random.below(4) as usize {
                            kept.swap_remove(random.below(kept.len() as u64) as usize);
                        }
                        let Some(mut block) = receiver.poll().unwrap() else {
                            std::thread::yield_now();
                            continue;
                        };
                        if random.below(8) == 0 {
                            block.hold();
                        }
                        let number = block.header().packet_number;
                        assert_eq!(block.payload().load_u64(0, Ordering::Relaxed).unwrap(), number);
                        seen[number as usize].fetch_add(1, Ordering::Relaxed);
                        left.fetch_sub(1, Ordering::Relaxed);
                        kept.push(block);
                    }
                });
            }
            for number in 0..total {
                send(sender, 0, number, &number.to_ne_bytes(), false);
            }
        });
        assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        assert_eq!(receiver.outstanding(), 0);
        did("S1.31", total, &format!("blocks released out of order by 4 workers, {mode:?}"));
    }
}

#[test]
fn s1_20_smallest_queues_and_one_less() {
    let blocks = scaled(20_000);
    random_blocks(Mode::Copy { send: 2, cq: 1 }, blocks);
    did("S1.20", blocks, "random blocks with send queue 2 and completion queue 1");
    let layout = RingLayout::new(3, 128).unwrap();
    let (mut source, mut collector) = (side(1, 0, 1), side(1, 0, 1));
    connect(&mut source, &mut collector);
    let mr = ring_mr(&collector.pd, layout.total_bytes());
    let mode = Mode::Copy { send: 1, cq: 1 };
    let error = make_sender(source, remote(&mr, layout), mode, SenderOptions::default());
    assert!(matches!(error.err(), Some(SenderError::Queue { given: 1, needed: 2, .. })));
}

fn remote(mr: &Arc<dyn Mr>, layout: RingLayout) -> RemoteRing {
    RemoteRing { addr: mr.addr(), rkey: mr.rkey(), layout }
}

/// Whether or not slots come back: one READ of the array per call, none per block.
#[test]
fn s1_3_one_read_for_each_refresh() {
    // Elsewhere a READ is answered after the call, and calls meanwhile issue none.
    if !is_direct() {
        return;
    }
    let options = SenderOptions { refill: Some(Refill::WhenEmpty), ..SenderOptions::default() };
    let Pair { sender, receiver, .. } = &pair_with(COPY, RingLayout::new(4, 128).unwrap(), options);
    for number in 0..4 {
        commit(sender.reserve(0, 64).unwrap(), number);
    }
    assert_eq!(sender.stats().status_reads, 0);
    for reads in 1..=4 {
        receive(receiver);
        sender.refresh().unwrap();
        assert_eq!(sender.stats().status_reads, reads);
        assert_eq!(u64::from(sender.known_free()), reads);
    }
}

/// A READ carries all releases since the last one, of a large ring too.
#[test]
fn one_read_finds_all_slots_of_a_ring_of_several_lines() {
    let options = SenderOptions { refill: Some(Refill::WhenEmpty), ..SenderOptions::default() };
    let layout = RingLayout::new(200, 128).unwrap();
    let Pair { sender, receiver, .. } = &pair_with(COPY, layout, options);
    for number in 0..200 {
        commit(reserve(sender, 0, 64), number);
    }
    for _ in 0..200 {
        until("a block comes", || {
            // Blocks that found the queue full are posted by a later call.
            sender.progress().unwrap();
            receiver.poll().unwrap()
        });
    }
    // Publishes what was released.
    assert!(receiver.poll().unwrap().is_none());
    assert!(matches!(sender.reserve(0, 64), Ok(_) | Err(ReserveError::WouldBlock)));
    until("the READ has come", || {
        sender.progress().unwrap();
        (sender.known_free() > 0).then_some(())
    });
    assert_eq!((sender.known_free(), sender.stats().status_reads), (200, 1));
}

/// A fast receiver: one READ for every N blocks, as in the paper (S1.14).
#[test]
fn s1_14_reads_per_block_when_looking_only_when_empty() {
    let options = SenderOptions { refill: Some(Refill::WhenEmpty), ..SenderOptions::default() };
    let layout = RingLayout::new(10, 128).unwrap();
    let Pair { sender, receiver, .. } = &pair_with(COPY, layout, options);
    for number in 0..1000 {
        commit(reserve(sender, 0, 64), number);
        bring(sender, receiver);
        // Publishes what was released.
        assert!(receiver.poll().unwrap().is_none());
    }
    assert_eq!(sender.stats().status_reads, 1000 / 10 - 1);
}

/// I3: a large ring is read in stripes, and every slot comes back.
#[test]
fn i3_stripes_find_all_slots_of_a_large_ring() {
    let options = SenderOptions { stripe_bytes: 100, ..SenderOptions::default() };
    let layout = RingLayout::new(1000, 128).unwrap();
    let Pair { sender, receiver, .. } = &pair_with(COPY, layout, options);
    let mut random = Random::new(7);
    let mut kept = Vec::new();
    // Every slot a few times, however little is wanted.
    for number in 0..scaled(20_000).max(3_000) {
        commit(reserve(sender, 0, 64), number);
        kept.push(bring(sender, receiver));
        // Publishes what was released.
        assert!(receiver.poll().unwrap().is_none());
        if kept.len() == 900 {
            while kept.len() > 100 {
                kept.swap_remove(random.below(kept.len() as u64) as usize);
            }
        }
    }
    drop(kept);
    assert!(receiver.poll().unwrap().is_none());
    refresh_until_free(sender, 1000);
}

/// A collector may withhold slots from a source, but not while it waits itself.
#[test]
fn a_collector_that_finds_nothing_withholds_no_slot() {
    for mode in modes() {
        let Pair { sender, receiver, .. } = &pair(mode, 64, 64);
        let mut blocks: Vec<_> = (0..64)
            .map(|number| {
                commit(sender.reserve(0, 64).unwrap(), number);
                bring(sender, receiver)
            })
            .collect();
        blocks.truncate(61);
        assert!(receiver.poll().unwrap().is_none());
        refresh_until_free(sender, 3);
        // Now one by one, as they are dropped.
        blocks.truncate(60);
        refresh_until_free(sender, 4);
        drop(blocks);
        refresh_until_free(sender, 64);
    }
}
