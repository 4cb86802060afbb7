//! Every interleaving of how blocks and streams pass from a receive thread to the workers, under
//! the C11 memory model.
//!
//! The files are the shipped ones; only what they are built of is the model checker's. `unfenced` is
//! the same without fences: there it must fail, since a checker that finds nothing proves nothing.
#![allow(
    missing_docs,
    dead_code,
    unused_imports,
    clippy::duplicate_mod,
    clippy::unwrap_used,
    reason = "a test fails by panicking, uses a part of each file, and has them in two versions"
)]

#[macro_use]
mod models;
mod fenced;
mod stand_ins;
mod unfenced;

#[test]
fn a_block_is_seen_by_the_worker_or_its_stream_is_scheduled() {
    fenced::hand_over();
}

#[test]
fn a_growing_queue_keeps_the_order() {
    fenced::grow();
}

#[test]
fn a_sleeping_worker_is_woken() {
    fenced::wake(1);
}

#[test]
fn as_many_workers_are_woken_as_have_work() {
    fenced::wake(2);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_fences_a_worker_would_sleep_for_ever() {
    unfenced::wake(1);
}
