//! A doorbell: an armed flag and a descriptor to sleep on.
use super::arm::{self, Flags};
use crate::{Wake, Watch, event};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// The bit of the flag that a doorbell uses.
const ARMED: u32 = 1;

/// Rung by some threads or processes, slept on by others. Costs the ringer a fence and a load while
/// no thread sleeps. All threads that sleep on one doorbell share it: a ring wakes one of them.
///
/// `F` is the armed flag: a word of its own, or one in memory that another process reaches. A
/// sleeper elsewhere is rung with [`arm::take_armed`] and the descriptor.
#[derive(Debug)]
pub struct Doorbell<F = AtomicU32> {
    armed: F,
    event: OwnedFd,
}

impl Doorbell {
    /// Creates a doorbell for threads of this process.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Self::with_flag(AtomicU32::new(0))
    }
}

impl<F: Flags> Doorbell<F> {
    /// Creates a doorbell that is armed by this flag.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn with_flag(armed: F) -> io::Result<Self> {
        let event = event::event_fd()?;
        Ok(Self { armed, event })
    }

    /// Makes the caller's earlier stores visible, then wakes the sleeper if there is one.
    #[inline]
    pub fn ring(&self) {
        F::fence();
        self.ring_fenced();
    }

    /// Like [`Doorbell::ring`], for a caller that has made the fence.
    #[inline]
    pub fn ring_fenced(&self) {
        if arm::take_armed_fenced(&self.armed) != 0 {
            event::ring(&self.event);
        }
    }
}

impl<F: Flags + Send + Sync> Watch for Doorbell<F> {
    fn arm(&self) {
        arm::arm(&self.armed, ARMED);
    }

    fn disarm(&self) {
        self.armed.clear(ARMED);
    }

    fn wait(&self, timeout: Duration) -> io::Result<Wake> {
        event::wait(self.event.as_fd(), timeout)
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        event::ring(&self.event);
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_armed_doorbell_rings_and_only_once() {
        let bell = Doorbell::new().unwrap();
        let wait = || bell.wait(Duration::ZERO).unwrap();
        bell.ring();
        assert_eq!(wait(), Wake::TimedOut);
        bell.arm();
        bell.ring();
        bell.ring();
        assert_eq!((wait(), wait()), (Wake::Rung, Wake::TimedOut));
        bell.arm();
        bell.disarm();
        bell.ring();
        assert_eq!(wait(), Wake::TimedOut);
        bell.wake();
        assert_eq!(wait(), Wake::Rung);
    }
}
