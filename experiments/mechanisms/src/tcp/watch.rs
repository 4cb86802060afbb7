//! Sleeping on a socket as on memory.
use catchment_verbs::{Wake, Watch, event};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A socket, and a counter to wake the sleeper by.
pub(super) struct SocketWatch {
    socket: Arc<OwnedFd>,
    awaited: PollFlags,
    /// While this is set, room to write is awaited too.
    has_unsent: Arc<AtomicBool>,
    wake: OwnedFd,
}

impl SocketWatch {
    /// Waits for something to read, or for room to write while the sending end `has_unsent` bytes: a
    /// peer that answers only a whole block would otherwise leave both sides asleep.
    pub(super) fn readable(
        socket: Arc<OwnedFd>,
        has_unsent: Arc<AtomicBool>,
    ) -> io::Result<Arc<Self>> {
        Self::new(socket, PollFlags::IN, has_unsent)
    }

    /// Waits for room to write.
    pub(super) fn writable(socket: Arc<OwnedFd>) -> io::Result<Arc<Self>> {
        Self::new(socket, PollFlags::OUT, Arc::default())
    }

    fn new(
        socket: Arc<OwnedFd>,
        awaited: PollFlags,
        has_unsent: Arc<AtomicBool>,
    ) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { socket, awaited, has_unsent, wake: event::event_fd()? }))
    }

    fn poll(&self, left: Duration) -> rustix::io::Result<bool> {
        let mut awaited = self.awaited;
        if self.has_unsent.load(Ordering::Relaxed) {
            awaited |= PollFlags::OUT;
        }
        let mut fds = [
            PollFd::from_borrowed_fd(self.socket.as_fd(), awaited),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        Ok(rustix::event::poll(&mut fds, Some(&event::timespec(left)))? > 0)
    }
}

impl Watch for SocketWatch {
    fn arm(&self) {}

    fn disarm(&self) {}

    fn wait(&self, timeout: Duration) -> io::Result<Wake> {
        let deadline = event::deadline(timeout);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.poll(left) {
                Ok(false) => return Ok(Wake::TimedOut),
                Ok(true) => {
                    event::take_rings(&self.wake);
                    return Ok(Wake::Rung);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn wake(&self) {
        event::ring(&self.wake);
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
