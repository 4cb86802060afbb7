//! Completion queues of providers whose completions are made by software, and their channels.
use super::CqEntry;
use crate::wait::arm::{self, Flags};
use crate::{Completion, CompletionChannel, CqError, event};
use crossbeam_queue::ArrayQueue;
use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Duration;

/// A notification is requested for any completion.
const ANY: u32 = 1;
/// A notification is requested for a solicited or failed completion.
const SOLICITED: u32 = 2;

/// A completion queue: any thread adds entries, any thread polls them.
///
/// The queue never allocates after its creation and takes no lock. While no thread sleeps,
/// notifying costs only the fence before [`CompletionQueue::announce_fenced`].
#[derive(Debug)]
pub struct CompletionQueue {
    entries: ArrayQueue<CqEntry>,
    overrun: AtomicBool,
    /// Requested notifications: bits of the constants above.
    requested: AtomicU32,
    channel: Option<EventChannel>,
}

impl CompletionQueue {
    /// Creates a queue of `capacity` entries (at least 1) whose notifications go to `channel`.
    pub fn new(capacity: u32, channel: Option<EventChannel>) -> Self {
        Self {
            entries: ArrayQueue::new(capacity as usize),
            overrun: AtomicBool::new(false),
            requested: AtomicU32::new(0),
            channel,
        }
    }

    /// Returns how many completions it holds at most.
    pub fn capacity(&self) -> u32 {
        self.entries.capacity() as u32
    }

    /// Returns the channel of the queue.
    pub fn channel(&self) -> Option<&EventChannel> {
        self.channel.as_ref()
    }

    /// Returns whether completions were lost.
    #[inline]
    pub fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Returns whether a notification is requested.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.requested.peek() != 0
    }

    /// Adds a completion; returns true if it is the first one that is lost because the queue is
    /// full. [`CompletionQueue::announce`] must follow.
    #[inline]
    #[must_use]
    pub fn push(&self, entry: CqEntry) -> bool {
        self.entries.push(entry).is_err() && !self.overrun.swap(true, Ordering::AcqRel)
    }

    /// Wakes a thread that requested a notification for such a completion; `solicited` also stands
    /// for failed.
    #[inline]
    pub fn announce(&self, solicited: bool) {
        fence(Ordering::SeqCst);
        self.announce_fenced(solicited);
    }

    /// Like [`CompletionQueue::announce`], for a caller that has made a `SeqCst` fence since it
    /// added the completion: one is enough for several queues.
    #[inline]
    pub fn announce_fenced(&self, solicited: bool) {
        let requested = self.requested.peek();
        if requested != 0 {
            self.notify(requested, solicited);
        }
    }

    #[cold]
    fn notify(&self, requested: u32, solicited: bool) {
        let matches = requested & ANY != 0 || solicited;
        if matches
            && self.requested.take() != 0
            && let Some(channel) = &self.channel
        {
            channel.notify();
        }
    }

    /// Requests a notification for the next completion, or the next solicited or failed one. What
    /// was added before is found by polling after this call.
    pub fn request_notify(&self, solicited_only: bool) {
        arm::arm(&self.requested, if solicited_only { SOLICITED } else { ANY });
    }

    /// Moves completions to the front of `out` and returns how many.
    ///
    /// # Errors
    /// [`CqError::Overrun`] when completions were lost.
    #[inline]
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        if self.is_overrun() {
            return Err(CqError::Overrun(self.capacity()));
        }
        Ok(self.drain(out))
    }

    /// Like [`CompletionQueue::poll`], also after an overrun.
    #[inline]
    pub fn drain(&self, out: &mut [Completion]) -> usize {
        // Popping from an empty queue costs a fence.
        if self.entries.is_empty() {
            return 0;
        }
        for (n, place) in out.iter_mut().enumerate() {
            let Some(entry) = self.entries.pop() else { return n };
            *place = entry.polled();
        }
        out.len()
    }
}

/// A completion channel: an event counter that threads sleep on, and the number of notifications.
///
/// The counter can also be rung without a notification, to let the sleeper move data that only it
/// can move ([`EventChannel::nudge`], or a peer that has the descriptor).
///
/// Clones are handles to the same channel.
#[derive(Debug, Clone)]
pub struct EventChannel(Arc<Events>);

#[derive(Debug)]
struct Events {
    event: OwnedFd,
    /// Notifications that no waiter has taken.
    notifications: AtomicU32,
}

impl EventChannel {
    /// Creates a channel.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Events { event: event::event_fd()?, notifications: AtomicU32::new(0) })))
    }

    /// Adds a notification and wakes a sleeper.
    pub fn notify(&self) {
        self.0.notifications.fetch_add(1, Ordering::AcqRel);
        event::ring(&self.0.event);
    }

    /// Wakes a sleeper without a notification.
    pub fn nudge(&self) {
        event::ring(&self.0.event);
    }

    /// Sleeps until there is a notification, and takes all; returns false when the time is over.
    /// Before each sleep it calls `progress`, which may cause notifications.
    ///
    /// # Errors
    /// What poll(2) reports.
    pub fn wait_with(&self, timeout: Duration, mut progress: impl FnMut()) -> io::Result<bool> {
        let deadline = event::deadline(timeout);
        loop {
            event::take_rings(&self.0.event);
            if self.take() {
                return Ok(true);
            }
            progress();
            if !self.is_notified() && !event::wait_readable(self.0.event.as_fd(), deadline)? {
                return Ok(false);
            }
        }
    }

    /// Returns whether there is a notification that no waiter has taken.
    pub fn is_notified(&self) -> bool {
        self.0.notifications.load(Ordering::Acquire) > 0
    }

    /// Takes all notifications; returns whether there was one.
    fn take(&self) -> bool {
        self.0.notifications.swap(0, Ordering::AcqRel) > 0
    }
}

impl CompletionChannel for EventChannel {
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        self.wait_with(timeout, || {})
    }

    fn wake(&self) {
        self.notify();
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::WorkQueueCredits;

    fn entry(seq: u64) -> CqEntry {
        let completion = Completion { wr_id: seq, ..Completion::EMPTY };
        CqEntry { completion, credits: Arc::new(WorkQueueCredits::default()), seq }
    }

    #[test]
    fn completions_are_polled_in_order_and_an_overrun_is_reported_once_and_for_all() {
        let queue = CompletionQueue::new(2, None);
        assert!(!queue.push(entry(1)) && !queue.push(entry(2)));
        let mut out = [Completion::EMPTY; 4];
        assert_eq!(queue.poll(&mut out), Ok(2));
        assert_eq!((out[0].wr_id, out[1].wr_id), (1, 2));
        let lost = [3, 4, 5, 6].map(|seq| queue.push(entry(seq)));
        assert_eq!(lost, [false, false, true, false], "only the first loss counts");
        let overrun = Err(CqError::Overrun(2));
        assert_eq!(queue.poll(&mut out), overrun);
        assert_eq!(queue.drain(&mut out), 2);
        assert_eq!(queue.poll(&mut out), overrun);
    }

    #[test]
    fn a_request_is_answered_once_and_only_by_what_it_asked_for() {
        let channel = EventChannel::new().unwrap();
        let queue = CompletionQueue::new(8, Some(channel.clone()));
        let notified = || channel.wait(Duration::ZERO).unwrap();
        queue.announce(true);
        assert!(!notified(), "none was requested");
        queue.request_notify(true);
        queue.announce(false);
        assert!(!notified());
        queue.announce(true);
        assert!(notified());
        queue.request_notify(true);
        queue.request_notify(false);
        queue.announce(false);
        queue.announce(false);
        assert!(notified() && !notified() && !queue.is_requested());
        channel.nudge();
        assert!(!notified(), "a nudge is no notification");
    }
}
