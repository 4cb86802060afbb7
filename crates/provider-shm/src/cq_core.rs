//! Completion queues and channels, for queue pairs.
use crate::device_core::DeviceCore;
use catchment_verbs::provider::{CompletionQueue, CqEntry, EventChannel};
use catchment_verbs::sync::{Mutex, RwLock};
use catchment_verbs::{Completion, CompletionChannel as _, CqError};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};

/// What a completion queue needs of a queue pair that completes there.
pub(crate) trait Attached: Send + Sync {
    /// Returns whether [`Attached::progress`] has something to do. A guess without the lock.
    fn has_work(&self) -> bool;

    /// Moves what waits; may query the peer. A `thorough` caller waits for a thread doing so.
    fn progress(&self, thorough: bool);

    /// Makes the peer ring when it puts something for us, or takes something of ours.
    fn arm(&self);
}

/// What queue pairs need of a completion queue.
pub(crate) struct CqCore {
    pub(crate) queue: CompletionQueue,
    attached: RwLock<Vec<Weak<dyn Attached>>>,
    /// Attached queue pairs that may have work to do when the queue is polled.
    active: AtomicUsize,
    context: Arc<DeviceCore>,
}

impl CqCore {
    pub(crate) fn new(
        capacity: u32,
        channel: Option<Arc<ChannelCore>>,
        context: Arc<DeviceCore>,
    ) -> Arc<Self> {
        let events = channel.as_ref().map(|channel| channel.events.clone());
        let core = Arc::new(Self {
            queue: CompletionQueue::new(capacity, events),
            attached: RwLock::default(),
            active: AtomicUsize::new(0),
            context,
        });
        if let Some(channel) = &channel {
            channel.add(&core);
        }
        core
    }

    /// Returns whether it belongs to this context.
    pub(crate) fn is_of(&self, context: &Arc<DeviceCore>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// Returns the descriptor that peers ring for a queue pair of this queue.
    pub(crate) fn channel_event(&self) -> Option<BorrowedFd<'_>> {
        self.queue.channel().map(|channel| channel.as_fd())
    }

    /// Adds a queue pair that completes here.
    pub(crate) fn attach(&self, qp: Weak<dyn Attached>) {
        let mut attached = self.attached.write();
        attached.retain(|known| known.strong_count() > 0);
        attached.push(qp);
    }

    /// Removes a queue pair.
    pub(crate) fn detach(&self, gone: &Weak<dyn Attached>) {
        self.attached.write().retain(|known| !known.ptr_eq(gone));
    }

    /// Notes that an attached queue pair has something to do when this queue is polled.
    pub(crate) fn activate(&self) {
        self.active.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that it no longer has.
    pub(crate) fn deactivate(&self) {
        self.active.fetch_sub(1, Ordering::AcqRel);
    }

    /// Adds a completion. [`CompletionQueue::announce_fenced`] follows after a fence.
    #[inline]
    pub(crate) fn push(&self, entry: CqEntry) {
        if self.queue.push(entry) {
            self.report_overrun();
        }
    }

    #[cold]
    fn report_overrun(&self) {
        self.context.events.add(catchment_verbs::AsyncEvent::CqOverrun);
        self.context.break_queue_pairs_of_overrun_queues();
    }

    /// Returns the attached queue pairs.
    fn queue_pairs(&self) -> Vec<Arc<dyn Attached>> {
        self.attached.read().iter().filter_map(Weak::upgrade).collect()
    }

    /// Moves what waits on the attached queue pairs. A caller that will sleep must not miss what
    /// another thread is processing, so it waits for that thread.
    fn progress(&self, thorough: bool) {
        if self.active.load(Ordering::Acquire) == 0 {
            return;
        }
        let attached = self.attached.read();
        // Released before any work: peers may be queried meanwhile.
        let busy: Vec<_> = attached
            .iter()
            .filter(|qp| qp.upgrade().is_some_and(|qp| qp.has_work()))
            .cloned()
            .collect();
        drop(attached);
        for qp in busy.iter().filter_map(Weak::upgrade) {
            qp.progress(thorough);
        }
    }

    /// Takes completions, after moving what waits where there are few.
    pub(crate) fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        let taken = self.queue.poll(out)?;
        if taken == out.len() || self.active.load(Ordering::Acquire) == 0 {
            return Ok(taken);
        }
        self.progress(self.queue.is_requested());
        Ok(taken + self.queue.drain(&mut out[taken..]))
    }

    /// Requests a notification, also from the peers.
    pub(crate) fn req_notify(&self, solicited_only: bool) {
        self.queue.request_notify(solicited_only);
        self.arm_peers();
    }

    /// Makes peers ring when they move something for an attached queue pair.
    fn arm_peers(&self) {
        for qp in self.queue_pairs() {
            qp.arm();
        }
        fence(Ordering::SeqCst);
    }
}

/// A channel with the completion queues that notify through it.
pub(crate) struct ChannelCore {
    /// What wakes a thread that sleeps on it.
    pub(crate) events: EventChannel,
    cqs: Mutex<Vec<Weak<CqCore>>>,
}

impl ChannelCore {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { events: EventChannel::new()?, cqs: Mutex::default() })
    }

    fn add(&self, cq: &Arc<CqCore>) {
        let mut cqs = self.cqs.lock();
        cqs.retain(|known| known.strong_count() > 0);
        cqs.push(Arc::downgrade(cq));
    }

    /// Moves data that peers left for the queue pairs, and asks peers to ring for the rest.
    pub(crate) fn progress(&self) {
        let cqs: Vec<_> = self.cqs.lock().iter().filter_map(Weak::upgrade).collect();
        for cq in cqs.iter().filter(|cq| cq.queue.is_requested()) {
            cq.arm_peers();
            cq.progress(true);
        }
    }
}
