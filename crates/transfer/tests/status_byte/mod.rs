//! The mechanism over any provider: in place where it can map the peer's memory, and with copies.
mod cut;
mod permit;

use super::common::*;
use catchment_transfer::header::FLAG_CRC;
use catchment_transfer::layout::MIN_BLOCK_BYTES;
use catchment_transfer::*;
use catchment_verbs::mem::Region;
use catchment_verbs::{Mr, Wake};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether blocks can be filled in the collector's memory.
fn is_direct() -> bool {
    side(1, 0, 1).context.caps().direct
}

/// The ways that the provider has.
fn modes() -> Vec<Mode> {
    if is_direct() {
        vec![Mode::InPlace, COPY]
    } else {
        vec![COPY]
    }
}

#[test]
fn a_block_goes_over_and_its_slot_comes_back() {
    for mode in modes() {
        let Pair {
            sender, receiver, ..
        } = &pair(mode, 3, 100);
        for number in 0..50u64 {
            let mut block = reserve(sender, 7, 100);
            block.write_at(0, &[number as u8; 100]).unwrap();
            let meta = BlockMeta {
                capture_time_ns: 5,
                flags: 0x4200,
                ..whole(number, 100)
            };
            block.commit(&meta, true).unwrap();
            let block = receive(receiver);
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

/// Looks at the collector's array until that many slots are free there.
fn refresh_until_free(sender: &Sender, slots: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while sender.known_free() != slots {
        assert!(Instant::now() < deadline, "{} free", sender.known_free());
        sender.refresh().unwrap();
        std::thread::yield_now();
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
            // What found the queue full goes with a later call.
            while receiver.stats().blocks < count {
                sender.refresh().unwrap();
                std::thread::yield_now();
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

/// Whoever keeps up uses one slot again and again; whoever does not gets others.
#[test]
fn large_blocks_use_as_few_slots_as_they_need() {
    if !is_direct() {
        return;
    }
    let Pair {
        sender, receiver, ..
    } = &pair(Mode::InPlace, 80, 128 << 10);
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

#[test]
fn s1_2_payloads_of_random_blocks_are_equal() {
    let blocks = scaled(100_000);
    for mode in modes() {
        random_blocks(mode, blocks);
    }
}

#[test]
fn s1_8_block_sizes_from_64_bytes_to_22_megabytes() {
    let sizes = (6..=23).map(|power| 1u32 << power);
    for bytes in sizes.chain([22_000_000]) {
        for mode in modes() {
            let Pair {
                sender, receiver, ..
            } = &pair(mode, 2, bytes);
            let mut payload = vec![0; bytes as usize];
            Random(u64::from(bytes)).fill(&mut payload);
            for number in 0..3 {
                let mut block = reserve(sender, 0, bytes);
                block.write_at(0, &payload).unwrap();
                block.commit(&whole(number, bytes), true).unwrap();
                let block = receive(receiver);
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

/// Ten thousand blocks of each of twelve devices, filled by as many threads.
#[test]
fn s1_10_twelve_filling_threads_share_one_queue_pair() {
    let packets = scaled(10_000);
    for mode in modes() {
        let Pair {
            sender, receiver, ..
        } = &pair(mode, 16, 256);
        std::thread::scope(|scope| {
            for device in 0..12u32 {
                scope.spawn(move || {
                    for number in 0..packets {
                        let mut block = reserve(sender, device, 200);
                        block.write_at(0, &[device as u8; 200]).unwrap();
                        block.commit(&whole(number, 200), false).unwrap();
                    }
                });
            }
            let mut orders: Vec<_> = (0..12).map(|_| order::InOrder::new(0)).collect();
            for _ in 0..12 * packets {
                let block = receive(receiver);
                let device = block.header().stream;
                assert_eq!(block.payload().to_vec(), [device as u8; 200]);
                let header = *block.header();
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
    }
}

#[test]
fn s1_22_two_hundred_and_fifty_five_streams_on_one_queue_pair() {
    let Pair {
        sender, receiver, ..
    } = &pair(COPY, 32, 64);
    for number in 0..20 {
        for stream in 0..255 {
            let block = reserve(sender, stream, 64);
            block.commit(&whole(number, 64), false).unwrap();
            let block = receive(receiver);
            let header = block.header();
            assert_eq!((header.stream, header.packet_number), (stream, number));
        }
    }
    let error = sender.reserve(256, 64).unwrap_err();
    assert!(matches!(error, ReserveError::Stream { limit: 256, .. }));
}

/// Workers keep blocks for random times and give them back in any order.
#[test]
fn s1_31_four_workers_release_out_of_order() {
    let total = scaled(60_000);
    for mode in modes() {
        let Pair {
            sender, receiver, ..
        } = &pair(mode, 16, 64);
        let seen: Vec<AtomicU64> = (0..total).map(|_| AtomicU64::new(0)).collect();
        let left = AtomicU64::new(total);
        std::thread::scope(|scope| {
            for seed in 1..=4u64 {
                let (seen, left) = (&seen, &left);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    let mut kept: Vec<ReceivedBlock> = Vec::new();
                    while left.load(Ordering::Relaxed) > 0 {
                        if kept.len() > random.below(4) as usize {
                            let any = random.below(kept.len() as u64) as usize;
                            kept.swap_remove(any);
                        }
                        let Some(mut block) = receiver.poll().unwrap() else {
                            std::thread::yield_now();
                            continue;
                        };
                        if random.below(8) == 0 {
                            block.hold();
                        }
                        let number = block.header().packet_number;
                        let inside = block.payload().load_u64(0, Ordering::Relaxed).unwrap();
                        assert_eq!(inside, number);
                        seen[number as usize].fetch_add(1, Ordering::Relaxed);
                        left.fetch_sub(1, Ordering::Relaxed);
                        kept.push(block);
                    }
                });
            }
            for number in 0..total {
                let mut block = reserve(sender, 0, 64);
                block.write_at(0, &number.to_ne_bytes()).unwrap();
                block.commit(&whole(number, 64), false).unwrap();
            }
        });
        assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        assert_eq!(receiver.outstanding(), 0);
    }
}

#[test]
fn s1_20_smallest_queues_and_one_less() {
    let smallest = Mode::Copy { send: 2, cq: 1 };
    random_blocks(smallest, scaled(20_000));
    let layout = RingLayout::new(3, 128).unwrap();
    let (mut source, mut collector) = (side(1, 0, 1), side(1, 0, 1));
    connect(&mut source, &mut collector);
    let mr = ring_mr(&collector.pd, layout.total_bytes());
    let mode = Mode::Copy { send: 1, cq: 1 };
    let error = make_sender(source, remote(&mr, layout), mode, SenderOptions::default());
    assert!(matches!(
        error.err(),
        Some(SenderError::Queue {
            given: 1,
            needed: 2,
            ..
        })
    ));
}

fn remote(mr: &Arc<dyn Mr>, layout: RingLayout) -> RemoteRing {
    RemoteRing {
        addr: mr.addr(),
        rkey: mr.rkey(),
        layout,
    }
}

/// Whether or not slots come back: one READ of the array for a call, none for a block.
#[test]
fn s1_3_one_read_for_each_refresh() {
    // Elsewhere a READ is answered after the call, and calls meanwhile issue none.
    if !is_direct() {
        return;
    }
    let options = SenderOptions {
        refill: Some(Refill::WhenEmpty),
        ..SenderOptions::default()
    };
    let layout = RingLayout::new(4, 128).unwrap();
    let Pair {
        sender, receiver, ..
    } = &pair_with(COPY, layout, options);
    for number in 0..4 {
        let block = sender.reserve(0, 64).unwrap();
        block.commit(&whole(number, 64), false).unwrap();
    }
    assert_eq!(sender.stats().status_reads, 0);
    for reads in 1..=4 {
        receive(receiver);
        sender.refresh().unwrap();
        assert_eq!(sender.stats().status_reads, reads);
        assert_eq!(u64::from(sender.known_free()), reads);
    }
}

/// A fast receiver: one READ for every N blocks, as the paper counts (S1.14).
#[test]
fn s1_14_reads_per_block_when_looking_only_when_empty() {
    let options = SenderOptions {
        refill: Some(Refill::WhenEmpty),
        ..SenderOptions::default()
    };
    let layout = RingLayout::new(10, 128).unwrap();
    let Pair {
        sender, receiver, ..
    } = &pair_with(COPY, layout, options);
    for number in 0..1000 {
        let block = reserve(sender, 0, 64);
        block.commit(&whole(number, 64), false).unwrap();
        receive(receiver);
        // Tells of what was given back.
        assert!(receiver.poll().unwrap().is_none());
    }
    assert_eq!(sender.stats().status_reads, 1000 / 10 - 1);
}

#[test]
fn s1_17_a_kept_block_never_stops_the_others() {
    for mode in modes() {
        let Pair {
            sender, receiver, ..
        } = &pair(mode, 4, 64);
        let mut kept = None;
        let start = Instant::now();
        let mut number = 0;
        let mut sent_while_kept = 0;
        while start.elapsed() < Duration::from_millis(100) || kept.is_none() {
            let block = reserve(sender, 0, 64);
            block.commit(&whole(number, 64), false).unwrap();
            let mut block = receive(receiver);
            if number == 3 {
                block.hold();
                kept = Some(block);
            } else if let Some(kept) = &kept {
                assert_ne!(block.slot(), kept.slot());
                sent_while_kept += 1;
            }
            number += 1;
        }
        assert!(sent_while_kept > 100, "{sent_while_kept}");
        drop(kept);
        refresh_until_free(sender, 4);
    }
}

#[test]
fn i12_a_stream_at_its_quota_leaves_room_for_others() {
    for mode in modes() {
        let Pair {
            sender, receiver, ..
        } = &pair(mode, 4, 64);
        sender.set_quota(1, 2).unwrap();
        for number in 0..2 {
            let block = sender.reserve(1, 64).unwrap();
            block.commit(&whole(number, 64), false).unwrap();
        }
        let refused = sender.reserve(1, 64).unwrap_err();
        assert_eq!(
            refused,
            ReserveError::Quota {
                stream: 1,
                quota: 2
            }
        );
        let other = sender.reserve(2, 64).unwrap();
        other.commit(&whole(0, 64), false).unwrap();
        assert_eq!(sender.stats().quota_refusals, 1);
        receive(receiver);
        let block = reserve(sender, 1, 64);
        drop(block);
        assert_eq!(sender.outstanding(1).unwrap(), 1);
    }
}

#[test]
fn a_full_ring_refuses_and_rings_when_a_slot_is_free() {
    for mode in modes() {
        let Pair {
            sender, receiver, ..
        } = &pair(mode, 2, 64);
        for number in 0..2 {
            let block = sender.reserve(0, 64).unwrap();
            block.commit(&whole(number, 64), false).unwrap();
        }
        let Some(watch) = sender.free_watch() else {
            assert!(!is_direct(), "who can map memory can be rung");
            continue;
        };
        watch.arm();
        assert_eq!(sender.reserve(0, 64).unwrap_err(), ReserveError::WouldBlock);
        drop(receive(receiver));
        assert_eq!(watch.wait(Duration::from_secs(5)).unwrap(), Wake::Rung);
        assert!(sender.reserve(0, 64).is_ok());
        assert_eq!(sender.stats().would_blocks, 1);
    }
}

#[test]
fn a_commit_wakes_the_receiver() {
    for mode in modes() {
        let Pair {
            sender, receiver, ..
        } = &pair(mode, 2, 64);
        let Some(watch) = receiver.watch() else {
            assert!(!crate::context().caps().doorbell, "the caps promise one");
            continue;
        };
        watch.arm();
        assert!(receiver.poll().unwrap().is_none());
        let block = sender.reserve(0, 64).unwrap();
        block.commit(&whole(0, 64), false).unwrap();
        assert_eq!(watch.wait(Duration::from_secs(5)).unwrap(), Wake::Rung);
        drop(receive(receiver));
    }
}

/// Not a test by itself: the collector of the test below, in a process that gets killed. It takes
/// two blocks and releases one.
#[test]
fn collector_process() {
    if std::env::var_os("CATCHMENT_TEST_CHILD").is_none() {
        return;
    }
    let layout = RingLayout::new(4, 128).unwrap();
    let [_, ours] = crate::two_devices();
    let mut collector = side_at(ours, [1, 0, 1]);
    let mr = ring_mr(&collector.pd, layout.total_bytes());
    let end = collector.qp.endpoint();
    println!("ring {end} {} {}", mr.addr(), mr.rkey());
    let receiver = Receiver::new(mr, layout, EPOCH, ReceiverOptions::default()).unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    collector.go_up(line.trim().parse().unwrap());
    println!("connected");
    drop(receive(&receiver));
    let _kept = receive(&receiver);
    println!("holding");
    loop {
        std::thread::park();
    }
}

/// A collector in another process, and a sender to its ring.
fn sender_to_child(mode: Mode) -> (Sender, Child, impl FnMut(&str) -> String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "status_byte::collector_process"])
        .env("CATCHMENT_TEST_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut expect = move |start: &str| {
        let line = lines.by_ref().map(|line| line.unwrap());
        // The test harness prints lines of its own, also in front of ours.
        let mut ours = line.filter_map(|line| Some(line[line.find(start)?..].to_owned()));
        ours.next().expect("the child says it")
    };
    let line = expect("ring ");
    let words: Vec<&str> = line.split_whitespace().collect();
    let [ours, _] = crate::two_devices();
    let mut source = side_at(ours, [64, 0, 16]);
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", source.qp.endpoint()).unwrap();
    expect("connected");
    source.go_up(words[1].parse().unwrap());
    let remote = RemoteRing {
        addr: words[2].parse().unwrap(),
        rkey: words[3].parse().unwrap(),
        layout: RingLayout::new(4, 128).unwrap(),
    };
    let sender = make_sender(source, remote, mode, SenderOptions::default()).unwrap();
    (sender, child, expect)
}

/// Three blocks are sent. The collector releases the first, keeps the second, has not seen the
/// third, and is killed.
#[test]
fn what_was_not_released_is_sent_again_after_the_collector_was_killed() {
    for mode in modes() {
        let (sender, mut child, mut expect) = sender_to_child(mode);
        for number in 0..2u64 {
            let mut block = sender.reserve(0, 64).unwrap();
            block.write_at(0, &[number as u8; 64]).unwrap();
            block.commit(&whole(number, 64), true).unwrap();
        }
        expect("holding");
        while sender.outstanding(0).unwrap() > 1 {
            sender.refresh().unwrap();
            std::thread::yield_now();
        }
        let mut block = sender.reserve(0, 64).unwrap();
        block.write_at(0, &[2; 64]).unwrap();
        block.commit(&whole(2, 64), true).unwrap();
        sender.refresh().unwrap();
        let mut unfinished = sender.reserve(0, 64).unwrap();
        unfinished.write_at(0, b"half a frame").unwrap();
        child.kill().unwrap();
        child.wait().unwrap();

        let deadline = Instant::now() + Duration::from_secs(10);
        while sender.check().is_ok() {
            assert!(
                Instant::now() < deadline,
                "{mode:?}: the death was not seen"
            );
            // Over a network only an unanswered request shows it; it fails in its time.
            let _ = sender.refresh();
            std::thread::yield_now();
        }
        assert!(matches!(
            sender.reserve(0, 64),
            Err(ReserveError::Broken(_))
        ));
        let error = unfinished.commit(&whole(3, 64), false).unwrap_err();
        assert!(matches!(error.reason, CommitFailure::Broken(_)));
        assert_eq!(&error.block.memory().to_vec()[..12], b"half a frame");

        let again = pair(mode, 4, 64);
        for old in sender.unreleased() {
            let header = old.header();
            let block = again.sender.reserve(0, header.payload_bytes).unwrap();
            block.memory().copy_from(0, old.payload()).unwrap();
            let meta = whole(header.packet_number, header.payload_bytes);
            block.commit(&meta, true).unwrap();
        }
        for number in 1..3 {
            let block = receive(&again.receiver);
            assert_eq!(block.header().packet_number, number, "{mode:?}");
            assert_eq!(block.payload().to_vec(), [number as u8; 64]);
        }
        assert!(again.receiver.poll().unwrap().is_none());
    }
}

#[test]
fn s1_1_a_wrong_key_is_an_error_and_writes_nothing() {
    let layout = RingLayout::new(3, 128).unwrap();
    for mode in modes() {
        let (mut source, mut collector) = (side(64, 0, 16), side(1, 0, 1));
        connect(&mut source, &mut collector);
        let mr = ring_mr(&collector.pd, layout.total_bytes());
        let wrong = RemoteRing {
            rkey: mr.rkey().wrapping_add(1),
            ..remote(&mr, layout)
        };
        match make_sender(source, wrong, mode, SenderOptions::default()) {
            Err(error) => assert!(matches!(error, SenderError::Remote(_)), "{error:?}"),
            // Where the key is only seen by the peer, the first request tells.
            Ok(sender) => {
                assert!(!is_direct());
                let block = sender.reserve(0, 64).unwrap();
                block.commit(&whole(0, 64), false).unwrap();
                let deadline = Instant::now() + Duration::from_secs(20);
                while sender.refresh().is_ok() {
                    assert!(Instant::now() < deadline, "the wrong key was not seen");
                    std::thread::yield_now();
                }
            }
        }
        assert!(mr.region().whole().to_vec().iter().all(|byte| *byte == 0));
    }
}

/// What a hostile source can put into the ring, next to a correct one.
struct Hostile {
    receiver: Receiver,
    ring: Arc<Region>,
    layout: RingLayout,
}

fn hostile(options: ReceiverOptions) -> Hostile {
    let layout = RingLayout::new(4, 256).unwrap();
    let collector = side(1, 0, 1);
    let mr = ring_mr(&collector.pd, layout.total_bytes());
    Hostile {
        ring: Arc::clone(mr.region()),
        receiver: Receiver::new(mr, layout, EPOCH, options).unwrap(),
        layout,
    }
}

impl Hostile {
    fn put(&self, slot: u32, epoch: u64, generation: u64, header: &BlockHeader) {
        let words = header.to_words();
        let commit = protocol::commit_word(epoch, slot, generation, &words);
        let trailer = header::encode_trailer(&words, commit);
        let offset = self.layout.trailer_offset(slot);
        self.ring.whole().write_at(offset, &trailer).unwrap();
    }

    fn hint(&self, slot: usize, value: u8) {
        self.ring.whole().write_at(slot, &[value]).unwrap();
    }
}

fn good() -> BlockHeader {
    BlockHeader {
        payload_bytes: 10,
        frame_bytes: 10,
        room_bytes: 64,
        ..BlockHeader::default()
    }
}

#[test]
fn a_wrong_header_with_the_right_commit_word_is_the_peers_fault() {
    let hostile = hostile(ReceiverOptions::default());
    let wrong = BlockHeader {
        room_bytes: 1 << 20,
        ..good()
    };
    hostile.put(0, EPOCH, 1, &wrong);
    hostile.put(1, EPOCH, 1, &good());
    hostile.hint(1, 1);
    let error = hostile.receiver.poll().unwrap_err();
    assert!(matches!(
        error,
        PeerMisbehaved::Header {
            slot: 0,
            generation: 1,
            reason: HeaderError::Room { .. }
        }
    ));
    assert!(hostile.receiver.poll().unwrap().is_some(), "others go on");
}

#[test]
fn a_hint_without_a_block_and_a_block_without_a_hint() {
    let hostile = hostile(ReceiverOptions::default());
    hostile.hint(2, 1);
    hostile.hint(3, 77);
    assert!(hostile.receiver.poll().unwrap().is_none());
    let stats = hostile.receiver.stats();
    assert_eq!((stats.hints_early, stats.hints_wrong), (1, 1));
    hostile.put(2, EPOCH, 1, &good());
    assert_eq!(hostile.receiver.poll().unwrap().unwrap().slot(), 2);
    hostile.put(1, EPOCH, 1, &good());
    assert!(hostile.receiver.poll().unwrap().is_none());
    assert_eq!(hostile.receiver.drain().unwrap().unwrap().slot(), 1);
    assert!(hostile.receiver.drain().unwrap().is_none());
}

#[test]
fn blocks_of_another_session_slot_or_time_are_none() {
    let hostile = hostile(ReceiverOptions::default());
    hostile.put(0, EPOCH + 1, 1, &good());
    hostile.put(1, EPOCH, 2, &good());
    assert!(hostile.receiver.drain().unwrap().is_none());
    hostile.put(0, EPOCH, 1, &good());
    let offset = hostile.layout.trailer_offset(0);
    let mut trailer = [0; 64];
    hostile.ring.whole().read_at(offset, &mut trailer).unwrap();
    let elsewhere = hostile.layout.trailer_offset(3);
    hostile.ring.whole().write_at(elsewhere, &trailer).unwrap();
    assert_eq!(hostile.receiver.drain().unwrap().unwrap().slot(), 0);
    assert!(
        hostile.receiver.drain().unwrap().is_none(),
        "not twice, not in slot 3"
    );
}

/// I10: the device may place the bytes of one WRITE in any order.
#[test]
fn where_the_checksum_decides_a_torn_payload_is_not_taken() {
    let hostile = hostile(ReceiverOptions { crc_decides: true });
    let header = BlockHeader {
        flags: FLAG_CRC,
        crc32c: crc32c::crc32c(b"0123456789"),
        ..good()
    };
    hostile.put(0, EPOCH, 1, &header);
    hostile.hint(0, 1);
    assert!(hostile.receiver.poll().unwrap().is_none());
    let payload = hostile.layout.trailer_offset(0) - 64;
    hostile
        .ring
        .whole()
        .write_at(payload, b"0123456789")
        .unwrap();
    assert!(hostile.receiver.poll().unwrap().is_some());
    hostile.put(1, EPOCH, 1, &good());
    let error = hostile.receiver.drain().unwrap_err();
    assert!(matches!(error, PeerMisbehaved::NoCrc { slot: 1, .. }));
}

#[test]
fn a_changed_payload_does_not_match_its_checksum() {
    let hostile = hostile(ReceiverOptions::default());
    let header = BlockHeader {
        flags: FLAG_CRC,
        crc32c: 1,
        ..good()
    };
    hostile.put(0, EPOCH, 1, &header);
    let block = hostile.receiver.poll().unwrap().unwrap();
    assert!(block.check_crc().is_err());
    assert!(block.copy_out(&mut [0; 10]).is_err());
}

#[test]
fn the_ring_can_be_used_again_once_all_blocks_are_back() {
    let hostile = hostile(ReceiverOptions::default());
    hostile.put(0, EPOCH, 1, &good());
    let block = hostile.receiver.poll().unwrap().unwrap();
    let receiver = hostile.receiver.into_mr().err().expect("a block is out");
    drop(block);
    let mr = receiver.into_mr().ok().expect("all are back");
    let again = Receiver::new(mr, hostile.layout, 9, ReceiverOptions::default()).unwrap();
    assert!(again.drain().unwrap().is_none());
}

/// I3: a large ring is read in stripes, and every slot comes back.
#[test]
fn i3_stripes_find_all_slots_of_a_large_ring() {
    let options = SenderOptions {
        stripe_bytes: 100,
        ..SenderOptions::default()
    };
    let layout = RingLayout::new(1000, 128).unwrap();
    let Pair {
        sender, receiver, ..
    } = &pair_with(COPY, layout, options);
    let mut random = Random(7);
    let mut kept = Vec::new();
    // Every slot a few times, however little is wanted.
    for number in 0..scaled(20_000).max(3_000) {
        let block = reserve(sender, 0, 64);
        block.commit(&whole(number, 64), false).unwrap();
        kept.push(receive(receiver));
        // Tells of what was given back.
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

/// A source may have to wait for slots that the collector withholds, but not for a collector that
/// waits itself.
#[test]
fn a_collector_that_finds_nothing_withholds_no_slot() {
    for mode in modes() {
        let Pair {
            sender, receiver, ..
        } = &pair(mode, 64, 64);
        let mut blocks: Vec<_> = (0..64)
            .map(|number| {
                let block = sender.reserve(0, 64).unwrap();
                block.commit(&whole(number, 64), false).unwrap();
                receive(receiver)
            })
            .collect();
        blocks.truncate(61);
        assert!(receiver.poll().unwrap().is_none());
        refresh_until_free(sender, 3);
        // Now one by one, by whoever drops them.
        blocks.truncate(60);
        refresh_until_free(sender, 4);
        drop(blocks);
        refresh_until_free(sender, 64);
    }
}
