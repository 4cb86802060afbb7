//! A transfer, its place in the order, and how far it is.
use super::timers::TimerId;
use super::{ClassId, Order};

/// The place of a transfer: the lowest goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    late: bool,
    class: u8,
    surplus: bool,
    at_ns: u64,
    arrival: u64,
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
        let sent = sent_bytes(before_ns, self.before_bps) + sent_bytes(after_ns, self.rate_bps);
        self.left_bytes.saturating_sub(u64::try_from(sent).unwrap_or(u64::MAX))
    }

    fn rate_at(&self, now_ns: u64) -> u64 {
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
        let left_bytes = left_bytes.saturating_sub(u64::try_from(sent).unwrap_or(u64::MAX));
        let before_bps = self.rate_at(now_ns);
        *self = Self { left_bytes, at_ns: now_ns, before_bps, ..*self };
    }
}

fn sent_bytes(time_ns: u64, rate_bps: u64) -> u128 {
    u128::from(time_ns) * u128::from(rate_bps) / 8_000_000_000
}

/// Returns how long `bytes` take at `rate_bps`, rounded up.
pub(super) fn duration_ns(bytes: u64, rate_bps: u64) -> u64 {
    let time_ns = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(rate_bps.max(1)));
    u64::try_from(time_ns).unwrap_or(u64::MAX)
}

/// What one device wants to send as a whole.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) class: ClassId,
    /// Counts as one of the next class: its own has had its share.
    pub(super) lowered: bool,
    /// Its device has had its share.
    pub(super) surplus: bool,
    pub(super) born_ns: u64,
    pub(super) deadline_ns: u64,
    pub(super) arrival: u64,
    pub(super) late: bool,
    /// The source was told that the deadline is missed.
    pub(super) told: bool,
    pub(super) state: State,
    pub(super) course: Course,
    pub(super) rate_bps: u64,
    pub(super) until_ns: u64,
    /// The rate and the end of earlier windows, which stand for a source that does not know the latest.
    pub(super) earlier: (u64, u64),
    /// The window ends when all should be sent, or the quantum.
    pub(super) last: bool,
    pub(super) revision: u32,
    pub(super) holds: Vec<u64>,
    /// The keys under which it stands in the queues of its device and of the path.
    pub(super) queued: Option<(Key, Key)>,
    /// When its state changes by itself.
    pub(super) due_ns: Option<u64>,
    /// When it is certain that its deadline is missed.
    pub(super) alarm_ns: Option<u64>,
    /// The earlier of both, for which there is a timer.
    pub(super) armed: Option<(u64, TimerId)>,
    /// The round of planning that gave it something, and how much.
    pub(super) planned: (u64, u64),
}

impl Transfer {
    pub(super) fn new(class: ClassId, born_ns: u64, deadline_ns: u64, bytes: u64) -> Self {
        Self {
            class,
            lowered: false,
            surplus: false,
            born_ns,
            deadline_ns,
            arrival: 0,
            late: false,
            told: false,
            state: State::Waiting,
            course: Course::standing(bytes),
            rate_bps: 0,
            until_ns: 0,
            earlier: (0, 0),
            last: false,
            revision: 0,
            holds: Vec::new(),
            queued: None,
            due_ns: None,
            alarm_ns: None,
            armed: None,
            planned: (0, 0),
        }
    }

    /// Notes that the window stands for a source that does not hear of the next one.
    pub(super) fn note_earlier(&mut self, now_ns: u64, rate_bps: u64) {
        if self.state == State::Granted && self.until_ns > now_ns {
            let (earlier_bps, earlier_ns) = self.earlier;
            self.earlier = (earlier_bps.max(rate_bps), earlier_ns.max(self.until_ns));
        }
    }

    /// Returns the transfer's place among those of the path.
    pub(super) fn key(&self, order: Order) -> Key {
        let late = self.late;
        let class = self.class.0.saturating_add(u8::from(self.lowered));
        let (class, at_ns) = match order {
            Order::Arrival => (0, 0),
            Order::ClassArrival => (class, 0),
            Order::ClassAge => (class, self.born_ns),
            Order::Deadline => (0, self.deadline_ns),
        };
        Key { late, class, surplus: self.surplus, at_ns, arrival: self.arrival }
    }

    /// Returns the transfer's place among those of its device.
    pub(super) fn device_key(&self, order: Order, overtaking: bool) -> Key {
        let in_turn = Key { arrival: self.arrival, ..Key::default() };
        if overtaking { self.key(order) } else { in_turn }
    }
}

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
    fn late_and_surplus_go_behind() {
        let make = |class, born_ns| Transfer::new(ClassId(class), born_ns, born_ns + 10, 1);
        let key = |transfer: &Transfer| transfer.key(Order::ClassAge);
        let (urgent, old, new) = (make(0, 50), make(1, 10), make(1, 20));
        assert!(key(&urgent) < key(&old) && key(&old) < key(&new));
        let late = Transfer { late: true, ..make(1, 0) };
        let surplus = Transfer { surplus: true, ..make(1, 0) };
        let lowered = Transfer { lowered: true, ..make(0, 15) };
        assert!(key(&new) < key(&surplus) && key(&surplus) < key(&late));
        assert!(key(&old) < key(&lowered) && key(&lowered) < key(&new));
        assert!(old.key(Order::Deadline) < urgent.key(Order::Deadline));
    }
}
