//! The paper's filling threads, sender and receiver in a model checker: the code of
//! `paper::protocol`, which the mechanism runs, over memory that sees every order.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test -p catchment-mechanisms --release --test loom`.
//!
//! The device keeps the order of the two WRITEs of a block, which the paper relies on and verbs do not
//! promise; `transfer/tests/loom` shows what happens without it. Every store of a status byte is
//! checked: whoever stores it may make that transition.
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]
use catchment_mechanisms::paper::protocol::{
    Choice, Filling, Sending, StatusBytes, Taking, completed, hold,
};
use catchment_transfer::protocol::SlotState::{self, Free, Full, Unavailable};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use loom::thread;

/// Who stores a status byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// A filling thread, in the first memory.
    Filler,
    /// The sending thread, in the first memory.
    SenderFirst,
    /// The sending thread, in the second memory: its copy of the third.
    SenderSecond,
    /// The sender's device, in the third memory.
    Device,
    /// A receiving thread, in the third memory.
    Receiver,
}

/// The transitions that the paper has, by who makes them (S1.6).
const LEGAL: [(Who, SlotState, SlotState); 7] = [
    (Who::Filler, Free, Full),
    (Who::SenderFirst, Full, Free),
    (Who::SenderSecond, Free, Full),
    (Who::Device, Free, Full),
    (Who::Receiver, Full, Free),
    (Who::Receiver, Full, Unavailable),
    (Who::Receiver, Unavailable, Free),
];

fn state(byte: u8) -> SlotState {
    [Free, Full, Unavailable].into_iter().find(|state| *state as u8 == byte).unwrap()
}

/// N status bytes, and blocks of one word.
struct Memory {
    status: Vec<AtomicU8>,
    payload: Vec<AtomicU64>,
}

impl Memory {
    fn new(blocks: u32) -> Self {
        Self {
            status: (0..blocks).map(|_| AtomicU8::new(Free as u8)).collect(),
            payload: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn payload(&self, block: u32) -> &AtomicU64 {
        &self.payload[block as usize]
    }

    fn of(&self, who: Who) -> Seen<'_> {
        Seen { memory: self, who }
    }
}

/// The status bytes as one of their users stores them.
struct Seen<'a> {
    memory: &'a Memory,
    who: Who,
}

impl StatusBytes for Seen<'_> {
    fn blocks(&self) -> u32 {
        self.memory.status.len() as u32
    }

    fn load(&self, block: u32) -> u8 {
        self.memory.status[block as usize].load(Ordering::Acquire)
    }

    fn store(&self, block: u32, to: SlotState) {
        let byte = &self.memory.status[block as usize];
        // Relaxed, so that the check orders nothing: who may store has seen the last state.
        let from = state(byte.load(Ordering::Relaxed));
        assert!(LEGAL.contains(&(self.who, from, to)), "illegal: {:?} {from:?} {to:?}", self.who);
        byte.store(to as u8, Ordering::Release);
    }
}

/// The sender's process: the send blocks with the first memory, and the second one.
struct Source {
    first: Memory,
    second: Memory,
    filling: Filling,
}

impl Source {
    fn new(blocks: u32) -> Self {
        let memory = || Memory::new(blocks);
        Self { first: memory(), second: memory(), filling: Filling::new(blocks) }
    }

    /// Fills a block with this number: its bytes, then its status.
    fn fill(&self, number: u64) -> bool {
        let first = self.first.of(Who::Filler);
        let Some(block) = self.filling.claim(&first) else { return false };
        self.first.payload(block).store(number, Ordering::Relaxed);
        self.filling.publish(&first, block);
        true
    }

    /// One step of the sending thread: what was sent is complete when it returns.
    fn step(&self, sending: &mut Sending, ring: &Memory) -> Choice {
        let (first, second) = (self.first.of(Who::SenderFirst), self.second.of(Who::SenderSecond));
        let choice = sending.choose(&first, &second);
        match choice {
            Choice::Block(block) => {
                sending.posted(block, first.blocks());
                // The device, which keeps the order of both.
                let bytes = self.first.payload(block).load(Ordering::Relaxed);
                ring.payload(block).store(bytes, Ordering::Relaxed);
                ring.of(Who::Device).store(block, Full);
                completed(&first, &second, block);
            }
            Choice::NoneFree => {
                for block in 0..first.blocks() {
                    // The READ: the device stores what it found.
                    let seen = ring.status[block as usize].load(Ordering::Acquire);
                    self.second.status[block as usize].store(seen, Ordering::Relaxed);
                }
            }
            Choice::NoData => {}
        }
        choice
    }
}

/// Takes blocks for so many polls, and notes each number once. Keeps the block `kept` for one poll.
fn receive(taking: &Taking, ring: &Memory, seen: &AtomicU64, polls: usize, kept: Option<u64>) {
    let third = ring.of(Who::Receiver);
    for _ in 0..polls {
        let Some(block) = taking.claim(&third) else {
            thread::yield_now();
            continue;
        };
        let number = ring.payload(block).load(Ordering::Relaxed);
        assert!((1..=3).contains(&number), "torn: {number}");
        let before = seen.fetch_add(1 << (8 * number), Ordering::Relaxed);
        assert_eq!(before >> (8 * number) & 0xff, 0, "block {number} came twice");
        if kept == Some(number) {
            hold(&third, block);
        }
        taking.release(&third, block);
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

const BLOCKS: u32 = 2;
const SENDS: u64 = 3;

/// Sends all blocks that are filled, as far as there is room, in so many steps.
fn send_filled(
    source: &Source,
    sending: &mut Sending,
    ring: &Memory,
    filled: &mut u64,
    steps: usize,
) {
    for _ in 0..steps {
        if *filled < SENDS && source.fill(*filled + 1) {
            *filled += 1;
        }
        source.step(sending, ring);
    }
}

/// Three sends, which are received on threads of their own beside the sender, one for each entry of
/// `kept`: how many polls each makes, and the block that it keeps for one. What the bounded loops left is
/// finished in turn.
fn each_block_once<const RECEIVERS: usize>(
    steps: usize,
    polls: usize,
    kept: [Option<u64>; RECEIVERS],
) {
    let ring = Arc::new(Memory::new(BLOCKS));
    let seen = Arc::new(AtomicU64::new(0));
    let taking = Arc::new(Taking::new(BLOCKS));
    let receivers = kept.map(|kept| {
        let (ring, seen, taking) = (ring.clone(), seen.clone(), taking.clone());
        thread::spawn(move || receive(&taking, &ring, &seen, polls, kept))
    });
    let (source, mut sending, mut filled) = (Source::new(BLOCKS), Sending::default(), 0);
    send_filled(&source, &mut sending, &ring, &mut filled, steps);
    for receiver in receivers {
        receiver.join().unwrap();
    }
    for _ in 0..4 {
        send_filled(&source, &mut sending, &ring, &mut filled, 2);
        receive(&taking, &ring, &seen, 2, None);
    }
    assert_eq!((filled, seen.load(Ordering::Relaxed)), (SENDS, 0x0101_0100), "lost");
}

/// S1.6: three sends through two blocks, any interleaving: no illegal transition, each block once.
#[test]
fn s1_6_the_papers_sender_and_receiver_lose_and_double_nothing() {
    check(3, || each_block_once(4, 3, [Some(2)]));
}

/// S1.31: two threads receive, without a lock.
#[test]
fn s1_31_two_threads_of_the_papers_receiver_take_every_block_once() {
    check(2, || each_block_once(3, 2, [None, None]));
}

/// S1.9, S1.10: two threads fill while one sends: the status of a block is set last, so what is sent is
/// filled, and no two threads fill the same block.
#[test]
fn s1_9_s1_10_a_block_is_sent_after_it_was_filled() {
    check(3, || {
        let (ring, source) = (Memory::new(BLOCKS), Arc::new(Source::new(BLOCKS)));
        let filled = Arc::new(AtomicUsize::new(0));
        let fillers = [1, 2].map(|number| {
            let (source, filled) = (source.clone(), filled.clone());
            thread::spawn(move || {
                filled.fetch_add(usize::from(source.fill(number)), Ordering::Relaxed);
            })
        });
        let (mut sending, mut sent) = (Sending::default(), 0u64);
        let mut send = |steps| {
            for _ in 0..steps {
                let Choice::Block(block) = source.step(&mut sending, &ring) else { continue };
                let number = ring.payload(block).load(Ordering::Relaxed);
                assert!(number > 0, "it was sent before it was filled");
                assert_eq!(sent >> (8 * number) & 0xff, 0, "block {number} was sent twice");
                sent += 1 << (8 * number);
            }
            sent
        };
        send(2);
        for filler in fillers {
            filler.join().unwrap();
        }
        assert_eq!(send(2), 0x01_0100, "both are sent");
        assert_eq!(filled.load(Ordering::Relaxed), 2);
    });
}
