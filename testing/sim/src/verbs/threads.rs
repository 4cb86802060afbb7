//! Programs as threads in virtual time, each on its own processor.
use super::Fabric;
use std::time::Duration;

/// What a thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is busy for this time.
    Busy(Duration),
    /// It found nothing: it runs again after any change.
    Idle,
    Done,
}

/// A program that never blocks.
pub trait Thread<E> {
    fn step(&mut self, now: Duration) -> Result<Next, E>;
}

/// A deadlock: all threads are idle and no event is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("at {at:?} all threads wait for each other")]
pub struct Stuck {
    /// Virtual time.
    pub at: Duration,
}

/// More steps than this at one time are a livelock.
const STEPS_PER_MOMENT_MOST: u32 = 10_000_000;

/// Runs threads until the first one is done.
///
/// # Errors
/// The error of a thread's step; [`Stuck`] on a deadlock.
pub fn run<E: From<Stuck>>(fabric: &Fabric, threads: &mut [&mut dyn Thread<E>]) -> Result<(), E> {
    // When each runs next; `None` for one that waits for a change.
    let mut due: Vec<Option<Duration>> = vec![Some(fabric.now()); threads.len()];
    loop {
        if moment(fabric, threads, &mut due)? {
            return Ok(());
        }
        let next = due.iter().copied().flatten().chain(fabric.next_event());
        let Some(next) = next.min() else {
            return Err(Stuck { at: fabric.now() }.into());
        };
        fabric.advance_to(next);
        // Something may have changed.
        for due in due.iter_mut().filter(|due| due.is_none()) {
            *due = Some(next);
        }
    }
}

/// Runs all threads that are due now; returns true when one is done.
fn moment<E: From<Stuck>>(
    fabric: &Fabric,
    threads: &mut [&mut dyn Thread<E>],
    due: &mut [Option<Duration>],
) -> Result<bool, E> {
    let now = fabric.now();
    for _ in 0..STEPS_PER_MOMENT_MOST {
        let mut changed = false;
        for at in 0..threads.len() {
            if due[at].is_none_or(|due| due > now) {
                continue;
            }
            due[at] = match threads[at].step(now)? {
                Next::Done => return Ok(true),
                Next::Idle => None,
                Next::Busy(time) => {
                    changed = true;
                    Some(now + time)
                }
            };
        }
        if !changed {
            return Ok(false);
        }
        // One may have done what another waits for.
        for due in due.iter_mut().filter(|due| due.is_none()) {
            *due = Some(now);
        }
    }
    Err(Stuck { at: now }.into())
}
