//! What a receiver granted to one edge, and how much of it may still be in use.
use std::collections::VecDeque;

/// Grants that are kept apart; beyond that the oldest two count as one.
const MOST: usize = 16;

/// The grants of one edge that its sender may be using: every one since the newest that it confirmed.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Sequence of the answers, and what they granted.
    grants: VecDeque<(u64, f64)>,
}

impl Ledger {
    /// A sender that holds what another life of this host granted.
    pub(super) fn held(grant: f64) -> Self {
        Self { grants: VecDeque::from([(0, grant)]) }
    }

    /// The most that may be in use.
    pub(super) fn counted(&self) -> f64 {
        self.grants.iter().map(|grant| grant.1).fold(0.0, f64::max)
    }

    /// What was granted last.
    pub(super) fn granted(&self) -> f64 {
        self.grants.back().map_or(0.0, |grant| grant.1)
    }

    /// Whether nothing but the last grant may be in use.
    pub(super) fn is_confirmed(&self) -> bool {
        self.grants.len() <= 1
    }

    /// Notes a grant, which may be in use from now on; sequences rise.
    pub(super) fn grant(&mut self, sequence: u64, grant: f64) {
        self.grants.push_back((sequence, grant));
        if self.grants.len() > MOST
            && let Some(oldest) = self.grants.pop_front()
            && let Some(next) = self.grants.front_mut()
        {
            next.1 = next.1.max(oldest.1);
        }
    }

    /// The sender took the answers of `sequence`: what was granted before is not in use any more.
    pub(super) fn confirm(&mut self, sequence: u64) {
        while self.grants.len() > 1 && self.grants[0].0 < sequence {
            self.grants.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lowered_grant_counts_until_the_sender_took_it() {
        let mut ledger = Ledger::default();
        ledger.grant(1, 5.0);
        ledger.grant(2, 3.0);
        ledger.grant(4, 2.0);
        assert_eq!((ledger.granted(), ledger.counted()), (2.0, 5.0));
        ledger.confirm(2);
        assert_eq!(ledger.counted(), 3.0);
        ledger.confirm(1);
        assert_eq!(ledger.counted(), 3.0);
        ledger.confirm(4);
        assert_eq!((ledger.counted(), ledger.is_confirmed()), (2.0, true));
    }

    #[test]
    fn grants_without_an_answer_take_bounded_memory_and_none_is_forgotten() {
        let mut ledger = Ledger::default();
        ledger.grant(1, 9.0);
        for sequence in 2..100 {
            ledger.grant(sequence, 1.0);
        }
        assert_eq!(ledger.grants.len(), MOST);
        assert_eq!(ledger.counted(), 9.0);
        ledger.confirm(50);
        assert_eq!(ledger.counted(), 9.0);
        ledger.confirm(99);
        assert_eq!(ledger.counted(), 1.0);
    }
}
