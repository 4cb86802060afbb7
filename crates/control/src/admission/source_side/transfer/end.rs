//! A transfer of which all has begun.
use super::{Course, Flight, Transfer};

/// A window that is longer than what was begun in it, by one such part of that at least, ends sooner.
const SPARE_PARTS: u64 = 64;

impl Transfer {
    /// Returns whether all has begun, and will have left before a time.
    pub(in super::super) fn ends_before(&self, at_ns: u64) -> bool {
        let is_begun = self.course == Course::Live && self.left_bytes == 0 && !self.is_idle();
        is_begun && self.busy_ns < at_ns
    }

    /// Lets the window end when what has begun has left, if that is all and worth a message: the next one begins then.
    pub(super) fn end_window(&mut self, now_ns: u64, flight: Flight) -> bool {
        let is_heard = flight.is_heard(now_ns, self.busy_ns);
        let is_all = self.left_bytes == 0 && self.next.is_none() && is_heard;
        let Some(window) = self.window.as_mut().filter(|_| is_all) else { return false };
        let spare_ns = window.until_ns.saturating_sub(self.busy_ns);
        let used_ns = self.busy_ns.saturating_sub(window.from_ns);
        if spare_ns == 0 || spare_ns < used_ns / SPARE_PARTS {
            return false;
        }
        window.until_ns = self.busy_ns;
        (self.progress_ns, self.confirms) = (None, false);
        self.revise();
        true
    }
}
