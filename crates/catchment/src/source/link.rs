//! The connection to a collector that filling threads use: a sender, and how to wait for it.
use super::gate::Gate;
use catchment_transfer::{ReserveError, Sender, WriteBlock};
use catchment_verbs::sync::{Condvar, Mutex};
use catchment_verbs::wait::{Backoff, BackoffPolicy};
use catchment_verbs::{CompletionChannel, Watch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// How long a thread that finds the link dead waits for the control thread to notice.
const A_MOMENT: Duration = Duration::from_millis(1);

pub(super) struct Link {
    sender: Sender,
    watch: Option<Arc<dyn Watch>>,
    pub(super) gate: Gate,
    /// Where the thread of [`driver`](super::driver) sleeps, if there is one.
    completions: Option<Arc<dyn CompletionChannel>>,
    /// Nothing goes through it any more, not even what was committed.
    over: AtomicBool,
    payload_bytes_max: usize,
    quota: usize,
    checksum: bool,
    /// Whether a thread sleeps on the watch, or is about to. A ring wakes one thread only, so the
    /// others wait for that one.
    on_watch: Mutex<bool>,
    woken: Condvar,
    /// How long the next thread sleeps that waits for room without a doorbell.
    backoff: Mutex<Backoff>,
}

/// What a thread that waits for room sees.
enum Look {
    Room,
    Full,
    Dead,
}

/// What became of a claim.
pub(super) enum Reserve {
    Block(WriteBlock),
    /// No block is free for this stream at the moment.
    Full,
    /// The session is over.
    Dead,
}

impl Link {
    /// A link through `sender`, in which a stream may have `quota` blocks outstanding. `completions`
    /// is where somebody waits who keeps it going.
    pub(super) fn new(
        sender: Sender,
        quota: usize,
        checksum: bool,
        completions: Option<Arc<dyn CompletionChannel>>,
    ) -> Link {
        Link {
            watch: sender.free_watch(),
            payload_bytes_max: sender.layout().max_payload_bytes() as usize,
            sender,
            gate: Gate::default(),
            completions,
            over: AtomicBool::new(false),
            quota,
            checksum,
            on_watch: Mutex::new(false),
            woken: Condvar::new(),
            backoff: Mutex::new(Backoff::new(BackoffPolicy::default())),
        }
    }

    /// Whether blocks carry a checksum.
    pub(super) fn has_checksum(&self) -> bool {
        self.checksum
    }

    pub(super) fn sender(&self) -> &Sender {
        &self.sender
    }

    pub(super) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// Most bytes of a frame that fit one block.
    pub(super) fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    /// Blocks that one stream may have outstanding.
    pub(super) fn quota(&self) -> usize {
        self.quota
    }

    /// Blocks of a stream that are claimed or not yet released.
    pub(super) fn outstanding(&self, stream: u32) -> u32 {
        self.sender.outstanding(stream).unwrap_or(0)
    }

    /// Claims a block of at most [`Link::payload_bytes_max`].
    pub(super) fn reserve(&self, stream: u32, bytes: usize) -> Reserve {
        let Ok(bytes) = u32::try_from(bytes) else {
            return Reserve::Dead;
        };
        match self.sender.reserve(stream, bytes) {
            Ok(block) => Reserve::Block(block),
            Err(
                ReserveError::WouldBlock
                | ReserveError::Quota { .. }
                | ReserveError::Paused
                | ReserveError::Refused { .. },
            ) => Reserve::Full,
            Err(error) => {
                tracing::debug!(%error, "no block");
                Reserve::Dead
            }
        }
    }

    /// Sleeps until a block may be free for the stream, the session is over, or the time is.
    pub(super) fn wait_for_room(&self, stream: u32, timeout: Duration) {
        let Some(watch) = &self.watch else {
            return self.nap(stream, timeout);
        };
        let mut on_watch = self.on_watch();
        let follows = std::mem::replace(&mut *on_watch, true);
        if !follows {
            watch.arm();
        }
        // The watch is armed: a release that this look misses will ring.
        match self.look(stream) {
            Look::Full if follows => {
                drop(self.woken.wait_timeout(on_watch, timeout));
                return;
            }
            Look::Full => {
                drop(on_watch);
                if watch.wait(timeout).is_err() {
                    // The doorbell fails: only time tells.
                    std::thread::sleep(A_MOMENT);
                }
            }
            Look::Room => {
                drop(on_watch);
                std::thread::yield_now();
            }
            Look::Dead => {
                drop(on_watch);
                // Until the control thread notices and takes the link away.
                std::thread::sleep(A_MOMENT);
            }
        }
        if !follows {
            *self.on_watch() = false;
            self.woken.notify_all();
        }
    }

    /// Without a doorbell only time tells. One thread looks again and again, at growing intervals
    /// while there is nothing; the others wait for it.
    fn nap(&self, stream: u32, timeout: Duration) {
        let mut on_watch = self.on_watch();
        if std::mem::replace(&mut *on_watch, true) {
            drop(self.woken.wait_timeout(on_watch, timeout));
            return;
        }
        drop(on_watch);
        let nap = self.backoff().next_sleep();
        // Waits for the collector to release a block; without a doorbell nothing tells it.
        std::thread::sleep(timeout.min(nap));
        if matches!(self.look(stream), Look::Room) {
            self.backoff().reset();
        }
        *self.on_watch() = false;
        self.woken.notify_all();
    }

    /// Nothing goes through it any more: ends the sleep of all who wait for room, and of the thread
    /// that keeps it going.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        if let Some(watch) = &self.watch {
            watch.wake();
        }
        self.wake_driver();
    }

    /// Whether [`Link::end`] was called.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn wake_driver(&self) {
        if let Some(completions) = &self.completions {
            completions.wake();
        }
    }

    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock()
    }

    fn on_watch(&self) -> MutexGuard<'_, bool> {
        self.on_watch.lock()
    }

    fn look(&self, stream: u32) -> Look {
        if self.is_closed() || self.sender.refresh().is_err() {
            return Look::Dead;
        }
        let outstanding = self.sender.outstanding(stream).unwrap_or(u32::MAX);
        if self.sender.is_paused(stream) {
            return Look::Full;
        }
        if self.sender.known_free() > 0 && (outstanding as usize) < self.quota {
            Look::Room
        } else {
            Look::Full
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.wake_driver();
    }
}
