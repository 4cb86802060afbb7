//! The sessions of one receive thread, and when each has its next turn.
use super::intake::SessionIntake;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// When a session has its next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// In the next round.
    Active,
    /// When its watch is rung.
    Rung,
    /// At this time.
    At(Instant),
}

struct Place {
    intake: Box<SessionIntake>,
    when: When,
}

/// The sessions, each under a number that is used again when it has ended.
#[derive(Default)]
pub(super) struct Sessions {
    places: Vec<Option<Place>>,
    free: Vec<usize>,
    /// Those that have a turn in every round.
    active: Vec<usize>,
    naps: BinaryHeap<Reverse<(Instant, usize)>>,
    /// How many wait to be rung.
    armed: usize,
}

impl Sessions {
    /// Takes a session in; its first turn is in the next round.
    pub(super) fn insert(&mut self, intake: Box<SessionIntake>) -> usize {
        let place = Place { intake, when: When::Active };
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[number] = Some(place);
        self.active.push(number);
        number
    }

    /// Takes a session out.
    pub(super) fn remove(&mut self, number: usize) -> Option<Box<SessionIntake>> {
        let place = self.places.get_mut(number)?.take()?;
        match place.when {
            When::Active => self.active.retain(|active| *active != number),
            When::Rung => self.armed -= 1,
            // When the nap is over, it belongs to no session.
            When::At(_) => {}
        }
        self.free.push(number);
        Some(place.intake)
    }

    /// Returns the session of this number.
    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut SessionIntake> {
        Some(&mut self.places.get_mut(number)?.as_mut()?.intake)
    }

    /// Returns the number of the session with this id.
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        let is_it = |place: &Option<Place>| place.as_ref().is_some_and(|p| p.intake.id == id);
        self.places.iter().position(is_it)
    }

    /// Returns the numbers of all sessions.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        let used = self.places.iter().enumerate();
        used.filter_map(|(number, place)| place.is_some().then_some(number))
    }

    /// Returns the session that is `n`-th in this round.
    pub(super) fn active(&self, n: usize) -> Option<usize> {
        self.active.get(n).copied()
    }

    /// Whether no session has a turn in the next round.
    pub(super) fn all_sleep(&self) -> bool {
        self.active.is_empty()
    }

    /// Whether some session waits for a ring or a time.
    pub(super) fn some_sleep(&self) -> bool {
        self.armed > 0 || !self.naps.is_empty()
    }

    /// The session has its next turn when it is rung.
    pub(super) fn sleep_until_rung(&mut self, number: usize) {
        self.armed += 1;
        self.leave_round(number, When::Rung);
    }

    /// The session has its next turn at this time.
    pub(super) fn sleep_until(&mut self, number: usize, until: Instant) {
        self.naps.push(Reverse((until, number)));
        self.leave_round(number, When::At(until));
    }

    fn leave_round(&mut self, number: usize, when: When) {
        self.active.retain(|active| *active != number);
        if let Some(Some(place)) = self.places.get_mut(number) {
            debug_assert_eq!(place.when, When::Active);
            place.when = when;
        }
    }

    /// The session has a turn in the next round, however long it wanted to sleep.
    pub(super) fn wake(&mut self, number: usize) {
        let Some(Some(place)) = self.places.get_mut(number) else { return };
        match place.when {
            When::Active => return,
            When::Rung => self.armed -= 1,
            When::At(_) => {}
        }
        place.when = When::Active;
        self.active.push(number);
    }

    /// Wakes those whose time has come.
    pub(super) fn wake_due(&mut self, now: Instant) {
        while let Some(Reverse((due, number))) = self.naps.peek().copied() {
            if due > now {
                return;
            }
            self.naps.pop();
            let place = self.places.get(number).and_then(Option::as_ref);
            if place.is_some_and(|place| place.when == When::At(due)) {
                self.wake(number);
            }
        }
    }

    /// Returns when the first time comes.
    pub(super) fn first_due(&self) -> Option<Instant> {
        self.naps.peek().map(|Reverse((due, _))| *due)
    }
}
