//! When a host takes the shares that it would have alone: because rounds do not get through, or lead nowhere.
use std::collections::VecDeque;

/// Windows that count: ten rounds of offers and ten of answers.
const WINDOWS: usize = 20;
/// Residuals that count.
const ROUNDS: usize = 10;
/// More lost than this, and the host falls back; less than the second, and it returns.
const MOST_LOST: f64 = 0.4;
const LITTLE_LOST: f64 = 0.3;
/// Less than this is none: hosts that wake miss each other once.
const FEW_LOST: f64 = 0.02;
/// Below this a residual is no reason to fall back.
const SMALL: f64 = 0.2;

/// Rounds after a change that may lead nowhere: with a residual above the second.
const MOST_ROUNDS: usize = 512;
const FAR: f64 = 0.01;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Stay,
    FallBack,
    Return,
}

/// Messages that came and did not, and residuals, of the last rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    /// Expected and lost in each window.
    windows: VecDeque<(usize, usize)>,
    relatives: VecDeque<f64>,
    /// Rounds in a row with a residual far above the least.
    rising: usize,
    /// Rounds of this epoch.
    rounds: usize,
    /// They led nowhere: until something changes.
    gave_up: bool,
    pub(super) fallen: bool,
}

impl Guard {
    /// Residuals of another problem say nothing.
    pub(super) fn begin_epoch(&mut self) {
        self.relatives.clear();
        (self.rising, self.rounds, self.gave_up) = (0, 0, false);
    }

    /// Whether residuals rise. Those of the first rounds after a change are large whatever follows.
    const fn is_rising(&self) -> bool {
        self.rising >= 3 && self.rounds > WINDOWS
    }

    fn lost(&self) -> f64 {
        let sum = |pick: fn(&(usize, usize)) -> usize| self.windows.iter().map(pick).sum::<usize>();
        sum(|window| window.1) as f64 / sum(|window| window.0).max(1) as f64
    }

    /// Counts a round, which left a residual.
    pub(super) fn count(&mut self, expected: usize, lost: usize, residual: f64) -> Verdict {
        self.rounds += 1;
        self.windows.push_back((expected, lost));
        if self.windows.len() > WINDOWS {
            self.windows.pop_front();
        }
        let lost = self.lost();
        if !self.fallen && self.rounds > MOST_ROUNDS && residual > FAR {
            (self.fallen, self.gave_up) = (true, true);
            self.windows.clear();
            Verdict::FallBack
        } else if self.gave_up || self.windows.len() < WINDOWS {
            Verdict::Stay
        } else if !self.fallen && (lost > MOST_LOST || (lost > FEW_LOST && self.is_rising())) {
            self.fallen = true;
            self.windows.clear();
            Verdict::FallBack
        } else if self.fallen && lost < LITTLE_LOST {
            self.fallen = false;
            self.windows.clear();
            Verdict::Return
        } else {
            Verdict::Stay
        }
    }

    pub(super) fn note(&mut self, relative: f64) {
        let least = self.relatives.iter().copied().fold(f64::INFINITY, f64::min);
        let far = relative > 10.0 * least.max(SMALL);
        self.rising = if far { self.rising + 1 } else { 0 };
        self.relatives.push_back(relative);
        if self.relatives.len() > ROUNDS {
            self.relatives.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a round, of which a twentieth was lost; returns whether the host falls back.
    fn falls_back(guard: &mut Guard, residual: f64) -> bool {
        let verdict = guard.count(20, 1, residual);
        guard.note(residual);
        verdict == Verdict::FallBack || guard.count(20, 1, residual) == Verdict::FallBack
    }

    #[test]
    fn residuals_that_rise_are_a_reason_only_some_rounds_after_a_change() {
        let mut guard = Guard::default();
        for _ in 0..20 {
            assert!(!falls_back(&mut guard, 0.01));
        }
        // Another problem: it is far from there at first.
        guard.begin_epoch();
        for residual in [3.19, 0.05, 3.18, 3.13, 2.82, 2.7, 1.0, 0.1, 0.05, 0.05, 0.05] {
            assert!(!falls_back(&mut guard, residual), "{residual}");
        }
        let rise = [3.0, 4.0, 5.0].map(|residual| falls_back(&mut guard, residual));
        assert_eq!(rise, [false, false, true]);
    }
}
