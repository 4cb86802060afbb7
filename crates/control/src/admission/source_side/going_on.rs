//! Between two controllers: a source that sends at its safe rate registers with one that grants nothing yet, as windows of
//! the one before may be in use. It has to leave room for sources that have not found it; so one that has may go on as well.
use super::{Fallback, SourceSide};
use crate::admission::transfer::sent_bytes;

/// A part of a frame that is worth a WRITE.
const PART_BYTES: u64 = 4096;

/// How a source goes on that sends at its safe rate when it registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoOn {
    /// The lowest rate that a controller told it.
    pub rate_bps: u64,
    /// Until then its new controller grants nothing, in the source's clock.
    pub until_ns: u64,
}

impl GoOn {
    /// Returns the size of a chunk that begins then and leaves in time.
    fn chunk_bytes(&self, now_ns: u64, most_bytes: u64) -> u64 {
        let room_bytes = sent_bytes(self.until_ns.saturating_sub(now_ns), self.rate_bps);
        if room_bytes < most_bytes { room_bytes / PART_BYTES * PART_BYTES } else { most_bytes }
    }
}

impl SourceSide {
    /// Returns whether it goes on at its safe rate, although it has registered with a controller.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.going_on.is_some_and(|going_on| self.now_ns < going_on.until_ns)
    }

    /// Returns how it may go on that registers now and was told this: not faster than it goes, and not at all if it does not.
    pub(super) fn may_go_on(&self, told: Option<GoOn>) -> Option<GoOn> {
        let goes_bps = match (self.going_on, self.config.fallback) {
            _ if !self.goes_on() && !self.is_alone() => None,
            (Some(before), _) if self.goes_on() => Some(before.rate_bps),
            (_, Fallback::Safe { rate_bps }) => Some(rate_bps),
            (_, Fallback::Stop | Fallback::Free) => None,
        };
        told.zip(goes_bps).map(|(told, bps)| GoOn { rate_bps: told.rate_bps.min(bps), ..told })
    }

    /// Returns the rate at which a chunk may go that begins then without a grant, and its size: 0 if none may.
    pub(super) fn alone_chunk(&self, now_ns: u64) -> Option<(u64, u64)> {
        let chunk_bytes = self.config.chunk_bytes;
        if self.is_alone() {
            return Some((self.config.fallback.rate_bps()?, chunk_bytes));
        }
        let going_on = self.going_on.filter(|going_on| now_ns < going_on.until_ns)?;
        Some((going_on.rate_bps, going_on.chunk_bytes(now_ns, chunk_bytes)))
    }
}
