//! A timer as fine as the system's: those of tokio are of whole milliseconds, rounded up, and a round takes one.
use catchment_verbs::event;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// See the module.
pub(super) struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    /// Makes one, within a runtime.
    #[allow(
        deprecated,
        reason = "what replaces `new` is unsafe, for descriptors that are not owned"
    )]
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    /// Waits for a time.
    pub(super) async fn wait_until(&self, due: Instant) {
        // Zero would stop it.
        let after = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: event::timespec(Duration::ZERO),
            it_value: event::timespec(after),
        };
        if timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once).is_err() {
            return tokio::time::sleep_until(due.into()).await;
        }
        while let Ok(mut ready) = self.0.readable().await {
            let read = |timer: &AsyncFd<OwnedFd>| Ok(rustix::io::read(timer, &mut [0_u8; 8])?);
            if ready.try_io(read).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    #[test]
    fn it_waits_until_each_time_and_no_earlier_one_counts() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let alarm = Alarm::new().unwrap();
            let begun = Instant::now();
            // What is given up rings for nobody.
            let late = alarm.wait_until(begun + Duration::from_secs(3600));
            assert!(tokio::time::timeout(Duration::ZERO, late).await.is_err());
            for ms in [0, 1, 5] {
                let due = begun + Duration::from_millis(ms);
                alarm.wait_until(due).await;
                assert!(Instant::now() >= due, "{ms} ms");
            }
        });
    }
}
