//! A transfer that goes at the rate of its device: the controller is not told of it.
use super::{Chunk, Course, Transfer};

impl Transfer {
    /// Goes at the rate of its device from now on, if the controller does not know it and all of it is there.
    pub(in super::super) fn ride(&mut self) -> bool {
        let is_new = self.revision == 1 && self.ready && self.chunks.is_empty();
        self.riding = self.course == Course::Live && self.ahead_bytes == 0 && is_new;
        self.ready &= !self.riding;
        self.riding
    }

    /// Asks the controller from now on.
    pub(in super::super) const fn dismount(&mut self) {
        self.riding = false;
        self.ready = true;
    }

    pub(in super::super) const fn is_riding(&self) -> bool {
        self.riding
    }

    /// Returns whether the next part of what rides may begin.
    pub(in super::super) fn may_ride(&self) -> bool {
        self.riding && self.can_begin()
    }

    pub(in super::super) const fn left_to_begin(&self) -> u64 {
        self.left_bytes
    }

    /// Begins a chunk at the rate of its device, which should have left at a time.
    pub(in super::super) fn begin_riding(
        &mut self,
        begun_ns: u64,
        (bytes, rate_bps, leaves_ns): (u64, u64, u64),
    ) -> Chunk {
        let revision = self.seen;
        self.push(Chunk { bytes, rate_bps, begun_ns, leaves_ns, revision, alone: true })
    }

    /// Returns whether it went at the rate of its device, and all has left.
    pub(in super::super) fn has_ridden(&self) -> bool {
        self.riding && self.left_bytes == 0 && self.is_idle()
    }
}
