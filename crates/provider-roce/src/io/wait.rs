//! Sleeping until packets arrive, or another thread has something to send.
use catchment_verbs::event;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// The socket is readable, or writable where that was waited for.
    Ready,
    /// A [`Waker`] called.
    Woken,
    /// The time is over.
    TimedOut,
}

/// Ends the sleep of another thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the current sleep, or the next one.
    pub fn wake(&self) {
        event::ring(&*self.0);
    }
}

/// Sleeps on a socket, or another descriptor of a carrier of datagrams, and a [`Waker`].
#[derive(Debug)]
pub struct Waiter {
    event: Arc<OwnedFd>,
}

impl Waiter {
    /// Creates a waiter and its event counter.
    ///
    /// # Errors
    /// When the system has no event counter left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: Arc::new(event::event_fd()?) })
    }

    /// Returns a handle with which other threads end a sleep.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.event))
    }

    /// Sleeps until packets have come to `socket`, a [`Waker`] is used, or the time is over; also until
    /// packets can be sent through `blocked`: if the last flush ended with
    /// [`super::Blocked::SocketFull`].
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn sleep(
        &self,
        socket: BorrowedFd<'_>,
        blocked: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> io::Result<Wakeup> {
        let receives = PollFd::from_borrowed_fd(socket, PollFlags::IN);
        match blocked {
            None => self.poll(&mut [self.rings(), receives], timeout),
            Some(full) => {
                let sends = PollFd::from_borrowed_fd(full, PollFlags::OUT);
                self.poll(&mut [self.rings(), receives, sends], timeout)
            }
        }
    }

    /// Sleeps until a [`Waker`] is used or the time is over, whatever arrives at a socket.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn nap(&self, timeout: Duration) -> io::Result<Wakeup> {
        self.poll(&mut [self.rings()], timeout)
    }

    fn rings(&self) -> PollFd<'_> {
        PollFd::new(&*self.event, PollFlags::IN)
    }

    /// Polls the event counter, and the sockets behind it.
    fn poll(&self, fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<Wakeup> {
        match poll(fds, Some(&event::timespec(timeout))) {
            Ok(0) => return Ok(Wakeup::TimedOut),
            Ok(_) => {}
            // A signal: the caller checks for work.
            Err(Errno::INTR) => return Ok(Wakeup::Woken),
            Err(e) => return Err(e.into()),
        }
        if !fds[0].revents().is_empty() {
            // All calls so far are answered by this one wake-up.
            event::take_rings(&*self.event);
        }
        let is_ready = fds[1..].iter().any(|fd| !fd.revents().is_empty());
        Ok(if is_ready { Wakeup::Ready } else { Wakeup::Woken })
    }
}

impl AsFd for Waiter {
    /// Readable after [`Waker::wake`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn another_thread_ends_a_sleep_and_a_sleep_to_come() {
        let (waiter, quiet) = (Waiter::new().unwrap(), event::event_fd().unwrap());
        let sleep = |timeout| waiter.sleep(quiet.as_fd(), None, timeout).unwrap();
        let nap = |timeout| waiter.nap(timeout).unwrap();
        let waker = waiter.waker();
        waker.wake();
        waker.wake();
        assert_eq!(sleep(LONG), Wakeup::Woken);
        assert_eq!(sleep(Duration::from_millis(1)), Wakeup::TimedOut);
        let caller = std::thread::spawn(move || waker.wake());
        assert_eq!(nap(LONG), Wakeup::Woken);
        caller.join().unwrap();
    }

    #[test]
    fn a_readable_socket_ends_a_sleep() {
        let (waiter, socket) = (Waiter::new().unwrap(), event::event_fd().unwrap());
        event::ring(&socket);
        assert_eq!(waiter.sleep(socket.as_fd(), None, LONG).unwrap(), Wakeup::Ready);
    }
}
