//! Last windows of transfers whose end is another one, as their sources have said: all has begun and will have left sooner, or
//! they are behind.
use super::controller::Controller;
use super::transfer::{Ends, State};
use super::{TransferId, window};

/// What ends sooner by less than this part of a guard is left as it is.
const GUARD_PARTS: u64 = 8;

impl Controller {
    /// Lets the last window of a transfer end when what its source has begun has left: the next one begins then, and not
    /// when a source would have ended that began as late as it may.
    pub(super) fn all_begun(&mut self, id: TransferId, until_ns: u64, revision: u32) {
        let Some(at) = self.transfers.find(id) else { return };
        let least_ns = self.guard_ns(id.device) / GUARD_PARTS;
        let (until_ns, ahead_ns) = (until_ns.max(self.now_ns), self.grants_ahead_ns(id.device));
        let transfer = &mut self.transfers[at];
        let is_last = transfer.state == State::Granted && transfer.flags.ends != Ends::Lease;
        let is_whole = transfer.course.left_at(until_ns) <= window::REST_BYTES;
        let is_sooner = until_ns.saturating_add(least_ns) < transfer.until_ns;
        if !is_last || !is_whole || !is_sooner || transfer.revision != revision {
            return;
        }
        (transfer.until_ns, transfer.flags.ends) = (until_ns, Ends::Begun);
        self.set_due(at, until_ns.saturating_sub(ahead_ns).max(self.now_ns));
    }

    /// Prolongs the last window of a transfer whose source began late. Otherwise the source would stop at its end and ask, behind a
    /// transfer that is granted by then.
    pub(super) fn behind(&mut self, id: TransferId, revision: u32) {
        let Some(at) = self.transfers.find(id) else { return };
        let transfer = &self.transfers[at];
        let is_last = transfer.state == State::Granted && transfer.flags.ends == Ends::Last;
        // The end of a quantum is none of its transfer.
        let is_whole = self.config.rules.quantum_bytes.is_none();
        if is_last && is_whole && transfer.revision == revision && !self.gives_up {
            self.prolong_window(at);
        }
    }
}
