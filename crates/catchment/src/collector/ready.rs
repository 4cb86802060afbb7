//! The queue of work that is ready, and how idle workers wait for it.
//!
//! A push wakes a sleeping worker only if no worker is searching. A worker that stops searching
//! checks the queue once more, whether it found something or gives up, because a push may have
//! counted on it.
use super::primitives::{ArrayQueue, AtomicUsize, EventCount, Ordering, SegQueue, fence, relax};
use std::time::Instant;

/// Work for a pool of workers, about oldest first.
pub(super) struct ReadyQueue<T> {
    entries: ArrayQueue<T>,
    /// What finds `entries` full.
    overflow: SegQueue<T>,
    /// Workers that are searching now.
    searching: AtomicUsize,
    /// Rises when a sleeping worker is needed.
    needed: EventCount,
    /// How often an idle worker polls before it sleeps.
    polls: u32,
}

impl<T> ReadyQueue<T> {
    /// Creates a queue that allocates nothing for up to `capacity` entries. An idle worker polls
    /// `polls` times before it sleeps.
    pub(super) fn new(capacity: usize, polls: u32) -> Self {
        Self {
            entries: ArrayQueue::new(capacity),
            overflow: SegQueue::new(),
            searching: AtomicUsize::new(0),
            needed: EventCount::new(),
            polls,
        }
    }

    /// Adds an entry, and wakes a worker if none is searching.
    pub(super) fn push(&self, entry: T) {
        if let Err(entry) = self.entries.push(entry) {
            self.overflow.push(entry);
        }
        self.wake_unless_searching();
    }

    /// Takes the oldest entry, if there is one.
    pub(super) fn try_pop(&self) -> Option<T> {
        self.entries.pop().or_else(|| self.overflow.pop())
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.overflow.is_empty()
    }

    /// Takes the oldest entry. Waits for one until a deadline, which is asked for last of all, or
    /// until [`ReadyQueue::wake_all`].
    pub(super) fn pop(&self, deadline: impl FnOnce() -> Option<Instant>) -> Option<T> {
        if let Some(entry) = self.try_pop() {
            return Some(entry);
        }
        let found = self.search().or_else(|| self.look_and_sleep(deadline));
        if found.is_some() && !self.is_empty() {
            // What is left may have been pushed while this worker was searching, without a wake-up.
            self.wake_unless_searching();
        }
        found
    }

    /// Polls for an entry for a while.
    fn search(&self) -> Option<T> {
        self.searching.fetch_add(1, Ordering::Relaxed);
        let mut found = None;
        for poll in 0..self.polls {
            found = self.try_pop();
            if found.is_some() {
                break;
            }
            relax(poll);
        }
        self.searching.fetch_sub(1, Ordering::Relaxed);
        // A push that saw this worker searching sent no wake-up. After the fence the next check of
        // the queue sees what it pushed.
        fence(Ordering::SeqCst);
        found
    }

    /// Polls once more, then sleeps until a worker is needed.
    fn look_and_sleep(&self, deadline: impl FnOnce() -> Option<Instant>) -> Option<T> {
        let seen = self.needed.current();
        if let Some(entry) = self.try_pop() {
            return Some(entry);
        }
        self.needed.wait(seen, deadline());
        self.try_pop()
    }

    /// Wakes all workers, also those about to sleep.
    pub(super) fn wake_all(&self) {
        self.needed.notify();
    }

    fn wake_unless_searching(&self) {
        fence(Ordering::SeqCst);
        if self.searching.load(Ordering::Relaxed) == 0 {
            self.needed.notify_one();
        }
    }
}
