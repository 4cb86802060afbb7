//! A word that threads of this process sleep on: futex(2).
use rustix::thread::futex::{self, Flags, Timespec};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// A word, and the threads that sleep until somebody wakes them.
#[derive(Debug, Default)]
pub(super) struct Futex(AtomicU32);

impl Futex {
    pub(super) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps until woken, at most `timeout`; not at all if the word is not `expected`. May return
    /// early.
    pub(super) fn wait(&self, expected: u32, timeout: Option<Duration>) {
        // A time beyond what the kernel takes is no limit.
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        // All that it can say is why it returned early: the caller checks the word.
        let _ = futex::wait(&self.0, Flags::PRIVATE, expected, timeout.as_ref());
    }

    /// Wakes at most `sleepers` threads.
    pub(super) fn wake(&self, sleepers: u32) {
        // Fails only for an address that is none.
        let _ = futex::wake(&self.0, Flags::PRIVATE, sleepers.min(i32::MAX as u32));
    }
}
