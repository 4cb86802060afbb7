//! Completion queues and the channels to sleep on for them.
use crate::{
    context::{ShmContext, State},
    doorbell::{self, Flags},
    qp_core::QpCore,
};
use catchment_verbs::{Completion, CompletionChannel, Cq, CqError, event, provider::Entry};
use crossbeam_queue::ArrayQueue;
use std::{
    any::Any,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence},
    },
    time::Duration,
};

/// Wants an event at any completion.
const ANY: u32 = 1;
/// Wants an event at a solicited or failed completion.
const SOLICITED: u32 = 2;

/// A completion queue, as queue pairs see it.
pub(crate) struct CqCore {
    queue: ArrayQueue<Entry>,
    overrun: AtomicBool,
    wanted: AtomicU32,
    channel: Option<Arc<ChannelCore>>,
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
        let core = Arc::new(CqCore {
            queue: ArrayQueue::new(capacity as usize),
            overrun: AtomicBool::new(false),
            wanted: AtomicU32::new(0),
            channel,
            attached: RwLock::new(Vec::new()),
            active: AtomicUsize::new(0),
            context,
        });
        if let Some(channel) = &core.channel {
            channel.add(&core);
        }
        core
    }

    /// Whether it belongs to this context.
    pub(crate) fn is_of(&self, context: &Arc<State>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// The descriptor that peers ring for a queue pair of this queue.
    pub(crate) fn channel_event(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(|channel| channel.event.as_fd())
    }

    /// A queue pair completes here from now on.
    pub(crate) fn attach(&self, qp: &Arc<QpCore>) {
        let mut attached = self
            .attached
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        attached.retain(|known| known.strong_count() > 0);
        attached.push(Arc::downgrade(qp));
    }

    /// A queue pair is gone.
    pub(crate) fn detach(&self, qp: &Arc<QpCore>) {
        let gone = Arc::downgrade(qp);
        self.attached
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|known| !known.ptr_eq(&gone));
    }

    /// An attached queue pair has something to do when this queue is polled.
    pub(crate) fn activate(&self) {
        self.active.fetch_add(1, Ordering::AcqRel);
    }

    /// It has not any more.
    pub(crate) fn deactivate(&self) {
        self.active.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether completions were lost.
    #[inline]
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Adds a completion. [`CqCore::announce_fenced`] follows after a fence.
    #[inline]
    pub(crate) fn push(&self, entry: Entry) {
        if self.queue.push(entry).is_err() {
            self.overflow();
        }
    }

    #[cold]
    fn overflow(&self) {
        if !self.overrun.swap(true, Ordering::AcqRel) {
            self.context
                .events
                .add(catchment_verbs::AsyncEvent::CqOverrun);
            self.context.break_queue_pairs_of_overrun_queues();
        }
    }

    /// Wakes a sleeper that waits for such a completion.
    #[inline]
    pub(crate) fn announce_fenced(&self, solicited: bool) {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted != 0 {
            self.announce(wanted, solicited);
        }
    }

    #[cold]
    fn announce(&self, wanted: u32, solicited: bool) {
        let matches = wanted & ANY != 0 || solicited;
        if matches
            && self.wanted.take() != 0
            && let Some(channel) = &self.channel
        {
            channel.event();
        }
    }

    /// The attached queue pairs.
    pub(crate) fn queue_pairs(&self) -> Vec<Arc<QpCore>> {
        let attached = self.attached.read().unwrap_or_else(PoisonError::into_inner);
        attached.iter().filter_map(Weak::upgrade).collect()
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Moves what waits on the attached queue pairs. A caller that will sleep must not miss what
    /// another thread is just looking at, so it waits for that thread.
    fn progress(&self, thorough: bool) {
        if self.active.load(Ordering::Acquire) == 0 {
            return;
        }
        let attached = self.attached.read().unwrap_or_else(PoisonError::into_inner);
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

    fn drain(&self, out: &mut [Completion]) -> usize {
        for (n, place) in out.iter_mut().enumerate() {
            let Some(entry) = self.queue.pop() else {
                return n;
            };
            *place = entry.polled();
        }
        out.len()
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        if self.is_overrun() {
            return Err(CqError::Overrun {
                capacity: self.queue.capacity() as u32,
            });
        }
        let taken = self.drain(out);
        if taken == out.len() || self.active.load(Ordering::Acquire) == 0 {
            return Ok(taken);
        }
        self.progress(self.is_wanted());
        Ok(taken + self.drain(&mut out[taken..]))
    }

    fn req_notify(&self, solicited_only: bool) {
        doorbell::arm(&self.wanted, if solicited_only { SOLICITED } else { ANY });
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
        self.core.queue.capacity() as u32
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Something to sleep on: an event counter that this process and its peers ring.
pub(crate) struct ChannelCore {
    event: OwnedFd,
    /// Events of completion queues that nobody has taken yet. Peers ring without one.
    events: AtomicU32,
    cqs: Mutex<Vec<Weak<CqCore>>>,
}

impl ChannelCore {
    pub(crate) fn new() -> io::Result<Arc<ChannelCore>> {
        Ok(Arc::new(ChannelCore {
            event: event::event_fd()?,
            events: AtomicU32::new(0),
            cqs: Mutex::new(Vec::new()),
        }))
    }

    fn add(&self, cq: &Arc<CqCore>) {
        let mut cqs = self.cqs.lock().unwrap_or_else(PoisonError::into_inner);
        cqs.retain(|known| known.strong_count() > 0);
        cqs.push(Arc::downgrade(cq));
    }

    fn event(&self) {
        self.events.fetch_add(1, Ordering::AcqRel);
        event::ring(&self.event);
    }

    /// Wakes the sleeper to let it move what waits.
    pub(crate) fn nudge(&self) {
        event::ring(&self.event);
    }

    /// Moves what waits, and lets peers ring for the rest.
    fn look(&self) {
        let cqs: Vec<_> = {
            let cqs = self.cqs.lock().unwrap_or_else(PoisonError::into_inner);
            cqs.iter().filter_map(Weak::upgrade).collect()
        };
        for cq in cqs.iter().filter(|cq| cq.is_wanted()) {
            cq.arm_peers();
            cq.progress(true);
        }
    }

    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let deadline = event::deadline(timeout);
        loop {
            event::take_rings(&self.event);
            if self.events.swap(0, Ordering::AcqRel) > 0 {
                return Ok(true);
            }
            self.look();
            if self.events.load(Ordering::Acquire) == 0
                && !event::wait_readable(self.event.as_fd(), deadline)?
            {
                return Ok(false);
            }
        }
    }
}

impl CqCore {
    /// The channel, to wake a thread that sleeps on it.
    pub(crate) fn channel(&self) -> Option<&Arc<ChannelCore>> {
        self.channel.as_ref()
    }
}

/// A completion channel, as the application holds it.
pub(crate) struct ShmChannel(pub(crate) Arc<ChannelCore>);

impl CompletionChannel for ShmChannel {
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        self.0.wait(timeout)
    }

    fn wake(&self) {
        self.0.event();
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
