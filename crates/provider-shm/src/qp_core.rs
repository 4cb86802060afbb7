//! The shared part of a queue pair: its state, waiting sends, and posted receives.
//!
//! The owner's thread executes one-sided requests without coming here for more than an atomic
//! load. Everything else happens under one lock that is never held while a peer is queried.
use crate::cq_core::{Attached, CqCore};
use crate::device_core::DeviceCore;
use crate::inbox::{BAD_RECEIVE, Inbox};
use crate::inner::{Inner, Peer, PostedRecv};
use crate::proto::QpFacts;
use crate::region::MrCore;
use crate::remote::RemoteMr;
use crate::request::{Step, Waiting};
use crate::ring::Count;
use catchment_verbs::provider::{CqEntry, Limits, StateCell, WorkQueueCredits};
use catchment_verbs::sync::Mutex;
use catchment_verbs::wait::arm;
use catchment_verbs::{
    AsyncEvent, Completion, Failure, QpInit, QpState, Success, VerbsError, WcOpcode, WcStatus,
};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// Why a queue pair failed whose memory lost a page.
pub(crate) const LOST: &str = "a page of memory that is shared with the peer cannot be had (SIGBUS): the \
    peer took it away and the system has no other, or the memory is defective";

/// See the module documentation.
pub(crate) struct QpCore {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) pd: u64,
    pub(crate) limits: Limits,
    pub(crate) context: Arc<DeviceCore>,
    pub(crate) send_cq: Arc<CqCore>,
    pub(crate) recv_cq: Arc<CqCore>,
    pub(crate) sq: Arc<WorkQueueCredits>,
    pub(crate) rq: Arc<WorkQueueCredits>,
    state: StateCell,
    /// Length of `Inner::sends`, for threads without the lock.
    waiting: AtomicUsize,
    /// Receives are posted, for threads without the lock.
    receiving: AtomicBool,
    inner: Mutex<Inner>,
}

impl QpCore {
    pub(crate) fn new(
        context: Arc<DeviceCore>,
        pd: u64,
        (qpn, psn): (u32, u32),
        init: &QpInit,
        send_cq: Arc<CqCore>,
        recv_cq: Arc<CqCore>,
    ) -> Result<Self, VerbsError> {
        Ok(Self {
            qpn,
            psn,
            pd,
            limits: init.limits(&context.caps),
            send_cq,
            recv_cq,
            sq: Arc::default(),
            rq: Arc::default(),
            state: StateCell::default(),
            waiting: AtomicUsize::new(0),
            receiving: AtomicBool::new(false),
            inner: Mutex::new(Inner::new(Inbox::alloc(init.max_recv_wr)?, context.next_id())),
            context,
        })
    }

    #[inline]
    pub(crate) fn state(&self) -> QpState {
        self.state.get()
    }

    /// Only with the lock held.
    pub(crate) fn set_state(&self, state: QpState, inner: &Inner) {
        self.state.set(state);
        inner.inbox.set_alive(matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd));
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Returns whether requests wait, so that new ones must queue behind them.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// Returns when the request at the front may leave, if it waits for the rate limit only.
    pub(crate) fn opens(&self) -> Option<Instant> {
        self.lock().opens
    }

    /// Returns what the peer must know.
    pub(crate) fn facts(&self, inner: &Inner) -> QpFacts {
        let mut channels = 0;
        if self.recv_cq.channel_event().is_some() {
            channels |= QpFacts::RECV_CHANNEL;
        }
        if self.send_cq.channel_event().is_some() {
            channels |= QpFacts::SEND_CHANNEL;
        }
        QpFacts {
            qpn: self.qpn,
            access: inner.access.bits(),
            inbox_id: inner.inbox_id,
            ring_bytes: inner.inbox.ring_bytes,
            recv_slots: inner.inbox.recv_slots,
            rnr_timer_us: u32::try_from(inner.rnr_timer.as_micros()).unwrap_or(u32::MAX),
            channels,
        }
    }

    /// Returns the descriptors that accompany [`QpCore::facts`].
    pub(crate) fn descriptors<'a>(&'a self, inbox: &'a OwnedFd) -> Vec<BorrowedFd<'a>> {
        let mut all = vec![inbox.as_fd()];
        all.extend(self.recv_cq.channel_event());
        all.extend(self.send_cq.channel_event());
        all
    }

    /// Completes a send request: always if it failed, only if signaled if not.
    #[inline]
    pub(crate) fn complete_send(
        &self,
        wr_id: u64,
        seq: u64,
        signaled: bool,
        result: Result<(WcOpcode, u64), WcStatus>,
    ) {
        if result.is_ok() && !signaled {
            return;
        }
        let result = result.map(|(opcode, bytes)| Success::plain(opcode, bytes));
        let result = result.map_err(Failure::from);
        self.send_cq.push(CqEntry {
            completion: Completion { wr_id, qpn: self.qpn, result },
            credits: Arc::clone(&self.sq),
            seq,
        });
    }

    /// Completes a receive.
    pub(crate) fn complete_recv(&self, recv: &PostedRecv, result: Result<Success, WcStatus>) {
        self.recv_cq.push(CqEntry {
            completion: Completion {
                wr_id: recv.wr_id,
                qpn: self.qpn,
                result: result.map_err(Failure::from),
            },
            credits: Arc::clone(&self.rq),
            seq: recv.seq,
        });
    }

    /// Puts a request behind those that wait.
    pub(crate) fn push_waiting(&self, inner: &mut Inner, waiting: Waiting) {
        if let Some(pace) = inner.pace.as_mut().filter(|_| inner.sends.is_empty()) {
            pace.resume();
        }
        inner.sends.push_back(waiting);
        let before = self.waiting.swap(inner.sends.len(), Ordering::AcqRel);
        // After the count: the service thread forgets queue pairs without waiting requests.
        if before == 0 {
            self.send_cq.activate();
            self.context.watch_waiting(self.qpn);
        }
    }

    /// Takes the oldest request that waits. Its completion must be pushed by then: afterwards the
    /// owner's thread may overtake.
    pub(crate) fn pop_waiting(&self, inner: &mut Inner) {
        inner.sends.pop_front();
        self.waiting.store(inner.sends.len(), Ordering::Release);
        if inner.sends.is_empty() {
            self.send_cq.deactivate();
        }
    }

    /// Notes whether receives are posted: only then there is something to take from the peer. Follows each change of
    /// them, with the lock held.
    pub(crate) fn note_receives(&self, inner: &Inner) {
        let receives = !inner.recvs.is_empty();
        if self.receiving.swap(receives, Ordering::AcqRel) == receives {
            return;
        }
        if receives {
            self.recv_cq.activate();
        } else {
            self.recv_cq.deactivate();
        }
    }

    /// Moves to the error state and flushes. `reason` unless the application requested it.
    pub(crate) fn fail(&self, reason: Option<&str>) {
        let mut inner = self.lock();
        self.fail_locked(&mut inner, reason);
        self.announce(inner);
    }

    /// Moves to the error state because a request failed. What the peer has sent before has arrived, and is delivered:
    /// the peer's own requests are complete.
    pub(crate) fn fail_by_request(&self, inner: &mut Inner, reason: Option<&str>) {
        self.receive_all(inner);
        self.fail_locked(inner, reason);
    }

    /// Like [`QpCore::fail`], with the lock held and without waking any thread.
    pub(crate) fn fail_locked(&self, inner: &mut Inner, reason: Option<&str>) {
        if matches!(self.state(), QpState::Reset | QpState::Err) {
            return;
        }
        self.set_state(QpState::Err, inner);
        if let Some(reason) = reason {
            if reason == LOST {
                tracing::warn!(qpn = self.qpn, reason, "queue pair failed");
            } else {
                tracing::debug!(qpn = self.qpn, reason, "queue pair failed");
            }
            self.context
                .events
                .add(AsyncEvent::QpFatal { qpn: self.qpn, reason: reason.to_owned() });
        }
        self.flush(inner);
    }

    /// Completes everything outstanding with [`WcStatus::Flushed`], in order.
    pub(crate) fn flush(&self, inner: &mut Inner) {
        while let Some(waiting) = inner.sends.front() {
            self.complete_send(waiting.wr_id, waiting.seq, true, Err(WcStatus::Flushed));
            inner.pushed_send = Some(true);
            self.pop_waiting(inner);
        }
        while let Some(recv) = inner.recvs.pop_front() {
            self.complete_recv(&recv, Err(WcStatus::Flushed));
            inner.pushed_recv = Some(true);
        }
        self.note_receives(inner);
        // A peer that sleeps until we take something must see that we no longer do.
        inner.taken = true;
    }

    /// Drops everything outstanding, and creates a new inbox.
    pub(crate) fn reset(&self, inner: &mut Inner, inbox: (Inbox, OwnedFd)) {
        self.set_state(QpState::Reset, inner);
        if let Some(connection) = &inner.connection {
            connection.ring_sender();
        }
        while !inner.sends.is_empty() {
            self.pop_waiting(inner);
        }
        let (pace, asks) = (inner.pace.take(), inner.asks);
        *inner = Inner { pace, asks, ..Inner::new(inbox, self.context.next_id()) };
        self.note_receives(inner);
    }

    /// Releases the lock and wakes the threads that wait for one of the things that happened
    /// under it.
    pub(crate) fn announce(&self, mut inner: MutexGuard<'_, Inner>) {
        let sent = inner.pushed_send.take();
        let received = inner.pushed_recv.take();
        let put = std::mem::take(&mut inner.put);
        let taken = std::mem::take(&mut inner.taken);
        let touched = inner.cache.is_touched();
        if sent.is_none() && received.is_none() && !put && !taken && !touched {
            return;
        }
        fence(Ordering::SeqCst);
        let written = inner.cache.take_touched();
        let connection = inner.connection.clone();
        let ring_sender = taken && arm::take_armed_fenced(inner.inbox.sender_flag()) != 0;
        drop(inner);
        written.iter().for_each(|mr| mr.ring_fenced());
        if let Some(connection) = connection {
            if put && arm::take_armed_fenced(connection.inbox.owner_flag()) != 0 {
                connection.ring_receiver();
            }
            if ring_sender {
                connection.ring_sender();
            }
        }
        if let Some(failed) = sent {
            self.send_cq.queue.announce_fenced(failed);
        }
        if let Some(solicited) = received {
            self.recv_cq.queue.announce_fenced(solicited);
        }
    }

    /// Takes what the peer sent and sends what waits. If another thread is doing that, a
    /// `thorough` caller waits for it; others leave it to that thread. `may_ask`: the caller may
    /// wait for a reply of the peer (a service thread may not).
    pub(crate) fn progress(&self, thorough: bool, may_ask: bool) {
        let mut inner = match self.inner.try_lock() {
            Some(inner) => inner,
            None if thorough => self.lock(),
            None => return,
        };
        self.receive(&mut inner);
        let mut step = self.send_waiting(&mut inner);
        while let Step::Ask(connection, rkey) = step {
            self.announce(inner);
            if !may_ask {
                self.nudge();
                return;
            }
            let answer = RemoteMr::resolve(&connection, rkey);
            inner = self.lock();
            match answer {
                Ok(mr) => {
                    inner.cache.insert(mr);
                }
                Err(status) => inner.refused = Some((rkey, status)),
            }
            step = self.send_waiting(&mut inner);
        }
        self.announce(inner);
    }

    /// Wakes a thread that sleeps on the send queue's channel, to continue with what waits.
    pub(crate) fn nudge(&self) {
        if let Some(channel) = self.send_cq.queue.channel() {
            channel.nudge();
        }
    }

    /// Makes sure that the peer can be queried. Waits for it, at most once.
    pub(crate) fn keep_link(&self) {
        let mut inner = self.lock();
        inner.asks = true;
        let Some((connection, gid)) = inner.unlinked() else { return };
        drop(inner);
        let Ok(link) = self.context.link(gid) else {
            // The peer is gone, which requests report.
            return;
        };
        connection.set_link(Arc::clone(&link));
        if let Some(peer) = self.lock().peer.as_mut().filter(|peer| peer.endpoint.gid == gid) {
            peer.link = Some(link);
        }
    }

    pub(crate) fn add_recv(&self, recv: PostedRecv) {
        let mut inner = self.lock();
        if self.state() == QpState::Err {
            self.complete_recv(&recv, Err(WcStatus::Flushed));
            inner.pushed_recv = Some(true);
        } else {
            let room = inner.inbox.receive(inner.posted);
            room.store(recv.room.unwrap_or(BAD_RECEIVE), Ordering::Relaxed);
            inner.posted += 1;
            inner.inbox.posted().publish(inner.posted);
            inner.recvs.push_back(recv);
            inner.taken = true;
            self.note_receives(&inner);
        }
        self.announce(inner);
    }

    /// Moves to the error state if one of its completion queues lost something.
    #[inline]
    pub(crate) fn fail_if_overrun(&self) {
        if self.send_cq.queue.is_overrun() || self.recv_cq.queue.is_overrun() {
            self.fail(Some("its completion queue overran"));
        }
    }

    /// Moves to the error state if a page of its memory, or of its protection domain's, could not be had.
    pub(crate) fn fail_if_broken(&self, regions: &[Arc<MrCore>]) {
        let mut inner = self.lock();
        let mut regions = regions.iter().filter(|mr| mr.pd == self.pd && mr.access.is_remote());
        if inner.is_broken() || regions.any(|mr| mr.region.is_broken()) {
            self.fail_locked(&mut inner, Some(LOST));
        }
        self.announce(inner);
    }

    /// Moves to the error state if its peer was reached through this link.
    pub(crate) fn fail_if_linked(&self, link: u64) {
        let mut inner = self.lock();
        let linked = |peer: &Peer| peer.link.as_ref().is_some_and(|l| l.id == link);
        if inner.peer.as_ref().is_some_and(linked) {
            self.receive_all(&mut inner);
            self.fail_locked(&mut inner, Some("the peer's process is gone"));
        }
        self.announce(inner);
    }

    /// Moves to the error state if its peer used this connection, which broke although the peer's
    /// queue pair was not closed. Returns whether it did.
    pub(crate) fn fail_if_asked(&self, asker: u64) -> bool {
        let inner = self.lock();
        let came = |peer: &Peer| peer.asker == Some(asker) && peer.link.is_none();
        let broken = inner.peer.as_ref().is_some_and(came)
            && inner.connection.as_ref().is_some_and(|c| c.is_alive());
        drop(inner);
        if broken {
            self.fail_by_peer("the peer's process is gone");
        }
        broken
    }

    /// Moves to the error state because of the peer; its earlier messages are delivered.
    pub(crate) fn fail_by_peer(&self, reason: &str) {
        let mut inner = self.lock();
        self.receive_all(&mut inner);
        self.fail_locked(&mut inner, Some(reason));
        self.announce(inner);
    }

    /// Notes that the peer has connected: what waited for that continues.
    pub(crate) fn go_on(&self) {
        self.progress(true, false);
    }
}

impl Attached for QpCore {
    fn arm(&self) {
        let inner = self.lock();
        arm::arm(inner.inbox.owner_flag(), 1);
        if let Some(connection) = &inner.connection
            && !inner.sends.is_empty()
        {
            arm::arm(connection.inbox.sender_flag(), 1);
        }
    }

    fn has_work(&self) -> bool {
        self.is_waiting() || self.receiving.load(Ordering::Acquire)
    }

    fn progress(&self, thorough: bool) {
        Self::progress(self, thorough, true);
    }
}
