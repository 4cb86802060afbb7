//! Waiting as a plan says: polling with yields in between, or asleep between two looks.
use crate::PerfError;
use crate::control::PATIENCE;
use crate::plan::Waiting;
use catchment_verbs::Watch;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Empty looks between two looks at clocks, and at the other side.
const EMPTY_LOOKS: u32 = 4096;
/// Longest sleep between two such looks.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Calls `look` until it finds something, and `idle` now and then, which returns whether to give up:
/// `None` then. What can be slept on may depend on what is waited for now, so `watch` is asked before
/// each sleep; where there is nothing, a sleeper yields.
///
/// # Errors
/// Those of `look` and `idle`, and [`PerfError::Sleep`].
pub fn wait_for<S, T>(
    state: &mut S,
    waiting: Waiting,
    watch: impl Fn(&S) -> Option<Arc<dyn Watch>>,
    idle: &mut dyn FnMut(&S) -> Result<bool, PerfError>,
    mut look: impl FnMut(&mut S) -> Result<Option<T>, PerfError>,
) -> Result<Option<T>, PerfError> {
    let mut empty = 0;
    loop {
        if let Some(found) = look(state)? {
            return Ok(Some(found));
        }
        empty += 1;
        let sleeps = waiting == Waiting::Sleep;
        if let Some(watch) = sleeps.then(|| watch(state)).flatten() {
            watch.arm();
            // It may have come before.
            if let Some(found) = look(state)? {
                return Ok(Some(found));
            }
            watch.wait(SLEEP_MAX).map_err(PerfError::Sleep)?;
            empty = EMPTY_LOOKS;
        } else {
            std::thread::yield_now();
        }
        if empty >= EMPTY_LOOKS {
            empty = 0;
            if idle(state)? {
                return Ok(None);
            }
        }
    }
}

/// Returns a function that fails once nothing came for too long.
pub fn patience() -> impl FnMut() -> Result<bool, PerfError> {
    let start = Instant::now();
    move || {
        if start.elapsed() < PATIENCE {
            return Ok(false);
        }
        Err(PerfError::Silent(PATIENCE.as_secs()))
    }
}
