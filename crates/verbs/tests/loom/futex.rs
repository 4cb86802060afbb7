//! What futex(2) promises: the word is compared and the thread put to sleep in one step.
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Futex {
    word: AtomicU32,
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    pub(crate) fn wait(&self, expected: u32, _: Option<Duration>) {
        let sleepers = self.sleepers.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(sleepers).unwrap());
        }
    }

    pub(crate) fn wake(&self, sleepers: u32) {
        drop(self.sleepers.lock().unwrap());
        if sleepers == 1 { self.woken.notify_one() } else { self.woken.notify_all() }
    }
}
