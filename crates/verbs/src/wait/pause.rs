//! One pause of a thread that polls and found nothing.
use super::{Step, Waiter};
use crate::{Wake, Watch};
use std::io;
use std::time::Duration;

/// What became of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused<T> {
    /// The look between arming and sleeping found it.
    Found(T),
    /// It is over: something may have come.
    Over,
    /// It was a sleep in which nothing rang.
    InVain,
}

/// Pauses after a poll that found nothing, as the waiter says; sleeps on the watch for `longest` at most, after it has armed
/// it and looked once more.
///
/// # Errors
/// That of `look`, or of the system, which refuses the sleep.
#[inline]
pub fn pause<T, E: From<io::Error>>(
    waiter: &mut Waiter,
    watch: &dyn Watch,
    longest: Duration,
    look: impl FnOnce() -> Result<Option<T>, E>,
) -> Result<Paused<T>, E> {
    match waiter.empty() {
        Step::Spin => std::hint::spin_loop(),
        Step::Yield => std::thread::yield_now(),
        // A policy of fixed or growing sleeps has no event.
        Step::Sleep(time) => std::thread::sleep(time.min(longest)),
        Step::Block => {
            watch.arm();
            if let Some(found) = look()? {
                return Ok(Paused::Found(found));
            }
            if watch.wait(longest)? == Wake::TimedOut {
                waiter.timed_out();
                return Ok(Paused::InVain);
            }
        }
    }
    Ok(Paused::Over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::WaitPolicy;
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// Rings as often as it was told to.
    #[derive(Default)]
    struct Bell {
        rings: AtomicU32,
        armed: AtomicBool,
    }

    impl Watch for Bell {
        fn arm(&self) {
            self.armed.store(true, Ordering::Relaxed);
        }

        fn disarm(&self) {}

        fn wait(&self, _: Duration) -> io::Result<Wake> {
            let had = self
                .rings
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rings| rings.checked_sub(1));
            Ok(had.map_or(Wake::TimedOut, |_| Wake::Rung))
        }

        fn wake(&self) {
            self.rings.fetch_add(1, Ordering::Relaxed);
        }

        fn as_fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    #[test]
    fn a_sleeper_looks_once_more_when_it_has_armed_and_sleeps_again_when_nothing_rang() {
        let (bell, mut waiter) =
            (Bell::default(), Waiter::new(WaitPolicy::Doorbell { spin_polls: 3 }, 8));
        let mut once = |found: Option<u8>| {
            let look = || {
                assert!(bell.armed.swap(false, Ordering::Relaxed), "it looks after it has armed");
                Ok::<_, io::Error>(found)
            };
            pause(&mut waiter, &bell, Duration::from_millis(1), look).unwrap()
        };
        assert_eq!((once(None), once(None)), (Paused::Over, Paused::Over), "it spins");
        assert_eq!(once(Some(7)), Paused::Found(7));
        assert_eq!((once(None), once(None)), (Paused::Over, Paused::Over), "and starts again");
        assert_eq!((once(None), once(None)), (Paused::InVain, Paused::InVain));
        bell.wake();
        assert_eq!(once(None), Paused::Over);
        assert!(!bell.armed.load(Ordering::Relaxed));
    }

    #[test]
    fn what_goes_wrong_in_the_look_is_told() {
        let mut waiter = Waiter::new(WaitPolicy::Doorbell { spin_polls: 1 }, 8);
        let look = || Err::<Option<u8>, _>(io::Error::from(io::ErrorKind::BrokenPipe));
        let paused = pause(&mut waiter, &Bell::default(), Duration::from_millis(1), look);
        assert_eq!(paused.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
