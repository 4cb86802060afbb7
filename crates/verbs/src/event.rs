//! Event counters (`eventfd`) to sleep on: what providers build watches and completion channels of.
use crate::Wake;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Effectively forever.
const LONGEST: Duration = Duration::from_secs(1 << 30);

/// Creates an event counter that never blocks.
///
/// # Errors
/// When the process or the system has no descriptor left.
pub fn event_fd() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes an event counter readable. A full counter is readable already; a peer's descriptor may be
/// anything, and then no thread is woken.
pub fn ring(fd: impl AsFd) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Takes all rings; returns whether there was one.
pub fn take_rings(fd: impl AsFd) -> bool {
    rustix::io::read(fd, &mut [0u8; 8]).is_ok()
}

/// Returns the time at which `timeout` from now ends.
pub fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + LONGEST)
}

/// Returns a duration as the system's type, capped at the longest that it can hold.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 4),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Waits until `fd` is readable; returns false when the deadline passed.
///
/// # Errors
/// Those of poll(2), except interruptions.
pub fn wait_readable(fd: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    wait_for(fd, PollFlags::IN, deadline)
}

/// Waits until a descriptor takes more, or the deadline; returns whether it does.
///
/// # Errors
/// Those of poll(2).
pub fn wait_writable(fd: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    wait_for(fd, PollFlags::OUT, deadline)
}

fn wait_for(fd: BorrowedFd<'_>, flags: PollFlags, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
        match rustix::event::poll(&mut fds, Some(&timespec(left))) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Sleeps until the counter is rung or the time is over, and takes the rings.
///
/// # Errors
/// As [`wait_readable`].
pub fn wait(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<Wake> {
    if take_rings(fd) {
        return Ok(Wake::Rung);
    }
    let deadline = deadline(timeout);
    while wait_readable(fd, deadline)? {
        // Another thread that waits on the same counter may have been faster.
        if take_rings(fd) {
            return Ok(Wake::Rung);
        }
    }
    Ok(Wake::TimedOut)
}
