//! A transfer, its place in the order, and how far it is.
use super::timers::TimerId;
use super::{ClassId, DeviceId, NONE, Order, TransferId};

/// The place of a transfer: the lowest goes first. From the top: late (1 bit), class (8), surplus (1), a
/// time (64), the count at its arrival (54), which no two have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u128);

const ARRIVAL_BITS: u32 = 54;
/// What is below late, class and surplus.
const BELOW_BAND: u32 = ARRIVAL_BITS + 64;

impl Key {
    const fn new(late: bool, class: u8, surplus: bool, at_ns: u64, arrival: u64) -> Self {
        debug_assert!(arrival >> ARRIVAL_BITS == 0, "centuries of requests");
        let band = ((late as u128) << 9) | ((class as u128) << 1) | surplus as u128;
        Self((band << BELOW_BAND) | ((at_ns as u128) << ARRIVAL_BITS) | arrival as u128)
    }

    /// Before all that go behind because they are late.
    pub(super) const LATE: Self = Self::new(true, 0, false, 0, 0);

    /// Returns the class as which a transfer counts.
    pub(super) const fn class(self) -> u8 {
        (self.0 >> (BELOW_BAND + 1)) as u8
    }

    #[cfg(test)]
    pub(super) const fn test(at: u64) -> Self {
        Self::new(false, 0, false, 0, at)
    }

    /// Returns the key without all that lets one that asked later go first.
    pub(super) const fn in_turn(self) -> Self {
        Self(self.0 & ((1 << ARRIVAL_BITS) - 1))
    }
}

/// What a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Wants capacity.
    Waiting,
    /// Has a window that stands.
    Granted,
    /// Its last window runs out; all should be sent then.
    Ending,
    /// Was told to pause.
    Pausing,
    /// Its window is over, and it has not asked again.
    Silent,
}

/// How far a transfer is: it sends at one rate up to a time, then at another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    left_bytes: u64,
    at_ns: u64,
    before_bps: u64,
    from_ns: u64,
    rate_bps: u64,
}

impl Course {
    pub(super) fn standing(left_bytes: u64) -> Self {
        Self { left_bytes, ..Self::default() }
    }

    pub(super) fn left_at(&self, now_ns: u64) -> u64 {
        let before_ns = now_ns.min(self.from_ns).saturating_sub(self.at_ns);
        let after_ns = now_ns.saturating_sub(self.at_ns.max(self.from_ns));
        let before = sent_bytes(before_ns, self.before_bps);
        let sent = before.saturating_add(sent_bytes(after_ns, self.rate_bps));
        self.left_bytes.saturating_sub(sent)
    }

    /// Returns what is left while nothing is sent.
    pub(super) const fn standing_bytes(&self) -> u64 {
        self.left_bytes
    }

    pub(super) fn rate_at(&self, now_ns: u64) -> u64 {
        if now_ns < self.from_ns { self.before_bps } else { self.rate_bps }
    }

    pub(super) fn begins_ns(&self) -> u64 {
        self.from_ns
    }

    /// Changes the rate from `from_ns` on.
    pub(super) fn steer(&mut self, now_ns: u64, from_ns: u64, rate_bps: u64) {
        let (left_bytes, before_bps) = (self.left_at(now_ns), self.rate_at(now_ns));
        *self = Self { left_bytes, at_ns: now_ns, before_bps, from_ns, rate_bps };
    }

    /// Notes what the source said that is left, a delay ago.
    pub(super) fn correct(&mut self, now_ns: u64, left_bytes: u64, delay_ns: u64) {
        let sent = sent_bytes(delay_ns, self.rate_at(now_ns.saturating_sub(delay_ns)));
        let left_bytes = left_bytes.saturating_sub(sent);
        let before_bps = self.rate_at(now_ns);
        *self = Self { left_bytes, at_ns: now_ns, before_bps, ..*self };
    }
}

pub(super) fn sent_bytes(time_ns: u64, rate_bps: u64) -> u64 {
    const SCALE: u64 = 8_000_000_000;
    if let Some(amount) = time_ns.checked_mul(rate_bps) {
        return amount / SCALE;
    }
    let sent = u128::from(time_ns) * u128::from(rate_bps) / u128::from(SCALE);
    u64::try_from(sent).unwrap_or(u64::MAX)
}

/// Returns how long `bytes` take at `rate_bps`, rounded up.
pub(super) fn duration_ns(bytes: u64, rate_bps: u64) -> u64 {
    let rate_bps = rate_bps.max(1);
    if let Some(amount) = bytes.checked_mul(8_000_000_000) {
        return amount.div_ceil(rate_bps);
    }
    let time_ns = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(rate_bps));
    u64::try_from(time_ns).unwrap_or(u64::MAX)
}

/// A time less than half an hour away, to the next 2^20 ns (about a millisecond), in four bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(u32);

impl Moment {
    const BITS: u32 = 20;

    pub(super) const fn at(time_ns: u64) -> Self {
        Self(((time_ns >> Self::BITS) as u32).wrapping_add(1))
    }

    /// Returns the time, which is now if it is past.
    pub(super) fn or_now(self, now_ns: u64) -> u64 {
        let now = now_ns >> Self::BITS;
        let ahead = u64::try_from(self.0.wrapping_sub(now as u32).cast_signed()).unwrap_or(0);
        now.saturating_add(ahead).saturating_mul(1 << Self::BITS).max(now_ns)
    }
}

/// A time that does not come.
pub(super) const NEVER: u64 = u64::MAX;

/// What one device wants to send as a whole. Three lines of the cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Transfer {
    pub(super) id: TransferId,
    pub(super) key: Key,
    pub(super) deadline_ns: u64,
    /// When its state changes by itself.
    pub(super) due_ns: u64,
    /// When it is certain that its deadline is missed.
    pub(super) alarm_ns: u64,
    /// Comes at the earlier of both.
    pub(super) timer: TimerId,
    pub(super) state: State,
    pub(super) class: ClassId,
    pub(super) flags: Flags,
    /// Nothing that happens elsewhere lets its windows last longer, until its source is heard.
    pub(super) lease_end: Moment,
    pub(super) rate_bps: u64,
    pub(super) until_ns: u64,
    /// The end of earlier windows, which stand for a source that does not know the latest.
    pub(super) earlier_ns: u64,
    pub(super) course: Course,
    pub(super) revision: u32,
    /// The first of its holds.
    pub(super) holds: u32,
    pub(super) born_ns: u64,
    pub(super) planned_bps: u64,
    /// The round of planning that gave it something.
    pub(super) planned: u32,
    pub(super) links: Links,
}

/// When a window ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ends {
    /// After a lease: more is to be sent then.
    #[default]
    Lease,
    /// When all should be sent, or the quantum.
    Last,
    /// When what has begun has left, as its source has said: that is all.
    Begun,
}

/// What a transfer is, beside its state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    /// Counts as one of the next class: its own has had its share.
    pub(super) lowered: bool,
    /// Its device has had its share.
    pub(super) surplus: bool,
    /// It goes behind all that can be in time: it cannot, or its device is [ahead](super::lead).
    pub(super) late: bool,
    /// The source was told that the deadline is missed.
    pub(super) told: bool,
    pub(super) ends: Ends,
    /// It stands in the queue of its device, under its key.
    pub(super) queued: bool,
}

/// Its neighbours in the lists that it is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    /// Of the device: the next older one; or the next unused place.
    pub(super) older: u32,
    pub(super) newer: u32,
    /// Of those of a part that have a window.
    pub(super) next_granted: u32,
    pub(super) before_granted: u32,
    /// In the heap of the device: the first below it, the next beside it, the one before it.
    pub(super) child: u32,
    pub(super) sibling: u32,
    pub(super) before: u32,
}

impl Default for Links {
    fn default() -> Self {
        let (older, newer, next_granted, before_granted) = (NONE, NONE, NONE, NONE);
        let (child, sibling, before) = (NONE, NONE, NONE);
        Self { older, newer, next_granted, before_granted, child, sibling, before }
    }
}

impl Transfer {
    pub(super) fn new(
        id: TransferId,
        class: ClassId,
        (born_ns, deadline_ns): (u64, u64),
        bytes: u64,
        arrival: u64,
    ) -> Self {
        Self {
            id,
            key: Key::new(false, 0, false, 0, arrival),
            deadline_ns,
            due_ns: NEVER,
            alarm_ns: NEVER,
            timer: TimerId::NONE,
            state: State::Silent,
            class,
            flags: Flags::default(),
            lease_end: Moment::at(0),
            rate_bps: 0,
            until_ns: 0,
            earlier_ns: 0,
            course: Course::standing(bytes),
            revision: 0,
            holds: NONE,
            born_ns,
            planned_bps: 0,
            planned: 0,
            links: Links::default(),
        }
    }

    /// Notes that the window stands for a source that does not hear of the next one.
    pub(super) fn note_earlier(&mut self, now_ns: u64) {
        if self.state == State::Granted && self.until_ns > now_ns {
            self.earlier_ns = self.earlier_ns.max(self.until_ns);
        }
    }

    /// Returns the transfer's place among those of the path.
    pub(super) fn place(&self, order: Order) -> Key {
        let Flags { late, lowered, surplus, .. } = self.flags;
        let class = self.class.0.saturating_add(u8::from(lowered));
        let (class, at_ns) = match order {
            Order::Arrival => (0, 0),
            Order::ClassArrival => (class, 0),
            Order::ClassAge => (class, self.born_ns),
            Order::Deadline => (0, self.deadline_ns),
        };
        let Key(arrival) = self.key.in_turn();
        let Key(rest) = Key::new(late, class, surplus, at_ns, 0);
        Key(rest | arrival)
    }
}

/// The place of a device that is not there.
pub(super) const NOBODY: TransferId = TransferId { device: DeviceId(NONE), number: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_has_two_rates_and_can_be_corrected() {
        let mut course = Course::standing(10_000);
        assert_eq!(course.left_at(1_000_000), 10_000);
        course.steer(0, 1_000, 8_000_000_000);
        assert_eq!(
            [0, 1_000, 3_000, 20_000].map(|at| course.left_at(at)),
            [10_000, 10_000, 8_000, 0]
        );
        course.steer(3_000, 5_000, 16_000_000_000);
        assert_eq!([4_000, 5_000, 6_000].map(|at| course.left_at(at)), [7_000, 6_000, 4_000]);
        course.correct(6_000, 9_000, 500);
        assert_eq!([6_000, 7_000].map(|at| course.left_at(at)), [8_000, 6_000]);
    }

    #[test]
    fn a_moment_is_rounded_up_and_survives_the_end_of_its_count() {
        for now_ns in [0, 7, 1 << 20, (1 << 52) - 5, 1 << 60] {
            for ahead_ns in [0, 1, 999, 1 << 20, 400_000_000, 60_000_000_000] {
                let time_ns = now_ns + ahead_ns;
                let told_ns = Moment::at(time_ns).or_now(now_ns);
                assert!(told_ns >= time_ns && told_ns - time_ns <= 1 << 20, "{now_ns} {ahead_ns}");
                assert_eq!(Moment::at(now_ns).or_now(time_ns + (1 << 21)), time_ns + (1 << 21));
            }
        }
    }

    #[test]
    fn late_and_surplus_go_behind() {
        let id = TransferId { device: DeviceId(1), number: 1 };
        let make = |class, born_ns, flags| {
            let transfer = Transfer::new(id, ClassId(class), (born_ns, born_ns + 10), 1, 7);
            Transfer { flags, ..transfer }
        };
        let key = |transfer: &Transfer| transfer.place(Order::ClassAge);
        let plain = Flags::default();
        let (urgent, old, new) = (make(0, 50, plain), make(1, 10, plain), make(1, 20, plain));
        assert!(key(&urgent) < key(&old) && key(&old) < key(&new));
        let late = make(1, 0, Flags { late: true, ..plain });
        let surplus = make(1, 0, Flags { surplus: true, ..plain });
        let lowered = make(0, 15, Flags { lowered: true, ..plain });
        assert!(key(&new) < key(&surplus) && key(&surplus) < key(&late));
        assert!(key(&old) < key(&lowered) && key(&lowered) < key(&new));
        assert!(old.place(Order::Deadline) < urgent.place(Order::Deadline));
        assert_eq!(key(&late).in_turn(), key(&urgent).in_turn());
    }

    #[test]
    fn times_and_bytes_beyond_64_bits_are_right_too() {
        assert_eq!(duration_ns(3_000_000_000, 8_000_000_000), 3_000_000_000);
        assert_eq!(duration_ns(1, 3_000_000_000), 3);
        assert_eq!(sent_bytes(10_000_000_000, 80_000_000_000), 100_000_000_000);
        assert_eq!(sent_bytes(1_000, 8_000_000_000), 1_000);
        assert_eq!(size_of::<Transfer>(), 192);
    }
}
