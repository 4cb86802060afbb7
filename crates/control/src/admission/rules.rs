//! Another policy, while transfers wait and run.
use super::Rules;
use super::controller::Controller;
use super::transfer::State;

impl Controller {
    /// Serves by other rules from now on. Windows stand; what waits takes its place in the new order, and may be late or
    /// in time by the new rules.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        if rules == self.config.rules {
            return;
        }
        let all: Vec<_> = self.transfers.places().collect();
        // The queues are in the order of the rules that made them.
        all.iter().for_each(|(at, _)| self.set_queued(*at, false));
        let (demotion, shares) = (rules.demotion, rules.shares.is_some());
        self.config.rules = rules;
        for (at, id) in all {
            if !self.transfers.is_at(at, id) {
                continue;
            }
            let flags = &mut self.transfers[at].flags;
            flags.late &= demotion;
            flags.lowered &= shares;
            flags.surplus &= shares;
            self.requeue(at);
            if matches!(self.transfers[at].state, State::Waiting | State::Granted) {
                self.watch(at);
            }
        }
        (0..self.parts.len()).for_each(|part| self.note_stale(part));
    }
}
