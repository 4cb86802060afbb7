//! Whether a viewer wants a picture: asked for each frame, so one load while nobody looks.
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const LOOKED_FOR: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_millis(250);

/// Until when somebody looks, and when the next picture may be made.
#[derive(Debug, Default)]
pub struct Demand {
    /// Nanoseconds of [`now_ns`]; 0 when nobody looks.
    wanted_until_ns: AtomicU64,
    due_ns: AtomicU64,
}

impl Demand {
    /// Requests pictures for the next 3 s.
    pub fn look(&self) {
        self.wanted_until_ns.fetch_max(now_ns().saturating_add(nanos(LOOKED_FOR)), Relaxed);
    }

    /// Returns whether a picture of the next frame would be made. One load while nobody is
    /// watching.
    pub fn is_due(&self) -> bool {
        let until = self.wanted_until_ns.load(Relaxed);
        if until == 0 {
            return false;
        }
        let now = now_ns();
        if now > until {
            // Nobody is watching any more. A viewer who comes back right now has written a later time.
            let _ = self.wanted_until_ns.compare_exchange(until, 0, Relaxed, Relaxed);
            return false;
        }
        now >= self.due_ns.load(Relaxed)
    }

    /// Notes that a picture is made: the next one may be made after a while.
    pub(super) fn made(&self) {
        self.due_ns.store(now_ns().saturating_add(nanos(INTERVAL)), Relaxed);
    }
}

/// Nanoseconds of a monotonic clock, never 0.
fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    nanos(START.get_or_init(Instant::now).elapsed()) + 1
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
