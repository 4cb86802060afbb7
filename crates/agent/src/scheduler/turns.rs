//! The turns of an application's connections: in each round of these every one that has requests is served as much as any
//! other, whatever their requests are, to within the largest chunk (surplus round robin, with what the largest chunk of the
//! round before cost as quantum: connections with requests of one size are served one each).
use std::collections::VecDeque;

/// The connections of an application that can be served.
#[derive(Debug)]
pub(super) struct Turns {
    /// Those that have something left of this round, in turn.
    ready: VecDeque<usize>,
    /// Those that wait for the next one.
    spent: VecDeque<usize>,
    round: u64,
    /// What one may be served in this round, and what the largest chunk of it has cost so far.
    quantum: u64,
    largest: u64,
}

/// What a connection has of a round.
#[derive(Debug, Default)]
pub(super) struct Turn {
    round: u64,
    /// What it may be served still; below 0, what it was served too much.
    credit: i64,
}

impl Default for Turns {
    fn default() -> Self {
        // What connections begin with is of no round.
        Self { ready: VecDeque::new(), spent: VecDeque::new(), round: 2, quantum: 1, largest: 0 }
    }
}

impl Turns {
    /// Returns the connection whose turn it is.
    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        self.ready.front().copied()
    }

    /// Adds a connection that can be served again, or for the first time.
    #[inline]
    pub(super) fn add(&mut self, at: usize, turn: &mut Turn) {
        self.renew(turn);
        if turn.credit > 0 {
            self.ready.push_back(at)
        } else {
            self.spent.push_back(at)
        }
        self.begin_round_if_over();
    }

    /// Notes that a connection is served a chunk that costs so much, and takes it out.
    #[inline]
    pub(super) fn serve(&mut self, at: usize, turn: &mut Turn, cost: u64) {
        self.renew(turn);
        turn.credit -= cost as i64;
        self.largest = self.largest.max(cost);
        if self.first() == Some(at) {
            self.ready.pop_front();
        } else {
            self.remove(at);
        }
    }

    /// Puts the connection back that was served: before others while it has something left of its turn.
    /// [`Self::begin_round_if_over`] follows, also where it is not put back.
    #[inline]
    pub(super) fn put_back(&mut self, at: usize, turn: &Turn) {
        if turn.credit > 0 {
            self.ready.push_front(at);
        } else {
            self.spent.push_back(at);
        }
    }

    /// Takes a connection out.
    pub(super) fn remove(&mut self, at: usize) {
        self.ready.retain(|other| *other != at);
        self.spent.retain(|other| *other != at);
        self.begin_round_if_over();
    }

    /// Begins another round where nobody has anything left of this one.
    #[inline]
    pub(super) fn begin_round_if_over(&mut self) {
        if self.ready.is_empty() && !self.spent.is_empty() {
            std::mem::swap(&mut self.ready, &mut self.spent);
            self.round += 1;
            (self.quantum, self.largest) = (self.largest.max(1), 0);
        }
    }

    /// Gives a connection its part of the round, once. What it was served too much in the last one is less than the largest
    /// chunk of that; what was before is forgotten.
    #[inline]
    fn renew(&self, turn: &mut Turn) {
        let quantum = self.quantum as i64;
        turn.credit = match self.round - turn.round {
            0 => return,
            1 => turn.credit.min(0) + quantum,
            _ => quantum,
        };
        turn.round = self.round;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u64 = 65_536;

    proptest! {
        /// Two connections that always have requests have been served as much as each other, to within two of the largest
        /// chunks, whatever others come and go and whatever each chunk costs.
        #[test]
        fn who_always_has_requests_is_served_as_much_as_others(
            steps in prop::collection::vec((1..=MOST, any::<bool>(), 2..6_usize), 1..400),
        ) {
            let (mut turns, mut all) = (Turns::default(), <[Turn; 6]>::default());
            let (mut queued, mut served) = ([false; 6], [0_u64; 6]);
            for (at, turn) in all.iter_mut().enumerate().take(2) {
                turns.add(at, turn);
            }
            for (cost, leaves, other) in steps {
                if queued[other] && leaves {
                    turns.remove(other);
                    queued[other] = false;
                } else if !queued[other] {
                    turns.add(other, &mut all[other]);
                    queued[other] = true;
                }
                let at = turns.first().expect("somebody always has requests");
                // Of one connection they cost little.
                let cost = if at == 1 { cost.min(64) } else { cost };
                turns.serve(at, &mut all[at], cost);
                served[at] += cost;
                if at < 2 || !leaves {
                    turns.put_back(at, &all[at]);
                } else {
                    queued[at] = false;
                }
                turns.begin_round_if_over();
                prop_assert!(served[0].abs_diff(served[1]) <= 2 * MOST, "{:?}", served);
            }
        }
    }
}
