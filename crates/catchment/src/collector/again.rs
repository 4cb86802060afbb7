//! How often the frames of a device are asked for again.
//!
//! A frame that is damaged in the ring is asked for again by ending the session: its source keeps
//! what was not released, and the next session begins with that frame. So each request costs the
//! source a handshake. Somebody who damages frames could ask for that for ever: a frame is asked for a few
//! times only, and a device has as many requests as frames, and some more.
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Times that one frame is asked for again.
const TIMES: u32 = 8;
/// Requests that a device may have beyond one for each frame.
const MORE: u64 = 64;

/// No packet number.
const NONE: u64 = u64::MAX;

/// What a device has asked for.
pub(super) struct Again {
    /// The frame that was asked for last, and how often.
    last: AtomicU64,
    times: AtomicU32,
    /// Requests so far, and the frame that was asked for first.
    requests: AtomicU64,
    first: AtomicU64,
    /// Frames that were here and are left to the source since the last request, and the latest of them.
    left: AtomicU64,
    latest: AtomicU64,
}

impl Again {
    pub(super) fn new() -> Self {
        Self {
            last: AtomicU64::new(NONE),
            times: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            first: AtomicU64::new(NONE),
            left: AtomicU64::new(0),
            latest: AtomicU64::new(NONE),
        }
    }

    /// Counts a frame of which a block is left to the source, in order.
    pub(super) fn leave(&self, packet: u64) {
        // One thread has the stream.
        if self.latest.swap(packet, Ordering::Relaxed) != packet {
            self.left.store(self.left() + 1, Ordering::Relaxed);
        }
    }

    /// Begins a session, which brings what was left to the source.
    pub(super) fn begin(&self) {
        self.left.store(0, Ordering::Relaxed);
        self.latest.store(NONE, Ordering::Relaxed);
    }

    /// Returns how many frames were here, and were left to a source that has not come back.
    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Returns whether this frame was asked for last.
    pub(super) fn has_asked_for(&self, packet: u64) -> bool {
        self.last.load(Ordering::Relaxed) == packet
    }

    /// Returns whether the frame of this packet number may be asked for again, and counts that it is.
    pub(super) fn ask(&self, packet: u64) -> bool {
        // One thread at a time asks for a device; if two did, one request would count for both.
        let is_last = self.last.swap(packet, Ordering::Relaxed) == packet;
        let times = if is_last { self.times.load(Ordering::Relaxed) } else { 0 };
        let requests = self.requests.load(Ordering::Relaxed);
        let first = match self.first.load(Ordering::Relaxed) {
            NONE => packet,
            first => first,
        };
        self.first.store(first, Ordering::Relaxed);
        let passed = packet.saturating_sub(first);
        let may = times < TIMES && requests < MORE.saturating_add(passed);
        self.times.store(times + u32::from(may), Ordering::Relaxed);
        self.requests.store(requests + u64::from(may), Ordering::Relaxed);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_asked_for_a_few_times() {
        let again = Again::new();
        assert_eq!((0..20).filter(|_| again.ask(5)).count(), 8);
        assert!(again.has_asked_for(5) && !again.has_asked_for(6));
        assert!(again.ask(6));
    }

    #[test]
    fn a_frame_of_several_blocks_is_left_once_and_the_next_session_brings_all() {
        let again = Again::new();
        [5, 5, 6, 8, 8].iter().for_each(|packet| again.leave(*packet));
        assert_eq!(again.left(), 3);
        again.begin();
        assert_eq!(again.left(), 0);
        again.leave(8);
        assert_eq!(again.left(), 1);
    }

    #[test]
    fn a_device_whose_frames_are_damaged_every_time_has_few_requests() {
        let again = Again::new();
        let packets = (100..1100).flat_map(|packet| [packet; 8]);
        assert_eq!(packets.filter(|packet| again.ask(*packet)).count(), 64 + 999);
        // Later ones may be asked for, when enough have passed without a request.
        assert!(again.ask(1200));
    }
}
