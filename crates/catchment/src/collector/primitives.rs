//! What the concurrent parts of the collector are built of; the model checker replaces it.
pub(super) use catchment_verbs::wait::EventCount;
pub(super) use crossbeam_queue::{ArrayQueue, SegQueue};
pub(super) use crossbeam_utils::atomic::AtomicCell;
pub(super) use std::sync::OnceLock;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Polls of an idle worker before it sleeps: about a microsecond, in which the next block of a burst
/// comes. On two cores 200 of them took a fifth more processor time of the demo's collector, in
/// yields to and fro with the receive thread, and delivered no more.
const SEARCH_POLLS: u32 = 70;
/// Polls between which a worker lets no other thread run. The producer may need the processor.
const SPINS: u32 = 64;

/// Returns how often an idle worker polls before it sleeps.
pub(super) fn search_polls() -> u32 {
    SEARCH_POLLS
}

/// Passes the time between two polls, of which this is the `poll`-th.
pub(super) fn relax(poll: u32) {
    if poll < SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
