//! How long a message and its answer take.
const MS: u64 = 1_000_000;
/// The least time after which something is repeated.
const REPEAT_NS_MIN: u64 = 2 * MS;
/// The least round trip is of this time, at least, and of twice this at most.
const LEAST_NS: u64 = 15_000 * MS;
/// After this time one is to be measured again.
const KNOWN_NS: u64 = 1_000 * MS;

/// Round trips, as they are measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    smooth_ns: u32,
    /// The least of this period and of the one before.
    least: [u32; 2],
    since_ns: u64,
    /// The last one was measured then.
    measured_ns: u64,
    /// What was repeated waited so long, since the last round trip was measured.
    backed_off_ns: u32,
}

/// Returns a time in four bytes, as there are many sources; more than 4.29 s counts as that.
fn short(time_ns: u64) -> u32 {
    u32::try_from(time_ns).unwrap_or(u32::MAX)
}

impl RoundTrip {
    /// Begins with a round trip that is known already, or 0.
    pub(super) fn new(now_ns: u64, first_ns: u64) -> Self {
        let (backed_off_ns, unknown) = (0, u32::MAX);
        let first = if first_ns == 0 { unknown } else { short(first_ns) };
        let (since_ns, measured_ns) = (now_ns, 0);
        Self {
            smooth_ns: short(first_ns),
            least: [first, unknown],
            since_ns,
            measured_ns,
            backed_off_ns,
        }
    }

    pub(super) fn sample(&mut self, now_ns: u64, round_trip_ns: u64) {
        let round_trip_ns = short(round_trip_ns);
        self.smooth_ns = match self.smooth_ns {
            0 => round_trip_ns,
            smooth_ns => smooth_ns - smooth_ns / 8 + round_trip_ns / 8,
        };
        if now_ns.saturating_sub(self.since_ns) > LEAST_NS {
            self.least = [round_trip_ns, self.least[0]];
            self.since_ns = now_ns;
        }
        self.least[0] = self.least[0].min(round_trip_ns);
        (self.measured_ns, self.backed_off_ns) = (now_ns, 0);
    }

    /// Returns whether one was measured lately, and nothing was repeated since.
    pub(super) const fn is_known(&self, now_ns: u64) -> bool {
        let is_recent = now_ns.saturating_sub(self.measured_ns) < KNOWN_NS;
        self.measured_ns > 0 && is_recent && self.backed_off_ns == 0
    }

    /// Notes that something is repeated. Whose round trip is longer than the time to the first repeat cannot
    /// measure it, as an answer may be to either: so what is told next waits as long, until one is measured
    /// (RFC 6298, section 5.7).
    pub(super) fn back_off(&mut self, repeat: &Repeat) {
        self.backed_off_ns = self.backed_off_ns.max(short(repeat.interval_ns));
    }

    /// Returns the least of late, 0 while none is known.
    pub(super) fn least_ns(&self) -> u64 {
        match self.least[0].min(self.least[1]) {
            u32::MAX => 0,
            least_ns => least_ns.into(),
        }
    }

    /// Returns after which time something is repeated for the first time: a lease at most, whatever was measured
    /// while an end was held up.
    pub(super) fn repeat_ns(&self, lease_ns: u64) -> u64 {
        let round_trips_ns = (2 * u64::from(self.smooth_ns)).min(lease_ns);
        round_trips_ns.max(REPEAT_NS_MIN).max(self.backed_off_ns.into())
    }
}

/// When something is repeated: after growing times, up to a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    pub(super) due_ns: u64,
    interval_ns: u64,
}

impl Repeat {
    pub(super) const fn new(now_ns: u64, first_ns: u64) -> Self {
        Self { due_ns: now_ns.saturating_add(first_ns), interval_ns: first_ns }
    }

    /// Says a few times in a lease that something goes on which the other end has seen.
    pub(super) const fn going_on(now_ns: u64, lease_ns: u64) -> Self {
        Self::new(now_ns, lease_ns / 3)
    }

    /// Goes on to the next time.
    pub(super) fn step(&mut self, now_ns: u64, lease_ns: u64) {
        self.interval_ns = self.interval_ns.saturating_mul(2).min(lease_ns);
        self.due_ns = now_ns.saturating_add(self.interval_ns);
    }
}
