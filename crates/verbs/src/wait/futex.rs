//! A word that threads sleep on until they are woken: futex(2).
use crate::event;
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Which threads sleep on a word and wake others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Threads of this process only.
    Process,
    /// Threads of all processes that map the word.
    Shared,
}

impl Scope {
    fn flags(self) -> Flags {
        match self {
            Self::Process => Flags::PRIVATE,
            Self::Shared => Flags::empty(),
        }
    }
}

/// Sleeps while the word has this value, until woken, at most `timeout`. May return early: check
/// the word again.
///
/// # Errors
/// Those of futex(2), except the reasons to check the word again.
pub fn sleep(
    word: &AtomicU32,
    scope: Scope,
    value: u32,
    timeout: Option<Duration>,
) -> io::Result<()> {
    let timeout = timeout.map(event::timespec);
    match futex::wait(word, scope.flags(), value, timeout.as_ref()) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Wakes at most `most` of the threads that sleep on this word.
pub fn wake(word: &AtomicU32, scope: Scope, most: u32) {
    // Fails only for an invalid address.
    let _ = futex::wake(word, scope.flags(), most.min(i32::MAX as u32));
}

/// A word of this process, and the threads that sleep on it.
#[derive(Debug, Default)]
pub(super) struct Futex(AtomicU32);

impl Futex {
    pub(super) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Like [`sleep`]. An error only explains an early return: the caller checks the word.
    pub(super) fn wait(&self, expected: u32, timeout: Option<Duration>) {
        let _ = sleep(&self.0, Scope::Process, expected, timeout);
    }

    /// Like [`wake`].
    pub(super) fn wake(&self, sleepers: u32) {
        wake(&self.0, Scope::Process, sleepers);
    }
}
