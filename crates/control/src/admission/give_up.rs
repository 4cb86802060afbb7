//! A controller that gives up leading: what it granted is over soon, and it knows when.
use super::Pausing;
use super::controller::Controller;
use super::transfer::{Moment, State};

/// Windows end this long after a controller has given up, at the latest: about what another one takes to begin. What
/// has begun of a chunk goes on.
const CUT_NS: u64 = 20_000_000;

impl Controller {
    /// Grants nothing from now on, and takes back what nobody uses yet.
    pub(super) fn give_up(&mut self) {
        if std::mem::replace(&mut self.gives_up, true)
            || self.config.rules.pausing == Pausing::Never
        {
            return;
        }
        let (now_ns, end_ns) = (self.now_ns, self.now_ns.saturating_add(CUT_NS));
        let mut picked = Vec::new();
        for part in 0..self.parts.len() {
            self.pick(part, &mut picked, |one| one.course.rate_at(now_ns) == 0);
            picked.iter().for_each(|(_, at)| self.displace(*at));
            self.pick(part, &mut picked, |one| one.until_ns > end_ns);
            picked.iter().for_each(|(_, at)| self.cut_window(*at, end_ns));
        }
    }

    /// Ends a window that runs earlier. Until its source obeys it may use the one that it had.
    fn cut_window(&mut self, at: u32, end_ns: u64) {
        let transfer = &mut self.transfers[at];
        transfer.note_earlier(self.now_ns);
        transfer.lease_end = Moment::at(end_ns);
        let from_ns = transfer.course.begins_ns();
        self.set_window(at, from_ns);
    }

    /// Returns until when somebody may send by what was granted, as far as windows go.
    pub(super) fn windows_end_ns(&self) -> u64 {
        // One that waits uses none. What others have lost is held, for as long as it is sure that they stop; they may not
        // have heard that they are to.
        let uses = |state: State| match state {
            State::Granted | State::Pausing | State::Ending => true,
            State::Waiting | State::Silent => false,
        };
        let windows = self.transfers.iter().filter(|transfer| uses(transfer.state));
        let windows = windows.map(|transfer| transfer.until_ns.max(transfer.earlier_ns));
        let holds = self.links.iter().filter_map(|link| link.pool.last_hold_ns());
        windows.chain(holds).max().unwrap_or(0)
    }
}
