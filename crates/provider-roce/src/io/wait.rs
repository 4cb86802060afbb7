//! Waiting for packets: spin while that pays, then sleep.
//!
//! Waking a sleeper takes several microseconds, so a thread that expects an answer soon polls for it
//! without sleeping. Between two looks the thread yields its core: on a machine with two cores the
//! peer, or the application, may be what has to run there. How long to look is learned: it grows
//! while answers come soon and shrinks to nothing while they do not, so an idle device costs no CPU.
use catchment_verbs::event;
use catchment_verbs::wait::SpinBudget;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// What was waited for is there, or a socket is readable.
    Ready,
    /// A [`Waker`] called.
    Woken,
    /// The time is over.
    TimedOut,
}

/// A socket, or another descriptor of a carrier of datagrams, that is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'a> {
    fd: BorrowedFd<'a>,
    blocked: bool,
}

impl<'a> Watched<'a> {
    /// Waits for packets.
    pub fn readable(socket: &'a impl AsFd) -> Watched<'a> {
        Watched::new(socket.as_fd(), false)
    }

    /// Waits for packets, and until packets can be sent if `blocked`: if the last flush ended with
    /// [`super::Blocked::SocketFull`].
    pub fn new(fd: BorrowedFd<'a>, blocked: bool) -> Watched<'a> {
        Watched { fd, blocked }
    }
}

/// Ends the wait of another thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the present wait, or else the next one.
    pub fn wake(&self) {
        event::ring(&*self.0);
    }
}

/// Waits on sockets and a [`Waker`].
#[derive(Debug)]
pub struct Waiter {
    event: Arc<OwnedFd>,
    spin: SpinBudget,
}

impl Waiter {
    /// A waiter that looks for at most `spin_max` before it sleeps; zero always sleeps.
    ///
    /// # Errors
    /// When the system has no event counter left.
    pub fn new(spin_max: Duration) -> io::Result<Waiter> {
        Ok(Waiter { event: Arc::new(event::event_fd()?), spin: SpinBudget::new(spin_max) })
    }

    /// Returns what other threads end a wait with.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.event))
    }

    /// Returns how long it would look before it sleeps, now.
    pub fn spin(&self) -> Duration {
        self.spin.now()
    }

    /// Waits until `look` finds something, a socket is readable, a [`Waker`] is used, or the time is
    /// over. `look` must not block; it is called at least once.
    ///
    /// # Errors
    /// What `look` or poll(2) says.
    pub fn wait(
        &mut self,
        sockets: &[Watched<'_>],
        timeout: Duration,
        mut look: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<Wakeup> {
        let start = Instant::now();
        let limit = self.spin.now().min(timeout);
        loop {
            if look()? {
                return Ok(Wakeup::Ready);
            }
            if start.elapsed() >= limit {
                break;
            }
            std::thread::yield_now();
        }
        let wakeup = self.sleep(sockets, timeout.saturating_sub(start.elapsed()))?;
        self.spin.learn(start.elapsed());
        Ok(wakeup)
    }

    /// Sleeps until a socket is readable (or writable, where that is waited for), a [`Waker`] is used,
    /// or the time is over.
    ///
    /// # Errors
    /// What poll(2) says.
    pub fn sleep(&self, sockets: &[Watched<'_>], timeout: Duration) -> io::Result<Wakeup> {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(sockets.len() + 1);
        fds.push(PollFd::new(&*self.event, PollFlags::IN));
        fds.extend(sockets.iter().map(|watched| {
            let mut events = PollFlags::IN;
            events.set(PollFlags::OUT, watched.blocked);
            PollFd::from_borrowed_fd(watched.fd, events)
        }));
        match poll(&mut fds, Some(&event::timespec(timeout))) {
            Ok(0) => return Ok(Wakeup::TimedOut),
            Ok(_) => {}
            // A signal: the caller looks what there is to do.
            Err(Errno::INTR) => return Ok(Wakeup::Woken),
            Err(e) => return Err(e.into()),
        }
        let readable = fds[1..].iter().any(|fd| !fd.revents().is_empty());
        let woken = !fds[0].revents().is_empty();
        if woken {
            // All calls so far are answered by this one wake-up.
            event::take_rings(&*self.event);
        }
        Ok(if readable { Wakeup::Ready } else { Wakeup::Woken })
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

    fn nothing() -> io::Result<bool> {
        Ok(false)
    }

    #[test]
    fn another_thread_ends_a_wait_and_a_wait_to_come() {
        let mut waiter = Waiter::new(Duration::ZERO).unwrap();
        let waker = waiter.waker();
        waker.wake();
        waker.wake();
        assert_eq!(waiter.wait(&[], LONG, nothing).unwrap(), Wakeup::Woken);
        let short = Duration::from_millis(1);
        assert_eq!(waiter.wait(&[], short, nothing).unwrap(), Wakeup::TimedOut);
        let caller = std::thread::spawn(move || waker.wake());
        assert_eq!(waiter.wait(&[], LONG, nothing).unwrap(), Wakeup::Woken);
        caller.join().unwrap();
    }

    #[test]
    fn what_is_there_is_found_without_sleeping() {
        let mut waiter = Waiter::new(Duration::ZERO).unwrap();
        let mut looks = 0;
        let found = waiter.wait(&[], LONG, || {
            looks += 1;
            Ok(true)
        });
        assert_eq!((found.unwrap(), looks), (Wakeup::Ready, 1));
    }
}
