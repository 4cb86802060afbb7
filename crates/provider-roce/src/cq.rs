//! Completion queues and the channels to sleep on for them.
use crate::{context::RoceContext, device::Device, engine::Look};
use catchment_verbs::{
    AsyncEvent, Completion, CompletionChannel, Cq, CqError, Wake, event, provider::Entry,
};
use crossbeam_queue::ArrayQueue;
use std::{
    any::Any,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering, fence},
    },
    time::Duration,
};

/// Wants an event at any completion.
const ANY: u32 = 1;
/// Wants an event at a solicited or failed completion.
const SOLICITED: u32 = 2;

/// A completion queue, as the engine sees it.
pub(crate) struct CqCore {
    queue: ArrayQueue<Entry>,
    overrun: AtomicBool,
    wanted: AtomicU32,
    channel: Option<Arc<ChannelCore>>,
}

impl CqCore {
    pub(crate) fn new(capacity: u32, channel: Option<Arc<ChannelCore>>) -> Arc<CqCore> {
        Arc::new(CqCore {
            queue: ArrayQueue::new(capacity as usize),
            overrun: AtomicBool::new(false),
            wanted: AtomicU32::new(0),
            channel,
        })
    }

    /// Whether completions were lost.
    #[inline]
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Adds a completion; true if this is the one that found the queue full. [`CqCore::announce`]
    /// follows.
    #[inline]
    pub(crate) fn push(&self, entry: Entry) -> bool {
        self.queue.push(entry).is_err() && !self.overrun.swap(true, Ordering::AcqRel)
    }

    /// Wakes a sleeper that waits for such a completion.
    #[inline]
    pub(crate) fn announce(&self, solicited: bool) {
        fence(Ordering::SeqCst);
        let wanted = self.wanted.load(Ordering::Relaxed);
        let matches = wanted & ANY != 0 || (wanted != 0 && solicited);
        if matches
            && self.wanted.swap(0, Ordering::AcqRel) != 0
            && let Some(channel) = &self.channel
        {
            channel.notify();
        }
    }

    fn drain(&self, out: &mut [Completion]) -> usize {
        // To pop from an empty queue costs a fence.
        if self.queue.is_empty() {
            return 0;
        }
        for (n, place) in out.iter_mut().enumerate() {
            let Some(entry) = self.queue.pop() else {
                return n;
            };
            *place = entry.polled();
        }
        out.len()
    }
}

/// A completion queue, as the application holds it.
pub(crate) struct RoceCq {
    pub(crate) core: Arc<CqCore>,
    /// A queue keeps the device open.
    pub(crate) context: Arc<RoceContext>,
}

impl RoceCq {
    /// Whether it belongs to this device.
    pub(crate) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(self.context.device(), device)
    }
}

impl Cq for RoceCq {
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        if self.core.is_overrun() {
            return Err(CqError::Overrun {
                capacity: self.capacity(),
            });
        }
        let taken = self.core.drain(out);
        if taken == 0 && self.context.device().help(Look::ForPackets) {
            return Ok(self.core.drain(out));
        }
        Ok(taken)
    }

    fn req_notify(&self, solicited_only: bool) {
        let bit = if solicited_only { SOLICITED } else { ANY };
        self.core.wanted.fetch_or(bit, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn capacity(&self) -> u32 {
        self.core.queue.capacity() as u32
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Something to sleep on: an event counter that the engine rings.
pub(crate) struct ChannelCore {
    event: OwnedFd,
}

impl ChannelCore {
    pub(crate) fn new() -> io::Result<Arc<ChannelCore>> {
        Ok(Arc::new(ChannelCore {
            event: event::event_fd()?,
        }))
    }

    fn notify(&self) {
        event::ring(&self.event);
    }
}

/// A completion channel, as the application holds it.
pub(crate) struct RoceChannel(pub(crate) Arc<ChannelCore>);

impl CompletionChannel for RoceChannel {
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        Ok(event::wait(self.0.event.as_fd(), timeout)? == Wake::Rung)
    }

    fn wake(&self) {
        event::ring(&self.0.event);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What the application is told when a queue overruns.
pub(crate) const OVERRUN: AsyncEvent = AsyncEvent::CqOverrun;
