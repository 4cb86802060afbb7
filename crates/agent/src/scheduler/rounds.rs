//! Rounds: who has a part of them, what it is, and what may go.
use super::application::Application;
use super::arrivals::Request;
use super::{Chunk, LONGEST_PIECE, MOST_WINDOW, Scheduler};

/// The least requests of a turn of the least share, unless that of the largest would be more than a chunk. With 8 under a
/// doorbell a typical device (100 ns for each, 255 for the doorbell) takes 132 ns for a request, as long as the agent
/// does; some turns are cut short, so a few more. A longer turn makes nothing faster, and others wait for it.
pub(super) const TURN_REQUESTS: u64 = 10;

/// Bits of the fraction in which deficits are counted, so that odd shares do not add up to an error.
const FRACTION: u32 = 16;
/// Windows after which who alone was served has more of them in the device's hands, and how many.
const ALONE_AFTER: u64 = 16;
const ALONE_WINDOWS: u64 = 8;
/// Windows that somebody who was stuck must move before others wait for him again.
const STUCK_WINDOWS: u64 = 16;

/// The part of an application in a round: what it lacks to have one, if its next chunk may go.
#[derive(Debug)]
pub(super) struct Part {
    owner: usize,
    share: u64,
    missing: Option<i64>,
}

/// What keeps an application with requests from being served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing: it could be.
    Ready,
    /// Its rate.
    Throttled,
    /// The device does nothing for it; nobody waits for it.
    Stuck,
    /// What the device has of it or of others, or its connection.
    NoRoom,
}

/// Returns bytes as deficits are counted.
pub(super) fn as_deficit(bytes: u64) -> i64 {
    i64::try_from(u128::from(bytes) << FRACTION).unwrap_or(i64::MAX)
}

impl Scheduler {
    /// Returns the bytes of the window that one of the shares gives, times 2^32. Who is alone has it all.
    #[inline]
    pub(super) fn window_of_one(&mut self) -> u128 {
        if self.window_of_one == 0 && self.active.len() > 1 {
            self.window_of_one =
                (u128::from(self.window) << 32) / u128::from(self.busy_shares.max(1));
        }
        self.window_of_one
    }

    /// Sets what all applications together have in the device's hands, about.
    pub fn set_window(&mut self, bytes: u64) {
        self.window = bytes.clamp(self.chunk, MOST_WINDOW);
        self.window_of_one = 0;
    }

    /// Returns what the device has in its hands.
    #[inline]
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight
    }

    /// Returns what the device has been done with so far.
    #[inline]
    #[must_use]
    pub fn done_bytes(&self) -> u64 {
        self.done
    }

    /// Returns the window: who comes where nobody was for long may wait for more.
    #[inline]
    fn window(&self) -> u64 {
        let is_alone = self.done - self.alone_since > ALONE_AFTER * self.window;
        if is_alone { ALONE_WINDOWS * self.window } else { self.window }
    }

    #[inline]
    fn window_of(&self, application: &Application, window_of_one: u128) -> u64 {
        if application.share >= self.busy_shares {
            return self.window();
        }
        let one = if window_of_one > 0 {
            window_of_one
        } else {
            (u128::from(self.window) << 32) / u128::from(self.busy_shares)
        };
        let part = (one * u128::from(application.share)) >> 32;
        u64::try_from(part).unwrap_or(u64::MAX).max(self.chunk)
    }

    /// Returns the longest piece that an application is served at once: while nobody else has anything to do,
    /// there is no reason to split what fits the window.
    #[inline]
    fn piece(&self, application: &Application) -> u64 {
        if application.share >= self.busy_shares
            && application.pace.is_none()
            && application.most.is_none()
        {
            self.window().min(LONGEST_PIECE)
        } else {
            self.chunk
        }
    }

    /// Returns the next chunk of an application that may go: its connection and length.
    #[inline]
    pub(super) fn offer(&self, owner: usize, window_of_one: u128) -> Option<(usize, u64)> {
        let application = self.applications[owner].as_ref()?;
        if application.is_throttled() {
            return None;
        }
        let next = self.next_of(application)?;
        let has_room = application.in_flight == 0
            || self.turn_of.is_some_and(|(of, used)| of == owner && used < self.turn)
            || (self.in_flight.saturating_sub(self.stuck) < self.window()
                && application.in_flight < self.window_of(application, window_of_one));
        has_room.then_some(next)
    }

    /// Returns the next chunk of an application: its connection and length.
    #[inline]
    fn next_of(&self, application: &Application) -> Option<(usize, u64)> {
        let first = application.turns.first()?;
        let connection = self.connections[first].as_ref()?;
        let Request { bytes, splits, .. } = *connection.requests.front()?;
        let rest = bytes - connection.offset;
        Some((first, if splits { rest.min(self.piece(application)) } else { rest }))
    }

    /// Returns what a deficit must be beyond for the next so many bytes: a chunk may be owed, and no more than that. Who sends
    /// what cannot be split pays for the rest of it before.
    #[inline]
    fn needed(&self, bytes: u64) -> i64 {
        as_deficit(self.cost_bytes(bytes).saturating_sub(self.chunk.max(self.request)))
    }

    /// Returns whether an application that may not go now has a part of the round left.
    fn has_part(&self, application: &Application) -> bool {
        let next = self.next_of(application);
        next.is_some_and(|(_, bytes)| application.deficit > self.needed(bytes))
    }

    /// Returns the next chunk of an application that may go and has a part of the round left: its connection and length.
    #[inline]
    pub(super) fn with_part(&self, owner: usize, window_of_one: u128) -> Option<(usize, u64)> {
        let application = self.applications[owner].as_ref()?;
        // Most of those who wait for a round.
        if application.deficit <= 0 {
            return None;
        }
        let next = self.offer(owner, window_of_one);
        next.filter(|(_, bytes)| application.deficit > self.needed(*bytes))
    }

    /// Returns what a share gives in a round of so much for the largest one.
    #[inline]
    fn quantum(&self, base: u64, share: u64) -> i64 {
        self.quantum_of(self.quantum_of_one(base), share)
    }

    /// Returns what one of these shares gives in a round of so much for the largest one, times 2^32. Rounded up, so
    /// that the largest gets all of it.
    #[inline]
    fn quantum_of_one(&self, base: u64) -> u128 {
        (u128::from(base << FRACTION) << 32).div_ceil(u128::from(self.largest))
    }

    #[inline]
    fn quantum_of(&self, of_one: u128, share: u64) -> i64 {
        (((of_one * u128::from(share.min(self.largest))) >> 32) as i64).max(1)
    }

    /// Gives an application that has requests again its part of the round that is under way, or what it has left of it. What
    /// it had beyond its part of an earlier one it pays back with those since.
    #[inline]
    pub(super) fn join_round(&mut self, owner: usize) {
        let round = self.round;
        let application = self.application(owner);
        if application.round != round {
            let (share, owed) = (application.share, application.deficit.min(0));
            let passed = i64::try_from(round.wrapping_sub(application.round)).unwrap_or(i64::MAX);
            let part = self.quantum(self.given, share);
            let deficit = part.saturating_mul(passed).saturating_add(owed).min(part);
            let application = self.application(owner);
            (application.round, application.deficit) = (round, deficit);
        }
        // Who is alone is before nobody.
        if self.active.len() > 1 {
            self.application(owner).is_fresh = true;
            self.fresh.push_back(owner);
        }
    }

    /// Serves the first of those that came while the round was under way and have a part of it.
    #[inline]
    pub(super) fn serve_fresh(&mut self, window_of_one: u128) -> Option<Chunk> {
        while let Some(owner) = self.fresh.front().copied() {
            if let Some((connection, bytes)) = self.with_part(owner, window_of_one) {
                return Some(self.serve(owner, connection, bytes));
            }
            self.fresh.pop_front();
            self.application(owner).is_fresh = false;
        }
        None
    }

    /// Takes an application out of those that come first.
    #[inline]
    pub(super) fn forget_fresh(&mut self, owner: usize) {
        let Some(application) = &mut self.applications[owner] else { return };
        if std::mem::take(&mut application.is_fresh) {
            self.fresh.retain(|other| *other != owner);
        }
    }

    /// Begins as many rounds as it takes until somebody whose next chunk may go has a part; false if nobody's
    /// may, or somebody must be waited for.
    pub(super) fn grant(&mut self, window_of_one: u128) -> bool {
        self.turn_of = None;
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let begins = self.take_part(window_of_one, &mut parts);
        if begins {
            self.begin_rounds(&parts);
        }
        self.parts = parts;
        begins
    }

    /// Notes who takes part in the next round, and the largest share of them; false if somebody must be waited for, or
    /// nobody may go.
    fn take_part(&mut self, window_of_one: u128, parts: &mut Vec<Part>) -> bool {
        let (mut largest, mut least, mut any) = (1, u64::MAX, false);
        for owner in &self.active {
            let Some(application) = &self.applications[*owner] else { continue };
            let next = self.offer(*owner, window_of_one);
            if next.is_none() && (application.is_throttled() || self.is_stuck(application)) {
                continue;
            }
            (largest, least) = (largest.max(application.share), least.min(application.share));
            let is_alone = self.in_flight == application.in_flight;
            if next.is_none() && self.in_flight > 0 && (!is_alone || self.has_part(application)) {
                return false;
            }
            any |= next.is_some();
            let missing = next.map(|(_, bytes)| {
                let beyond = self.needed(bytes).saturating_add(1);
                beyond.saturating_sub(application.deficit).max(1)
            });
            parts.push(Part { owner: *owner, share: application.share, missing });
        }
        self.largest = largest;
        let turn = self.least_turn.saturating_mul(largest).div_ceil(least.min(largest));
        self.turn = turn.min(self.chunk).max(self.request);
        any
    }

    /// Gives those who take part what they get in as many rounds as it takes until one who may go has a part.
    fn begin_rounds(&mut self, parts: &[Part]) {
        // Who is alone waits for nobody's turn.
        self.given = if self.active.len() > 1 { self.turn } else { self.chunk };
        let of_one = self.quantum_of_one(self.given);
        let mut rounds = i64::MAX;
        for part in parts {
            // Few need a division: those who would be the first.
            if let Some(missing) = part.missing {
                let quantum = self.quantum_of(of_one, part.share);
                if missing <= quantum.saturating_mul(rounds - 1) {
                    rounds = (missing - 1) / quantum + 1;
                }
            }
        }
        self.round = self.round.wrapping_add(rounds.unsigned_abs());
        for part in parts {
            let granted = self.quantum_of(of_one, part.share).saturating_mul(rounds);
            let round = self.round;
            let application = self.application(part.owner);
            // Who may not go did not lose his turn for want of requests.
            application.deficit = application.deficit.saturating_add(granted);
            application.round = round;
        }
    }

    /// Takes back what was granted by shares that are others now, but for what it takes until each of those who wait is
    /// served once: a newcomer with next to no share is served when nobody else may go, in as many rounds as it takes, and what
    /// these grant to others would be before all that he sends with the share that he gets.
    pub(super) fn take_back(&mut self) {
        let waits = self.active.iter().filter_map(|owner| {
            let application = self.applications[*owner].as_ref()?;
            let (_, bytes) = self.next_of(application)?;
            let cost = u128::from(self.cost_bytes(bytes)) << FRACTION;
            Some((cost << 32).div_ceil(u128::from(application.share)))
        });
        let longest = waits.max().unwrap_or(0);
        for application in self.applications.iter_mut().flatten() {
            let most = longest.saturating_mul(u128::from(application.share)) >> 32;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            application.deficit = application.deficit.min(most);
        }
    }

    /// Returns whether the device does nothing for an application while it works for others, or did not lately.
    fn is_stuck(&self, application: &Application) -> bool {
        application.stuck_for > 0 || self.stands_still(application)
    }

    /// Returns whether the device does nothing for an application while it works for others.
    fn stands_still(&self, application: &Application) -> bool {
        // As much as there may be of others before it, and as much again.
        let each = self.active.len() as u64 * self.chunk.max(self.request);
        self.done - application.moved_at > 2 * (self.window + each)
    }

    /// Returns what keeps an application with requests from being served.
    pub(super) fn state(&self, owner: usize, window_of_one: u128) -> State {
        let Some(application) = &self.applications[owner] else { return State::Stuck };
        if application.is_throttled() {
            State::Throttled
        } else if self.offer(owner, window_of_one).is_some() {
            State::Ready
        } else if self.is_stuck(application) {
            State::Stuck
        } else {
            State::NoRoom
        }
    }

    /// Returns whether more than half of the window of an application is in the device's hands.
    pub(super) fn holds_half(&self, owner: usize, window_of_one: u128) -> bool {
        let application = self.applications[owner].as_ref();
        let window = |application| self.window_of(application, window_of_one);
        application.is_some_and(|application| 2 * application.in_flight > window(application))
    }

    /// Looks whether the device did anything since this was last called; what it has in its hands is of those who are
    /// stuck if it did not. To be called every few milliseconds: all others may wait for these.
    pub fn look(&mut self) {
        if std::mem::replace(&mut self.seen, self.done) != self.done {
            return;
        }
        for owner in 0..self.applications.len() {
            self.note_stuck(owner);
        }
    }

    /// Notes who is stuck: what they have in the device's hands is no reason for others to wait.
    pub(super) fn look_for_stuck(&mut self) {
        self.looked_at = self.done;
        for owner in 0..self.applications.len() {
            let application = self.applications[owner].as_ref();
            if application.is_some_and(|application| self.stands_still(application)) {
                self.note_stuck(owner);
            }
        }
    }

    fn note_stuck(&mut self, owner: usize) {
        let Some(application) = &mut self.applications[owner] else { return };
        if application.in_flight > 0 {
            if application.stuck_for == 0 {
                self.stuck += application.in_flight;
            }
            application.stuck_for = STUCK_WINDOWS * self.window;
        }
    }

    /// Notes that the device is done with so many bytes of an application, which has so many fewer in its hands.
    #[inline]
    pub(super) fn count_moved(&mut self, owner: usize, bytes: u64) {
        let application = self.application(owner);
        if application.stuck_for > 0 {
            application.stuck_for = application.stuck_for.saturating_sub(bytes);
            let counted = if application.stuck_for > 0 { bytes } else { application.in_flight };
            self.stuck -= counted;
        }
    }
}
