//! Whose ring and completions are looked at in a turn: each time of those who did something lately, and of a part of the
//! others. A turn takes as long as there are applications that do something, and not as long as there are any; and who did
//! nothing lately waits for no more than about the time that looks at all of them take.

/// At least so many are looked at in each turn of those who did nothing lately, and a part of them all.
const RARE_LEAST: usize = 4;
const RARE_PART: usize = 32;
/// A look takes some 10 ns, a request some 150, and a core copies some 20 bytes in a nanosecond.
const LOOKS_A_REQUEST: usize = 4;
const BYTES_A_LOOK: u64 = 512;
/// Who did nothing in so many turns is looked at as rarely as that.
const AGE_TURNS: u32 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Rare,
    /// In each turn.
    Each,
    /// In each turn, and it did something since that was last asked.
    Seen,
}

/// See the module. Applications are known by the scheduler's numbers; one that is gone is looked at in vain.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    states: Vec<State>,
    /// Those that are looked at in each turn, in order.
    each: Vec<usize>,
    /// Where looks at the others go on.
    next: usize,
    turns: u32,
    /// Looks at the others that take no longer than what the last turn did.
    worth: usize,
}

impl Lookout {
    /// Notes that an application did something, or something was done for it.
    #[inline]
    pub(super) fn note(&mut self, at: usize) {
        if self.states.get(at) == Some(&State::Seen) {
            return;
        }
        if at >= self.states.len() {
            self.states.resize(at + 1, State::Rare);
        }
        if std::mem::replace(&mut self.states[at], State::Seen) == State::Rare {
            let place = self.each.partition_point(|known| *known < at);
            self.each.insert(place, at);
        }
    }

    /// Notes what the last turn gave to the device. Looks at others that take a part of the time of that cost nobody
    /// anything.
    #[inline]
    pub(super) fn spent(&mut self, requests: usize, bytes: u64) {
        self.worth = requests * LOOKS_A_REQUEST + (bytes / BYTES_A_LOOK) as usize;
    }

    /// Puts those into `looked` who are looked at in this turn; all of them before a sleep, as they ring only for
    /// who sleeps. `is_waiting` says whether requests of one wait.
    #[inline]
    pub(super) fn begin_turn(
        &mut self,
        looked: &mut Vec<usize>,
        before_sleep: bool,
        is_waiting: impl Fn(usize) -> bool,
    ) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(AGE_TURNS) {
            self.age(is_waiting);
        }
        looked.clear();
        looked.extend_from_slice(&self.each);
        let all = self.states.len();
        if looked.len() == all {
            return;
        }
        let rare = (all / RARE_PART).max(RARE_LEAST).max(self.worth);
        let most = if before_sleep { all } else { rare.min(all) };
        for _ in 0..most {
            if self.next >= all {
                self.next = 0;
            }
            if self.states[self.next] == State::Rare {
                looked.push(self.next);
            }
            self.next += 1;
        }
    }

    fn age(&mut self, is_waiting: impl Fn(usize) -> bool) {
        let states = &mut self.states;
        self.each.retain(|at| {
            let stays = states[*at] == State::Seen || is_waiting(*at);
            states[*at] = if stays { State::Each } else { State::Rare };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(lookout: &mut Lookout, before_sleep: bool, waiting: &[usize]) -> Vec<usize> {
        let mut looked = Vec::new();
        lookout.begin_turn(&mut looked, before_sleep, |at| waiting.contains(&at));
        looked.sort_unstable();
        looked
    }

    /// Of 512 who did nothing lately.
    fn quiet() -> Lookout {
        let mut lookout = Lookout::default();
        (0..512).for_each(|at| lookout.note(at));
        assert_eq!(turn(&mut lookout, false, &[]).len(), 512, "all just came");
        (0..2 * AGE_TURNS).for_each(|_| _ = turn(&mut lookout, false, &[]));
        lookout
    }

    #[test]
    fn who_does_something_is_looked_at_in_each_turn_and_all_others_in_thirty_two() {
        let mut lookout = quiet();
        let mut times = [0; 512];
        for _ in 0..RARE_PART {
            lookout.note(300);
            let looked = turn(&mut lookout, false, &[]);
            assert!(looked.len() <= 17, "{}", looked.len());
            looked.iter().for_each(|at| times[*at] += 1);
        }
        assert_eq!(times[300], RARE_PART);
        assert_eq!(times.iter().filter(|times| **times == 1).count(), 511);
    }

    #[test]
    fn who_waits_is_looked_at_in_each_turn_however_long() {
        let mut lookout = quiet();
        lookout.note(7);
        for _ in 0..3 * AGE_TURNS {
            assert!(turn(&mut lookout, false, &[7]).contains(&7));
        }
        (0..2 * AGE_TURNS).for_each(|_| _ = turn(&mut lookout, false, &[]));
        assert_eq!(lookout.states[7], State::Rare);
        assert!(lookout.each.is_empty());
    }

    #[test]
    fn after_a_long_turn_all_are_looked_at() {
        let mut lookout = quiet();
        lookout.spent(256, 0);
        assert_eq!(turn(&mut lookout, false, &[]).len(), 512);
        lookout.spent(8, 512 << 10);
        assert_eq!(turn(&mut lookout, false, &[]).len(), 512);
        lookout.spent(1, 64);
        assert_eq!(turn(&mut lookout, false, &[]).len(), 16);
    }

    #[test]
    fn before_a_sleep_all_are_looked_at() {
        let mut lookout = quiet();
        lookout.note(3);
        assert_eq!(turn(&mut lookout, true, &[]), (0..512).collect::<Vec<_>>());
    }

    #[test]
    fn a_few_are_all_looked_at_in_each_turn() {
        let mut lookout = Lookout::default();
        (0..4).for_each(|at| lookout.note(at));
        for _ in 0..3 * AGE_TURNS {
            assert_eq!(turn(&mut lookout, false, &[]), (0..4).collect::<Vec<_>>());
        }
    }
}
