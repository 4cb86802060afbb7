//! Blocks that wait for leave to be posted: a hook for a controller that grants windows.
//!
//! A [`PostingGate`] is given to a copying sender when it is made
//! ([`Sender::with_gate`](crate::Sender::with_gate)). It gets every sealed block in place of the queue pair, and
//! its owner posts them, in parts, when their times come ([`Sender::post_part`](crate::Sender::post_part)). A
//! part never is the whole of a block that is taken: the commit word goes with the last one. A sender without
//! a gate checks an `Option` that is `None`, and nothing else.
use std::fmt;

/// A sealed block that is not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldBlock {
    /// Its slot, which it keeps until the collector has released it.
    pub slot: u32,
    /// Its stream.
    pub stream: u32,
    /// Bytes of its WRITEs, trailer included.
    pub bytes: u32,
    /// Number of its frame in the stream; a frame may have several blocks.
    pub packet_number: u64,
    /// Bytes of the whole frame.
    pub frame_bytes: u64,
    /// It is the last block of its frame.
    pub is_last: bool,
    /// When its frame was captured, nanoseconds of CLOCK_REALTIME.
    pub capture_time_ns: u64,
}

/// Takes sealed blocks.
pub trait PostingGate: fmt::Debug + Send + Sync {
    /// Takes a block, on the thread that committed it: no lock, no allocation, no system call but to wake a
    /// sleeper. There are never more than the ring has slots.
    fn hold(&self, block: HeldBlock);

    /// Says that requests have completed ([`Sender::requests_done`](crate::Sender::requests_done)), on the thread
    /// that drives the queue pair.
    fn completed(&self);
}
