//! The connection to a collector that filling threads use: a sender, and how to wait for it.
use super::gate::Gate;
use super::room::{Vacancy, WaitingRoom};
use catchment_granting::LinkGate;
use catchment_transfer::{ReserveError, Sender, WriteBlock};
use catchment_verbs::CompletionChannel;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) struct Link {
    pub(super) sender: Sender,
    pub(super) gate: Gate,
    /// Where the thread of [`driver`](super::driver) sleeps, if there is one.
    completions: Option<Arc<dyn CompletionChannel>>,
    /// Nothing goes through it any more, not even committed blocks.
    over: AtomicBool,
    /// Takes committed blocks until they may go.
    held: Option<Arc<LinkGate>>,
    /// Most bytes of a frame that fit one block.
    pub(super) payload_bytes_max: usize,
    /// Blocks that one stream may have outstanding.
    pub(super) quota: usize,
    checksum: bool,
    waiting: WaitingRoom,
}

/// Result of a claim.
pub(super) enum Reserve {
    Block(WriteBlock),
    /// No block is free for this stream at the moment.
    Full,
    /// The session is over.
    Dead,
}

impl Link {
    /// Creates a link through `sender`, in which a stream may have `quota` blocks outstanding. The
    /// thread that drives it waits on `completions`.
    pub(super) fn new(
        sender: Sender,
        quota: usize,
        checksum: bool,
        completions: Option<Arc<dyn CompletionChannel>>,
        held: Option<Arc<LinkGate>>,
    ) -> Self {
        Self {
            waiting: WaitingRoom::new(sender.free_watch()),
            payload_bytes_max: sender.layout().max_payload_bytes() as usize,
            gate: Gate::default(),
            completions,
            over: AtomicBool::new(false),
            held,
            quota,
            checksum,
            sender,
        }
    }

    /// Returns whether blocks carry a checksum.
    pub(super) fn has_checksum(&self) -> bool {
        self.checksum
    }

    pub(super) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// Returns the packet numbers of a stream whose frames were dropped as too late, as far as the collector may not
    /// know of them.
    pub(super) fn dropped(&self, stream: u32) -> Vec<Range<u64>> {
        self.held.as_ref().map_or(Vec::new(), |held| held.dropped(stream))
    }

    /// Returns whether blocks wait for leave to be posted: some may be dropped.
    pub(super) fn holds_blocks(&self) -> bool {
        self.held.is_some() && self.sender.unposted() > 0
    }

    /// Returns the blocks of a stream that are claimed or not yet released.
    pub(super) fn outstanding(&self, stream: u32) -> u32 {
        self.sender.outstanding(stream).unwrap_or(0)
    }

    /// Claims a block of at most [`Link::payload_bytes_max`].
    pub(super) fn reserve(&self, stream: u32, bytes: usize) -> Reserve {
        let Ok(bytes) = u32::try_from(bytes) else { return Reserve::Dead };
        match self.sender.reserve(stream, bytes) {
            Ok(block) => Reserve::Block(block),
            Err(
                ReserveError::WouldBlock
                | ReserveError::Quota { .. }
                | ReserveError::Paused
                | ReserveError::Refused(_),
            ) => Reserve::Full,
            Err(error) => {
                tracing::debug!(%error, "no block");
                Reserve::Dead
            }
        }
    }

    /// Sleeps until a block may be free for the stream, the session is over, or the timeout.
    pub(super) fn wait_for_room(&self, stream: u32, timeout: Duration) {
        self.waiting.wait(timeout, || self.vacancy(stream));
    }

    /// Ends the link: wakes all threads that wait for room, and the thread that drives it.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        if let Some(held) = &self.held {
            held.end();
        }
        self.waiting.wake();
        self.wake_driver();
    }

    /// Returns whether [`Link::end`] was called.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn wake_driver(&self) {
        if let Some(completions) = &self.completions {
            completions.wake();
        }
    }

    fn vacancy(&self, stream: u32) -> Vacancy {
        if self.is_closed() || self.sender.refresh().is_err() {
            return Vacancy::Dead;
        }
        let outstanding = self.sender.outstanding(stream).unwrap_or(u32::MAX);
        if self.sender.is_paused(stream) {
            return Vacancy::Full;
        }
        if self.sender.known_free() > 0 && (outstanding as usize) < self.quota {
            Vacancy::Room
        } else {
            Vacancy::Full
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.wake_driver();
    }
}
