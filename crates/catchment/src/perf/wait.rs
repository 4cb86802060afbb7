//! Waiting as a plan says: looking again and again, or asleep between two looks.

use super::PerfError;
use super::control::PATIENCE;
use super::plan::Waiting;
use catchment_verbs::Watch;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Looks in vain between two looks at clocks, and at the other side.
const VAIN: u32 = 4096;
/// Longest sleep between two such looks.
const NAP: Duration = Duration::from_millis(100);

/// What can be slept on.
pub(super) trait Bed {
    /// From now on something that comes ends [`Bed::doze`]. What is there already does not.
    fn arm(&self);
    /// Sleeps until something has come since [`Bed::arm`], or for at most `limit`.
    fn doze(&self, limit: Duration) -> Result<(), PerfError>;
}

impl Bed for Arc<dyn Watch> {
    fn arm(&self) {
        (**self).arm();
    }

    fn doze(&self, limit: Duration) -> Result<(), PerfError> {
        self.wait(limit).map(|_| ()).map_err(PerfError::Sleep)
    }
}

/// Looks at `seen` until something is found, and asks now and then `in_vain` whether to give up: `None`
/// then. What to sleep on may depend on what is waited for now, so it is asked each time; without, a
/// sleeper yields.
pub(super) fn wait<S, T, B: Bed>(
    seen: &mut S,
    waiting: Waiting,
    bed: impl Fn(&S) -> Option<B>,
    in_vain: &mut dyn FnMut(&S) -> Result<bool, PerfError>,
    mut look: impl FnMut(&mut S) -> Result<Option<T>, PerfError>,
) -> Result<Option<T>, PerfError> {
    let mut vain = 0;
    loop {
        if let Some(found) = look(seen)? {
            return Ok(Some(found));
        }
        vain += 1;
        let sleeps = waiting == Waiting::Sleep;
        if let Some(bed) = sleeps.then(|| bed(seen)).flatten() {
            bed.arm();
            // It may have come before.
            if let Some(found) = look(seen)? {
                return Ok(Some(found));
            }
            bed.doze(NAP)?;
            vain = VAIN;
        } else {
            std::thread::yield_now();
        }
        if vain >= VAIN {
            vain = 0;
            if in_vain(seen)? {
                return Ok(None);
            }
        }
    }
}

/// Says that it is over, as an error, when nothing came for too long.
pub(super) fn patience() -> impl FnMut() -> Result<bool, PerfError> {
    let start = Instant::now();
    move || {
        if start.elapsed() < PATIENCE {
            return Ok(false);
        }
        Err(PerfError::Silent {
            seconds: PATIENCE.as_secs(),
        })
    }
}
