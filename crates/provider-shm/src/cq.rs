//! Completion queues and the channels to sleep on for them.
use crate::context::{ShmContext, State};
use crate::qp_core::QpCore;
use catchment_verbs::provider::{CompletionQueue, Entry, EventChannel};
use catchment_verbs::sync::{Mutex, RwLock};
use catchment_verbs::{Completion, CompletionChannel, Cq, CqError};
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A completion queue, as queue pairs see it.
pub(crate) struct CqCore {
    queue: CompletionQueue,
    attached: RwLock<Vec<Weak<QpCore>>>,
    /// Attached queue pairs that may have work to do when the queue is polled.
    active: AtomicUsize,
    context: Arc<State>,
}

impl CqCore {
    pub(crate) fn new(
        capacity: u32,
        channel: Option<Arc<ChannelCore>>,
        context: Arc<State>,
    ) -> Arc<CqCore> {
        let events = channel.as_ref().map(|channel| channel.events.clone());
        let core = Arc::new(CqCore {
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
    pub(crate) fn is_of(&self, context: &Arc<State>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// Returns the channel, to wake a thread that sleeps on it.
    pub(crate) fn channel(&self) -> Option<&EventChannel> {
        self.queue.channel()
    }

    /// Returns the descriptor that peers ring for a queue pair of this queue.
    pub(crate) fn channel_event(&self) -> Option<BorrowedFd<'_>> {
        self.channel().map(|channel| channel.as_fd())
    }

    /// A queue pair completes here from now on.
    pub(crate) fn attach(&self, qp: &Arc<QpCore>) {
        let mut attached = self.attached.write();
        attached.retain(|known| known.strong_count() > 0);
        attached.push(Arc::downgrade(qp));
    }

    /// A queue pair is gone.
    pub(crate) fn detach(&self, qp: &Arc<QpCore>) {
        let gone = Arc::downgrade(qp);
        self.attached.write().retain(|known| !known.ptr_eq(&gone));
    }

    /// An attached queue pair has something to do when this queue is polled.
    pub(crate) fn activate(&self) {
        self.active.fetch_add(1, Ordering::AcqRel);
    }

    /// It has not any more.
    pub(crate) fn deactivate(&self) {
        self.active.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether completions were lost.
    #[inline]
    pub(crate) fn is_overrun(&self) -> bool {
        self.queue.is_overrun()
    }

    /// Adds a completion. [`CqCore::announce_fenced`] follows after a fence.
    #[inline]
    pub(crate) fn push(&self, entry: Entry) {
        if self.queue.push(entry) {
            self.report_overrun();
        }
    }

    #[cold]
    fn report_overrun(&self) {
        self.context
            .events
            .add(catchment_verbs::AsyncEvent::CqOverrun);
        self.context.break_queue_pairs_of_overrun_queues();
    }

    /// Wakes a thread that requested a notification for such a completion.
    #[inline]
    pub(crate) fn announce_fenced(&self, solicited: bool) {
        self.queue.announce_fenced(solicited);
    }

    /// Returns the attached queue pairs.
    pub(crate) fn queue_pairs(&self) -> Vec<Arc<QpCore>> {
        let attached = self.attached.read();
        attached.iter().filter_map(Weak::upgrade).collect()
    }

    /// Moves what waits on the attached queue pairs. A caller that will sleep must not miss what
    /// another thread is just looking at, so it waits for that thread.
    fn progress(&self, thorough: bool) {
        if self.active.load(Ordering::Acquire) == 0 {
            return;
        }
        let attached = self.attached.read();
        // Released before any work: peers may be asked meanwhile.
        let busy: Vec<_> = attached
            .iter()
            .filter(|qp| qp.upgrade().is_some_and(|qp| qp.has_work()))
            .cloned()
            .collect();
        drop(attached);
        for qp in busy.iter().filter_map(Weak::upgrade) {
            qp.progress(thorough, true);
        }
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        let taken = self.queue.poll(out)?;
        if taken == out.len() || self.active.load(Ordering::Acquire) == 0 {
            return Ok(taken);
        }
        self.progress(self.queue.is_requested());
        Ok(taken + self.queue.drain(&mut out[taken..]))
    }

    fn req_notify(&self, solicited_only: bool) {
        self.queue.request_notify(solicited_only);
        self.arm_peers();
    }

    /// Peers ring from now on when they move something for an attached queue pair.
    fn arm_peers(&self) {
        for qp in self.queue_pairs() {
            qp.arm();
        }
        fence(Ordering::SeqCst);
    }
}

/// A completion queue, as the application holds it.
pub(crate) struct ShmCq {
    pub(crate) core: Arc<CqCore>,
    /// A queue keeps the device open.
    pub(crate) _context: Arc<ShmContext>,
}

impl Cq for ShmCq {
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        self.core.poll(out)
    }

    fn req_notify(&self, solicited_only: bool) {
        self.core.req_notify(solicited_only);
    }

    fn capacity(&self) -> u32 {
        self.core.queue.capacity()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A channel with the completion queues that notify through it.
pub(crate) struct ChannelCore {
    events: EventChannel,
    cqs: Mutex<Vec<Weak<CqCore>>>,
}

impl ChannelCore {
    fn add(&self, cq: &Arc<CqCore>) {
        let mut cqs = self.cqs.lock();
        cqs.retain(|known| known.strong_count() > 0);
        cqs.push(Arc::downgrade(cq));
    }

    /// Moves data that peers left for the queue pairs, and asks peers to ring for the rest.
    fn progress(&self) {
        let cqs: Vec<_> = self.cqs.lock().iter().filter_map(Weak::upgrade).collect();
        for cq in cqs.iter().filter(|cq| cq.queue.is_requested()) {
            cq.arm_peers();
            cq.progress(true);
        }
    }
}

/// A completion channel, as the application holds it.
pub(crate) struct ShmChannel(pub(crate) Arc<ChannelCore>);

impl ShmChannel {
    pub(crate) fn new() -> io::Result<ShmChannel> {
        Ok(ShmChannel(Arc::new(ChannelCore {
            events: EventChannel::new()?,
            cqs: Mutex::default(),
        })))
    }
}

impl CompletionChannel for ShmChannel {
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        self.0.events.wait_with(timeout, || self.0.progress())
    }

    fn wake(&self) {
        self.0.events.notify();
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.events.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
