//! Whether a viewer wants a picture: checked for each frame, with one load when there is no viewer.
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const WANTED_FOR: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_millis(250);

/// Until when pictures are wanted, and when the next one may be made.
#[derive(Debug, Default)]
pub struct Demand {
    /// Nanoseconds of [`now_ns`]; 0 without a viewer.
    wanted_until_ns: AtomicU64,
    due_ns: AtomicU64,
}

impl Demand {
    /// Requests pictures for the next 3 s.
    pub fn request(&self) {
        self.wanted_until_ns.fetch_max(now_ns().saturating_add(nanos(WANTED_FOR)), Relaxed);
    }

    /// Returns whether a picture of the next frame would be made. One load without a viewer.
    pub fn is_due(&self) -> bool {
        let until = self.wanted_until_ns.load(Relaxed);
        if until == 0 {
            return false;
        }
        let now = now_ns();
        if now > until {
            // The viewer has left. One that returns right now has written a later time.
            let _ = self.wanted_until_ns.compare_exchange(until, 0, Relaxed, Relaxed);
            return false;
        }
        now >= self.due_ns.load(Relaxed)
    }

    /// Notes that a picture is made: the next one is due after [`INTERVAL`].
    pub(super) fn made(&self) {
        self.due_ns.store(now_ns().saturating_add(nanos(INTERVAL)), Relaxed);
    }
}

/// Returns the nanoseconds of a monotonic clock, never 0.
fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    nanos(START.get_or_init(Instant::now).elapsed()) + 1
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
