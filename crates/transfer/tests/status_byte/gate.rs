//! A gate holds blocks until its owner posts them, in parts.
use crate::common::*;
use catchment_transfer::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const BYTES: u32 = 64 << 10;

#[derive(Debug, Default)]
struct Held {
    blocks: Mutex<Vec<HeldBlock>>,
    completions: AtomicU64,
}

impl PostingGate for Held {
    fn hold(&self, block: HeldBlock) {
        self.blocks.lock().unwrap().push(block);
    }

    fn completed(&self) {
        self.completions.fetch_add(1, Ordering::SeqCst);
    }
}

fn gated() -> (Pair, Arc<Held>) {
    let held = Arc::new(Held::default());
    let mut pair = pair(COPY, 8, BYTES);
    pair.sender = pair.sender.with_gate(Arc::clone(&held) as Arc<dyn PostingGate>);
    (pair, held)
}

/// Waits until so many requests are done.
fn arrived(sender: &Sender, count: u64) {
    until("it arrives", || {
        sender.progress().unwrap();
        (sender.requests_done() >= count).then_some(())
    });
}

#[test]
fn a_block_is_there_when_its_last_part_is_and_a_later_one_may_go_first() {
    let (pair, held) = gated();
    let Pair { sender, receiver, .. } = &pair;
    for (number, byte) in [(0, 7), (1, 8)] {
        send(sender, 3, number, &vec![byte; BYTES as usize], false);
    }
    let blocks = held.blocks.lock().unwrap().clone();
    assert_eq!(blocks.len(), 2, "both are held");
    assert!(blocks.iter().all(|block| block.stream == 3 && block.bytes > BYTES));
    let first = sender.post_part(blocks[0].slot, 0, BYTES / 2).unwrap().unwrap();
    arrived(sender, first);
    assert!(receiver.poll().unwrap().is_none(), "half of a block");
    let whole = sender.post_part(blocks[1].slot, 0, blocks[1].bytes).unwrap().unwrap();
    let block = receive(receiver);
    assert_eq!(block.header().packet_number, 1, "it was committed later");
    drop(block);
    let rest = blocks[0].bytes - BYTES / 2;
    let last = sender.post_part(blocks[0].slot, BYTES / 2, rest).unwrap().unwrap();
    assert!(first < whole && whole < last);
    let block = receive(receiver);
    assert_eq!(block.header().packet_number, 0);
    let mut bytes = vec![0; BYTES as usize];
    block.payload().read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7), "each byte once, at its place");
    arrived(sender, last);
    assert!(held.completions.load(Ordering::SeqCst) > 0);
}

#[test]
fn parts_that_the_queue_cannot_take_are_refused_until_requests_complete() {
    let (pair, held) = gated();
    let Pair { sender, receiver, .. } = &pair;
    for number in 0..8 {
        send(sender, 0, number, &[1; BYTES as usize], false);
    }
    let blocks = held.blocks.lock().unwrap().clone();
    let mut last = 0;
    for block in &blocks {
        for at in (0..block.bytes).step_by(1024) {
            let bytes = 1024.min(block.bytes - at);
            last = until("there is room", || {
                let posted = sender.post_part(block.slot, at, bytes).unwrap();
                sender.progress().unwrap();
                posted
            });
        }
    }
    arrived(sender, last);
    let numbers: Vec<u64> = (0..8).map(|_| receive(receiver).header().packet_number).collect();
    assert_eq!(numbers.len(), 8);
}

#[test]
fn a_held_block_may_be_taken_back_and_the_next_one_says_that_its_number_is_passed_over() {
    let (pair, held) = gated();
    let Pair { sender, receiver, .. } = &pair;
    for round in 0..20_u64 {
        let numbers = round * 8..round * 8 + 8;
        // All slots are there again, also those of blocks that never left.
        for number in numbers.clone() {
            until("there is a slot", || sender.reserve(3, BYTES).ok().map(drop));
            send(sender, 3, number, &vec![number as u8; BYTES as usize], false);
        }
        assert!(sender.reserve(3, BYTES).is_err(), "the ring is full");
        let blocks = std::mem::take(&mut *held.blocks.lock().unwrap());
        let first = numbers.start;
        assert!(sender.pass_over(&blocks[4], &(first..first + 4)), "and then it goes itself");
        for at in [0, 1, 2, 3] {
            let number = first + at as u64;
            assert_eq!(sender.take_back(&blocks[at]), Some(number..number + 1));
        }
        assert_eq!(sender.take_back(&blocks[4]), Some(first..first + 5));
        assert_eq!(sender.take_back(&blocks[0]), None, "it is gone");
        assert!(!sender.pass_over(&blocks[1], &(first..first + 1)), "so is this one");
        assert_eq!((sender.outstanding(3).unwrap(), sender.unposted()), (3, 3));
        assert!(!sender.pass_over(&blocks[5], &(first..first + 4)), "not directly before it");
        assert!(!sender.pass_over(&blocks[5], &(first..first + 7)), "not all before it");
        assert!(sender.pass_over(&blocks[5], &(first + 1..first + 5)));
        assert!(sender.pass_over(&blocks[5], &(first..first + 5)), "and one more");
        assert_eq!(sender.unreleased().len(), 3, "what is sent again if the link breaks");
        let mut last = 0;
        for block in &blocks[5..] {
            last = sender.post_part(block.slot, 0, block.bytes).unwrap().unwrap();
        }
        arrived(sender, last);
        assert_eq!(sender.unposted(), 0);
        let mut seen: Vec<_> = (0..3)
            .map(|_| {
                let block = receive(receiver);
                let mut byte = [0];
                block.payload().read_at(9, &mut byte).unwrap();
                let header = block.header();
                assert!(block.check_crc().is_ok());
                (header.packet_number, header.skipped, byte[0])
            })
            .collect();
        seen.sort_unstable();
        let expected = [(5, 5), (6, 0), (7, 0)]
            .map(|(at, skipped)| (numbers.start + at, skipped, (numbers.start + at) as u8));
        assert_eq!(seen, expected);
        until("all is released", || {
            let _ = sender.refresh();
            (sender.outstanding(3).unwrap() == 0).then_some(())
        });
    }
}
