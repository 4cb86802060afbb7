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
