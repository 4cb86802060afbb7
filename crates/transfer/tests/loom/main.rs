//! The slot protocol in a model checker, against a network adapter that orders as little as verbs
//! promise.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test -p catchment-transfer --release --test loom`.
//!
//! The adapter is two threads: the sender's own writes the bytes of a block, another one writes
//! status bytes. So a status byte may arrive before, between or after the bytes of its block. Models
//! of formats that cannot stand this must fail: a checker that finds nothing proves nothing.
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]

mod hints;
mod inline;
mod releases;
mod transitions;

use catchment_transfer::protocol::{
    ReceiverSlots, ReleaseStatus, Releases, SenderSlots, SlotMemory, Taken, Threads, commit_word,
    full_byte, held_byte, hold, publish, release, released_byte, seal,
};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use loom::thread;
use transitions::Watched;

const EPOCH: u64 = 42;

/// One slot: the header's first word is the packet number, the others are 0.
struct Slot {
    full: AtomicU8,
    free: AtomicU8,
    payload: AtomicU64,
    header: AtomicU64,
    commit: AtomicU64,
}

struct Ring(Vec<Slot>);

impl Ring {
    fn new(slots: usize) -> Ring {
        let slot = |_| Slot {
            full: AtomicU8::new(0),
            free: AtomicU8::new(0),
            payload: AtomicU64::new(0),
            header: AtomicU64::new(0),
            commit: AtomicU64::new(0),
        };
        Ring((0..slots).map(slot).collect())
    }

    fn slot(&self, slot: u32) -> &Slot {
        &self.0[slot as usize]
    }

    fn payload(&self, slot: u32) -> u64 {
        self.slot(slot).payload.load(Ordering::Relaxed)
    }

    /// A WRITE of a whole block: only its last eight bytes have an order.
    fn write_block(&self, slot: u32, generation: u64, number: u64) {
        self.slot(slot).payload.store(number, Ordering::Relaxed);
        write_words(self, slot, generation, number);
    }
}

fn write_words(memory: &impl SlotMemory, slot: u32, generation: u64, number: u64) {
    let header = words(number);
    memory.write_header(slot, &header);
    memory.store_commit(slot, commit_word(EPOCH, slot, generation, &header));
}

fn words(number: u64) -> [u64; 7] {
    [number, 0, 0, 0, 0, 0, 0]
}

impl SlotMemory for Ring {
    fn load_full(&self, slot: u32) -> u8 {
        self.slot(slot).full.load(Ordering::Acquire)
    }
    fn store_full(&self, slot: u32, value: u8) {
        self.slot(slot).full.store(value, Ordering::Release);
    }
    fn load_free(&self, slot: u32) -> u8 {
        self.slot(slot).free.load(Ordering::Acquire)
    }
    fn store_free(&self, slot: u32, value: u8) {
        self.slot(slot).free.store(value, Ordering::Release);
    }
    fn load_commit(&self, slot: u32) -> u64 {
        self.slot(slot).commit.load(Ordering::Acquire)
    }
    fn store_commit(&self, slot: u32, word: u64) {
        self.slot(slot).commit.store(word, Ordering::Release);
    }
    fn read_header(&self, slot: u32) -> [u64; 7] {
        words(self.slot(slot).header.load(Ordering::Relaxed))
    }
    fn write_header(&self, slot: u32, words: &[u64; 7]) {
        self.slot(slot).header.store(words[0], Ordering::Relaxed);
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// The model must fail: otherwise it would not see the fault that it is there to see.
fn must_fail(preemptions: usize, expected: &str, model: impl Fn() + Sync + Send + 'static) {
    let run = std::panic::AssertUnwindSafe(|| check(preemptions, model));
    let panic = std::panic::catch_unwind(run).expect_err("the model found no violation");
    let message = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_default();
    assert!(message.contains(expected), "it failed otherwise: {message}");
}

/// Sends a block through a free slot.
fn send(sender: &SenderSlots, ring: &Ring, slot: u32, number: u64) {
    let generation = sender.next_generation(slot);
    sender.launch(slot, generation);
    ring.write_block(slot, generation, number);
}

/// Waits until the slot's last block was released.
fn wait_free(sender: &SenderSlots, ring: &Ring, slot: u32) {
    while sender.outstanding(slot).is_some()
        && sender.note_free(Threads::Many, slot, ring.load_free(slot)) != ReleaseStatus::Released
    {
        thread::yield_now();
    }
}

/// Takes the next block of a slot, when it is there.
fn take(receiver: &ReceiverSlots, ring: &Ring, slot: u32) -> (u64, u64) {
    loop {
        match receiver.take(Threads::Many, ring, EPOCH, slot, |_| true) {
            Taken::Block { generation, header, .. } => return (generation, header[0]),
            Taken::NotYet | Taken::Raced => thread::yield_now(),
            Taken::Overwritten { .. } => panic!("written over a block that is not given back"),
        }
    }
}

/// Releases a block, and publishes it at once.
fn give_back(slots: &ReceiverSlots, ring: &Ring, slot: u32, generation: u64) {
    assert!(slots.end(slot, generation), "somebody else has it");
    release(ring, slot, generation);
}

/// Polls so many times: takes what is there, checks that it is whole and the next one.
fn poll(slots: &ReceiverSlots, ring: &Ring, taken: &mut u64, polls: usize) {
    for _ in 0..polls {
        let slot = (*taken % 2) as u32;
        if let Taken::Block { generation, header, .. } =
            slots.take(Threads::Many, ring, EPOCH, slot, |_| true)
        {
            *taken += 1;
            assert_eq!(header[0], *taken, "lost or duplicated");
            assert_eq!(ring.payload(slot), *taken, "torn");
            let ours = Watched::Receiver(ring);
            if *taken == 2 {
                hold(&ours, slot, generation);
            }
            assert!(slots.end(slot, generation), "somebody else has it");
            release(&ours, slot, generation);
        }
    }
}

/// Three blocks over two slots, status bytes in any order against their blocks: none is lost or comes
/// twice, and no transition is illegal ([`transitions`]). Loops are bounded,
/// and what is left is taken in the end, so that every interleaving is finite.
#[test]
fn s1_6_product_format_stands_any_order_of_data_and_status() {
    check(2, || {
        let ring = Arc::new(Ring::new(2));
        let posted = Arc::new(AtomicUsize::new(0));
        let status_engine = {
            let (ring, posted) = (Arc::clone(&ring), Arc::clone(&posted));
            thread::spawn(move || {
                let mut done = 0;
                for _ in 0..3 {
                    while done < posted.load(Ordering::Relaxed) {
                        ring.store_full(done as u32 % 2, full_byte(done as u64 / 2 + 1));
                        done += 1;
                    }
                }
            })
        };
        let receiver = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let (slots, mut taken) = (ReceiverSlots::new(2), 0);
                poll(&slots, &ring, &mut taken, 3);
                (slots, taken)
            })
        };
        let sender = SenderSlots::new(2);
        let mut sent = 0;
        for k in 0..3 {
            let slot = k % 2;
            if sender.outstanding(slot).is_some()
                && sender.note_free(Threads::Many, slot, ring.load_free(slot))
                    != ReleaseStatus::Released
            {
                break;
            }
            let generation = sender.next_generation(slot);
            sender.launch(slot, generation);
            sent += 1;
            posted.store(sent as usize, Ordering::Relaxed);
            ring.slot(slot).payload.store(sent, Ordering::Relaxed);
            write_words(&Watched::Sender(&ring), slot, generation, sent);
        }
        status_engine.join().unwrap();
        let (slots, mut taken) = receiver.join().unwrap();
        poll(&slots, &ring, &mut taken, 3);
        assert_eq!(taken, sent, "lost or duplicated");
    });
}

/// Two threads receive: each block is taken once, whoever gets it.
#[test]
fn s1_31_two_receivers_take_every_block_once() {
    check(2, || {
        let ring = Arc::new(Ring::new(2));
        let slots = Arc::new(ReceiverSlots::new(2));
        let seen = Arc::new(AtomicU64::new(0));
        let receive = |rounds: usize| {
            let (ring, slots, seen) = (Arc::clone(&ring), Arc::clone(&slots), Arc::clone(&seen));
            move || {
                for slot in (0..2).cycle().take(rounds) {
                    if let Taken::Block { generation, header, .. } =
                        slots.take(Threads::Many, &*ring, EPOCH, slot, |_| true)
                    {
                        assert_eq!(ring.payload(slot), header[0], "torn");
                        let before = seen.fetch_add(1 << (8 * header[0]), Ordering::Relaxed);
                        assert_eq!(before >> (8 * header[0]) & 0xff, 0, "duplicated");
                        give_back(&slots, &ring, slot, generation);
                    }
                }
            }
        };
        let other = thread::spawn(receive(3));
        let ours = thread::spawn(receive(3));
        let sender = SenderSlots::new(2);
        let mut sent = 0;
        for k in 0..3 {
            let slot = k % 2;
            let news = sender.note_free(Threads::Many, slot, ring.load_free(slot));
            if sender.outstanding(slot).is_some() || (k == 2 && news != ReleaseStatus::Released) {
                continue;
            }
            send(&sender, &ring, slot, u64::from(k) + 1);
            sent |= 1u64 << (8 * (k + 1));
        }
        other.join().unwrap();
        ours.join().unwrap();
        // What the bounded polls missed is still there, once.
        for slot in 0..2 {
            if let Taken::Block { header, .. } =
                slots.take(Threads::Many, &*ring, EPOCH, slot, |_| true)
            {
                seen.fetch_add(1 << (8 * header[0]), Ordering::Relaxed);
            }
        }
        assert_eq!(seen.load(Ordering::Relaxed), sent, "lost or duplicated");
    });
}

/// The paper's block: the status byte alone announces it.
fn paper_model(status_after_data: bool) {
    let ring = Arc::new(Ring::new(2));
    let posted = Arc::new(AtomicUsize::new(0));
    let status_engine = {
        let (ring, posted) = (Arc::clone(&ring), Arc::clone(&posted));
        thread::spawn(move || {
            for k in 0..2 {
                while posted.load(Ordering::Acquire) <= k {
                    thread::yield_now();
                }
                ring.store_full(k as u32, 1);
            }
        })
    };
    let receiver = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || {
            for slot in 0..2 {
                while ring.load_full(slot) != 1 {
                    thread::yield_now();
                }
                assert_eq!(ring.payload(slot), u64::from(slot) + 1, "torn");
            }
        })
    };
    for k in 0..2 {
        let write = || {
            let payload = &ring.slot(k).payload;
            payload.store(u64::from(k) + 1, Ordering::Relaxed);
        };
        if status_after_data {
            write();
        }
        posted.store(k as usize + 1, Ordering::Release);
        if !status_after_data {
            write();
        }
    }
    status_engine.join().unwrap();
    receiver.join().unwrap();
}

#[test]
fn paper_format_fails_when_the_status_overtakes_the_data() {
    must_fail(2, "torn", || paper_model(false));
}

#[test]
fn paper_format_holds_where_the_device_keeps_the_order() {
    check(2, || paper_model(true));
}

/// The receiver marks a free slot as unavailable, and assumes that no sender writes there now.
#[test]
fn s1_18_free_to_unavailable_is_a_race() {
    must_fail(3, "written while unavailable", || {
        let ring = Arc::new(Ring::new(1));
        let theirs = Arc::clone(&ring);
        let receiver = thread::spawn(move || {
            hold(&*theirs, 0, 0);
            assert_eq!(theirs.payload(0), 0, "written while unavailable");
        });
        let sender = SenderSlots::new(1);
        if ring.load_free(0) == 0 {
            send(&sender, &ring, 0, 7);
        }
        receiver.join().unwrap();
    });
}

/// The receiver keeps a block that it has: no sender writes there until it releases the slot.
#[test]
fn s1_18_full_to_unavailable_is_none() {
    check(3, || {
        let ring = Arc::new(Ring::new(1));
        let theirs = Arc::clone(&ring);
        let receiver = thread::spawn(move || {
            let slots = ReceiverSlots::new(1);
            let (generation, number) = take(&slots, &theirs, 0);
            hold(&*theirs, 0, generation);
            assert_eq!(theirs.payload(0), number, "written while unavailable");
            give_back(&slots, &theirs, 0, generation);
            let (_, number) = take(&slots, &theirs, 0);
            assert_eq!(theirs.payload(0), number, "torn");
        });
        let sender = SenderSlots::new(1);
        for number in [7, 8] {
            wait_free(&sender, &ring, 0);
            send(&sender, &ring, 0, number);
        }
        receiver.join().unwrap();
    });
}

/// Two READs of the status array are in flight; their results arrive at any time, in order. The
/// sender sends once more for every result that says "free".
fn two_reads_model(epochs: bool) {
    let ring = Arc::new(Ring::new(1));
    let sender = SenderSlots::new(1);
    sender.launch(0, 1);
    ring.write_block(0, 1, 1);
    ring.store_full(0, 1);
    let taken = Arc::new(AtomicU64::new(0));
    let receiver = {
        let (ring, taken) = (Arc::clone(&ring), Arc::clone(&taken));
        thread::spawn(move || {
            let slots = ReceiverSlots::new(1);
            for _ in 0..2 {
                if let Taken::Block { generation, header, .. } =
                    slots.take(Threads::Many, &*ring, EPOCH, 0, |_| true)
                {
                    taken.fetch_or(1 << header[0], Ordering::Relaxed);
                    give_back(&slots, &ring, 0, generation);
                }
            }
            slots
        })
    };
    let read = || {
        let ring = Arc::clone(&ring);
        thread::spawn(move || ring.load_free(0))
    };
    let (first, second) = (read(), read());
    let mut sent = 1u64 << 1;
    for (result, number) in [(first, 2u64), (second, 3)] {
        let byte = result.join().unwrap();
        // Without epochs the sender only sees the state bits, and that it is not what it wrote.
        let free = if epochs {
            sender.note_free(Threads::Many, 0, byte) == ReleaseStatus::Released
        } else {
            byte != 0 && byte & 3 == 0
        };
        if free {
            send(&sender, &ring, 0, number);
            sent |= 1 << number;
        }
    }
    let slots = receiver.join().unwrap();
    if let Taken::Block { header, .. } = slots.take(Threads::Many, &*ring, EPOCH, 0, |_| true) {
        taken.fetch_or(1 << header[0], Ordering::Relaxed);
    }
    assert_eq!(taken.load(Ordering::Relaxed), sent, "a block was overwritten");
}

#[test]
fn i2_stale_reads_are_harmless_with_epochs() {
    check(3, || two_reads_model(true));
}

#[test]
fn i2_stale_reads_overwrite_blocks_without_epochs() {
    must_fail(3, "a block was overwritten", || two_reads_model(false));
}
