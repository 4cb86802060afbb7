//! A transfer that becomes larger or smaller than what was asked for.
use super::{Course, Transfer};

impl Transfer {
    /// More of it is there; with `last` that is all.
    pub(in super::super) fn add(&mut self, bytes: u64, last: bool) {
        if self.course != Course::Live {
            return;
        }
        self.left_bytes += bytes.saturating_sub(self.ahead_bytes);
        self.ahead_bytes = self.ahead_bytes.saturating_sub(bytes);
        if last {
            self.left_bytes -= std::mem::take(&mut self.ahead_bytes);
        }
    }

    /// Returns whether the controller is only asked for it, and it can become larger.
    pub(in super::super) fn can_grow(&self) -> bool {
        let is_new = self.course == Course::Live && self.seen == 0 && self.current().is_none();
        let is_plain = self.ahead_bytes == 0 && !self.riding && !self.finish && !self.missed;
        is_new && is_plain && self.is_idle()
    }

    /// Becomes larger, which the controller is to know.
    pub(in super::super) fn join(&mut self, bytes: u64) {
        if self.course == Course::Live {
            self.left_bytes += bytes;
            self.revise();
        }
    }
}
