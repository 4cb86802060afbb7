//! The paper's mechanism over shared memory.
mod order;
mod takeover;

use crate::common::*;
use catchment_mechanisms::paper::*;
use catchment_mechanisms::{EndError, TakenBlock};
use catchment_probe::load::{did, scaled};
use catchment_transfer::order::{InOrder, SerialCounter};
use catchment_verbs::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

struct Paper {
    pool: Arc<PaperPool>,
    sender: PaperSender,
    receiver: PaperReceiver,
    ring: Arc<dyn Mr>,
    collector: Side,
}

fn pool_of(source: &Side, layout: PaperLayout) -> Arc<PaperPool> {
    pool_and_control(source, layout).0
}

/// A pool, and the memory of its two arrays of status bytes.
fn pool_and_control(source: &Side, layout: PaperLayout) -> (Arc<PaperPool>, Arc<dyn Mr>) {
    let local = |bytes| source.pd.alloc_mr(bytes, Access::LOCAL_WRITE).unwrap();
    let control = local(PaperPool::control_bytes(&layout));
    let blocks = local(layout.blocks_bytes());
    (PaperPool::new(blocks, Arc::clone(&control), layout).unwrap(), control)
}

fn at(mr: &Arc<dyn Mr>) -> RemoteAddr {
    RemoteAddr { addr: mr.addr(), rkey: mr.rkey() }
}

/// S1.20: send queue 2, completion queue 1, receive queue 0; the receiver has none at all.
fn paper(blocks: u32, payload_bytes: u32) -> Paper {
    paper_with(2, blocks, payload_bytes)
}

fn paper_with(max_send_wr: u32, blocks: u32, payload_bytes: u32) -> Paper {
    let layout = PaperLayout::new(blocks, payload_bytes).unwrap();
    let (mut source, mut collector) = (side(max_send_wr, 0, 1), side(1, 0, 1));
    connect(&mut source, &mut collector);
    let ring = ring_mr(&collector.pd, layout.total_bytes());
    let pool = pool_of(&source, layout);
    Paper {
        receiver: PaperReceiver::new(Arc::clone(&ring), layout, true).unwrap(),
        sender: PaperSender::new(source.qp, source.cq, Arc::clone(&pool), at(&ring)),
        pool,
        ring,
        collector,
    }
}

fn fill(pool: &PaperPool, device: u8, packet: u16, payload: &[u8]) {
    let header = PaperHeader { device, packet };
    while pool.fill(header, payload).is_err() {
        std::thread::yield_now();
    }
}

/// Sends until a block has gone.
fn send_one(sender: &mut PaperSender) {
    while !matches!(sender.step().unwrap(), PaperStep::Sent(_)) {
        std::thread::yield_now();
    }
}

#[test]
fn s1_5_three_status_memories() {
    let Paper { sender, receiver, ring, .. } = &paper(5, 100);
    let [first, second] = sender.memory_map();
    let third = receiver.memory_map();
    assert_eq!([first.number, second.number, third.number], [1, 2, 3]);
    assert_eq!([first.bytes, second.bytes, third.bytes], [5, 5, 5]);
    // The sender's two do not overlap, and only its own device writes there: READs into the second.
    assert!(second.addr >= first.addr + 5);
    for own in [first, second] {
        assert!(!own.access.is_remote() && own.access.contains(Access::LOCAL_WRITE));
    }
    // The receiver's is in the ring, where the sender writes and reads.
    let ring = ring.addr()..ring.addr() + ring.bytes() as u64;
    assert!(ring.contains(&third.addr) && ring.contains(&(third.addr + 4)));
    assert!(!ring.contains(&first.addr) && !ring.contains(&second.addr));
    assert!(third.access.contains(Access::REMOTE_WRITE | Access::REMOTE_READ));
}

#[test]
fn s1_7_the_bytes_of_a_block_in_the_ring() {
    let mut paper = paper(3, 5);
    fill(&paper.pool, 9, 0x0102, b"hello");
    send_one(&mut paper.sender);
    let ring = paper.ring.region().whole().to_vec();
    assert_eq!(&ring[..4], [1, 0, 0, 0]);
    assert_eq!(&ring[4096..4104], b"\x09\x01\x02hello");
    let block = paper.receiver.poll().unwrap();
    assert_eq!(block.payload().to_vec(), b"hello");
    drop(block);
    assert_eq!(paper.ring.region().whole().to_vec()[0], 0);
}

/// RmWrite: block j of the sender lies at block j of the receiver, and status j is 1.
#[test]
fn s1_2_block_j_goes_to_block_j_and_its_status_is_1() {
    let layout = PaperLayout::new(5, 64).unwrap();
    let mut paper = paper(5, 64);
    for j in 0..5 {
        assert_eq!(
            paper.pool.fill(PaperHeader { device: 0, packet: 7 }, &[j + 1; 64]),
            Ok(j.into())
        );
        send_one(&mut paper.sender);
        let ring = paper.ring.region().whole().to_vec();
        let statuses = [0, 1, 2, 3, 4].map(|other| u8::from(other <= j));
        assert_eq!(ring[layout.status_offset()..][..5], statuses);
        let payload = layout.block_offset(j.into()) + PaperLayout::HEADER_BYTES;
        assert_eq!(ring[payload..][..64], [j + 1; 64]);
    }
}

/// The queues are as small as the paper says, one READ comes for every N blocks, and the
/// receiver's queues see nothing.
#[test]
fn s1_14_s1_15_s1_20_queues_reads_and_completions_are_exact() {
    let blocks = scaled(30_000);
    let mut paper = paper(3, 64);
    for number in 0..blocks {
        fill(&paper.pool, 0, number as u16, &[number as u8; 64]);
        send_one(&mut paper.sender);
        let block = paper.receiver.poll().expect("a block");
        assert_eq!(block.header().packet, number as u16);
        assert_eq!(block.payload().to_vec(), [number as u8; 64]);
    }
    let stats = paper.sender.stats();
    assert_eq!(stats.blocks, blocks);
    assert_eq!(stats.status_reads, blocks.div_ceil(3) - 1, "one for every three blocks");
    assert_eq!(stats.completions, stats.blocks + stats.status_reads);
    let mut none = [Completion::EMPTY];
    assert_eq!(paper.collector.cq.poll(&mut none).unwrap(), 0);
    assert_eq!(paper.collector.qp.state(), QpState::Rts);
}

#[test]
fn s1_20_one_request_less_is_too_few() {
    let Paper { pool, mut sender, .. } = paper_with(1, 3, 64);
    fill(&pool, 0, 0, &[0; 64]);
    let error = sender.step().unwrap_err();
    let EndError::Post(error) = error else { panic!("{error}") };
    assert_eq!(error.index, 1);
    assert_eq!(error.reason, PostFailure::QueueFull(1));
}

/// Each filling thread looks for a free send block, fills it and sets its status last, beside eleven
/// others (S1.9): what arrives is whole.
#[test]
fn s1_10_s1_22_twelve_fillers_and_four_receivers_on_one_queue_pair() {
    let packets = scaled(10_000) as u32;
    let Paper { pool, sender, receiver, .. } = &mut paper(64, 200);
    let done = AtomicBool::new(false);
    let got = AtomicU32::new(0);
    let mut seen: Vec<(u8, u16, usize)> = std::thread::scope(|scope| {
        for device in 0..12 {
            let pool = &*pool;
            scope.spawn(move || {
                for packet in 0..packets {
                    fill(pool, device, packet as u16, &[device; 200]);
                }
            });
        }
        let (done, got, receiver) = (&done, &got, &*receiver);
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    while !done.load(Ordering::Acquire) {
                        let Some(block) = receiver.poll() else {
                            std::thread::yield_now();
                            continue;
                        };
                        let PaperHeader { device, packet } = block.header();
                        assert_eq!(block.payload().to_vec(), [device; 200]);
                        let place = got.fetch_add(1, Ordering::Relaxed) as usize;
                        seen.push((device, packet, place));
                    }
                    seen
                })
            })
            .collect();
        for _ in 0..12 * packets {
            send_one(sender);
        }
        while got.load(Ordering::Relaxed) < 12 * packets {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Release);
        workers.into_iter().flat_map(|w| w.join().unwrap()).collect()
    });
    seen.sort_unstable_by_key(|(_, _, place)| *place);
    for device in 0..12 {
        let (mut order, mut counter) = (InOrder::new(0), SerialCounter::default());
        let mut delivered = 0;
        for (_, packet, _) in seen.iter().filter(|(d, _, _)| *d == device) {
            let header = catchment_transfer::BlockHeader {
                packet_number: counter.widen(*packet),
                payload_bytes: 1,
                frame_bytes: 1,
                ..Default::default()
            };
            order.push(header, header.packet_number, |number| {
                assert_eq!(number, delivered);
                delivered += 1;
            });
        }
        assert_eq!(delivered, u64::from(packets), "device {device}");
    }
    did("S1.10", 12 * u64::from(packets), "packets of 12 fillers by the paper's mechanism");
}

/// Block j goes to remote block j, so the packet in the kept block's place waits; all others go.
#[test]
fn s1_17_s1_18_a_kept_block_is_skipped_and_comes_back() {
    let mut paper = paper(3, 64);
    let (mut kept, mut seen, mut sent_while_kept) = (None, Vec::new(), 0);
    let mut packet = 0;
    while seen.len() < 500 {
        packet += u16::from(paper.pool.fill(PaperHeader { device: 0, packet }, &[1; 64]).is_ok());
        paper.sender.step().unwrap();
        let Some(mut block) = paper.receiver.poll() else { continue };
        seen.push(block.header().packet);
        if block.header().packet == 2 {
            block.hold();
            kept = Some(block);
        } else if let Some(kept_block) = &kept {
            assert_ne!(block.block(), kept_block.block());
            sent_while_kept += 1;
            if sent_while_kept == 300 {
                kept = None;
            }
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..500).collect::<Vec<u16>>(), "nothing lost, nothing twice");
}

#[test]
fn s1_19_a_new_sender_takes_over_and_nothing_is_lost() {
    let mut first = paper(3, 64);
    fill(&first.pool, 1, 100, &[1; 64]);
    fill(&first.pool, 1, 101, &[1; 64]);
    send_one(&mut first.sender);
    send_one(&mut first.sender);
    drop(first.sender);
    let layout = PaperLayout::new(3, 64).unwrap();
    let (mut source, mut end) = (side(2, 0, 1), first.collector.second());
    connect(&mut source, &mut end);
    let pool = pool_of(&source, layout);
    let mut second = PaperSender::attach(source.qp, source.cq, Arc::clone(&pool), at(&first.ring));
    // Only the third block's place is free: the first two still hold what the old sender left.
    for packet in [102, 103, 104] {
        fill(&pool, 1, packet, &[2; 64]);
    }
    send_one(&mut second);
    assert_eq!(second.stats().status_reads, 1);
    let mut packets = Vec::new();
    while packets.len() < 5 {
        packets.extend(first.receiver.poll().map(|block| block.header().packet));
        second.step().unwrap();
    }
    packets.sort_unstable();
    assert_eq!(packets, [100, 101, 102, 103, 104]);
}
