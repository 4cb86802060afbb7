//! A permit decides before a block is claimed, and costs other senders nothing.
use crate::common::*;
use catchment_transfer::*;
use catchment_verbs::Wake;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

/// Grants bytes while there are some, pauses one stream, refuses another.
#[derive(Debug, Default)]
struct Budget {
    bytes: AtomicI64,
    paused: AtomicBool,
    asked: AtomicU32,
}

const REFUSED: u32 = 3;
const PAUSABLE: u32 = 2;

impl Permit for Budget {
    fn decide(&self, request: PermitRequest) -> Decision {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if request.stream == REFUSED {
            return Decision::Refuse("the controller has no place for it");
        }
        if request.stream == PAUSABLE && self.paused.load(Ordering::SeqCst) {
            return Decision::Wait;
        }
        let bytes = i64::from(request.payload_bytes);
        if self.bytes.fetch_sub(bytes, Ordering::SeqCst) < bytes {
            self.bytes.fetch_add(bytes, Ordering::SeqCst);
            return Decision::Wait;
        }
        Decision::Go
    }

    fn unused(&self, request: PermitRequest) {
        self.bytes.fetch_add(i64::from(request.payload_bytes), Ordering::SeqCst);
    }
}

fn permitted(bytes: i64, blocks: u32) -> (Pair, Arc<Budget>) {
    let budget = Arc::new(Budget::default());
    budget.bytes.store(bytes, Ordering::SeqCst);
    let mut pair = pair(COPY, blocks, 64);
    pair.sender = pair.sender.with_permit(Arc::clone(&budget) as Arc<dyn Permit>);
    (pair, budget)
}

fn send(pair: &Pair, stream: u32, packet: u64) -> Result<(), ReserveError> {
    pair.sender.reserve(stream, 64)?.commit(&whole(packet, 64), false).unwrap();
    drop(receive(&pair.receiver));
    Ok(())
}

#[test]
fn a_permit_grants_its_budget_of_bytes() {
    let (pair, budget) = permitted(3 * 64, 16);
    for packet in 0..3 {
        send(&pair, 0, packet).unwrap();
    }
    assert_eq!(send(&pair, 0, 3), Err(ReserveError::Paused));
    assert!(pair.sender.is_paused(0) && !pair.sender.is_paused(1));
    budget.bytes.fetch_add(64, Ordering::SeqCst);
    pair.sender.wake();
    assert!(!pair.sender.is_paused(0));
    send(&pair, 0, 3).unwrap();
    assert_eq!(pair.sender.stats().blocks, 4);
    assert_eq!(budget.asked.load(Ordering::Relaxed), 5);
}

#[test]
fn a_paused_stream_waits_while_others_go_on() {
    let (pair, budget) = permitted(i64::MAX, 16);
    budget.paused.store(true, Ordering::SeqCst);
    assert_eq!(send(&pair, PAUSABLE, 0), Err(ReserveError::Paused));
    send(&pair, 1, 0).unwrap();
    budget.paused.store(false, Ordering::SeqCst);
    pair.sender.wake();
    send(&pair, PAUSABLE, 0).unwrap();
}

#[test]
fn a_refused_stream_gets_the_reason() {
    let (pair, _) = permitted(i64::MAX, 16);
    let error = send(&pair, REFUSED, 0).unwrap_err();
    let reason = "the controller has no place for it";
    assert_eq!(error, ReserveError::Refused(reason));
    assert!(error.to_string().contains(reason), "{error}");
    assert!(pair.sender.is_paused(REFUSED));
}

#[test]
fn a_grant_that_found_no_block_is_given_back() {
    let (pair, budget) = permitted(2 * 64, 1);
    let first = pair.sender.reserve(0, 64).unwrap();
    assert_eq!(pair.sender.reserve(0, 64).err(), Some(ReserveError::WouldBlock));
    assert_eq!(budget.bytes.load(Ordering::SeqCst), 64);
    first.commit(&whole(0, 64), false).unwrap();
    drop(receive(&pair.receiver));
    drop(reserve(&pair.sender, 0, 64));
}

/// The wake that comes between the answer and the sleep is not missed.
#[test]
fn a_wake_ends_the_sleep_of_a_paused_sender() {
    let (pair, budget) = permitted(0, 4);
    let Some(watch) = pair.sender.free_watch() else { return };
    for packet in 0..200 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                budget.bytes.fetch_add(64, Ordering::SeqCst);
                pair.sender.wake();
            });
            loop {
                watch.arm();
                match send(&pair, 0, packet) {
                    Ok(()) => break,
                    Err(ReserveError::Paused | ReserveError::WouldBlock) => {}
                    Err(error) => panic!("{error}"),
                }
                if pair.sender.is_paused(0) {
                    let woken = watch.wait(Duration::from_secs(60)).unwrap();
                    assert_eq!(woken, Wake::Rung, "packet {packet}");
                }
            }
        });
    }
}

#[test]
#[should_panic(expected = "nothing shares yet")]
fn a_permit_comes_before_the_sender_is_shared() {
    let pair = pair(COPY, 4, 64);
    let _other = pair.sender.clone();
    drop(pair.sender.with_permit(Arc::new(Budget::default())));
}
