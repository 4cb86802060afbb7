//! What completions need of a queue pair: its state, and what is outstanding.
use crate::entry::Done;
use catchment_verbs::provider::{CompletionQueue, CqEntry, StateCell, WorkQueueCredits};
use catchment_verbs::{Completion, Failure, Limits, QpState, Service, Success, WcStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The work queue of one direction.
pub(super) struct WorkQueue {
    cq: Arc<CompletionQueue>,
    credits: Arc<WorkQueueCredits>,
    /// Requests posted. Written by the owner of the queue pair.
    pub(super) posted: AtomicU64,
    /// The first request that is not known to be done.
    next: AtomicU64,
    /// The `wr_id` of each outstanding request.
    wr_ids: Vec<AtomicU64>,
    is_receive: bool,
}

impl WorkQueue {
    fn new(cq: Arc<CompletionQueue>, most: u32, is_receive: bool) -> Self {
        Self {
            cq,
            credits: Arc::default(),
            posted: AtomicU64::new(0),
            next: AtomicU64::new(0),
            wr_ids: (0..most.max(1)).map(|_| AtomicU64::new(0)).collect(),
            is_receive,
        }
    }

    pub(super) fn outstanding(&self) -> u64 {
        self.credits.outstanding(self.posted.load(Ordering::Relaxed))
    }

    fn wr_id(&self, seq: u64) -> &AtomicU64 {
        &self.wr_ids[(seq % self.wr_ids.len() as u64) as usize]
    }

    /// Notes that a request was given to the agent, and returns its number.
    pub(super) fn note(&self, wr_id: u64) -> u64 {
        let seq = self.posted.load(Ordering::Relaxed);
        self.wr_id(seq).store(wr_id, Ordering::Relaxed);
        self.posted.store(seq + 1, Ordering::Release);
        seq
    }

    /// Adds the completion of a request; returns whether the queue lost one. A number that is not
    /// outstanding is of before a reset, or nonsense.
    fn complete(&self, qpn: u32, done: &Done) -> bool {
        let seq = done.seq;
        let outstanding = self.next.load(Ordering::Relaxed)..self.posted.load(Ordering::Acquire);
        if !outstanding.contains(&seq) {
            return false;
        }
        self.next.store(seq + 1, Ordering::Relaxed);
        let result = match done.result {
            Ok((opcode, bytes)) => {
                let success = Success::plain(opcode, bytes).with_imm(done.imm);
                Ok(done.source_qpn.map_or(success, |qpn| success.from_qpn(qpn)))
            }
            Err((status, vendor_err)) => Err(Failure { status, vendor_err }),
        };
        let solicited = self.is_receive || result.is_err();
        let wr_id = self.wr_id(seq).load(Ordering::Relaxed);
        let completion = Completion { wr_id, qpn, result };
        let credits = Arc::clone(&self.credits);
        let lost = self.cq.push(CqEntry { completion, credits, seq });
        self.cq.announce(solicited);
        lost
    }

    /// Completes everything outstanding as flushed.
    fn flush(&self, qpn: u32) {
        let (first, end) = (self.next.load(Ordering::Relaxed), self.posted.load(Ordering::Acquire));
        for seq in first..end {
            let result = Err((WcStatus::Flushed, 0));
            self.complete(qpn, &Done::new(seq, result));
        }
    }

    /// Forgets everything outstanding.
    pub(super) fn reset(&self) {
        let posted = self.posted.load(Ordering::Relaxed);
        self.next.store(posted, Ordering::Relaxed);
        self.credits.free_before(posted);
    }
}

/// What completions need of a queue pair.
pub(super) struct QpCore {
    qpn: u32,
    /// By which the agent knows it.
    pub(super) number: u32,
    pub(super) limits: Limits,
    pub(super) state: StateCell,
    pub(super) sends: WorkQueue,
    pub(super) receives: WorkQueue,
}

impl QpCore {
    pub(super) fn new(
        (qpn, number): (u32, u32),
        limits: Limits,
        send_cq: Arc<CompletionQueue>,
        recv_cq: Arc<CompletionQueue>,
    ) -> Self {
        Self {
            qpn,
            number,
            state: StateCell::default(),
            sends: WorkQueue::new(send_cq, limits.max_send_wr, false),
            receives: WorkQueue::new(recv_cq, limits.max_recv_wr, true),
            limits,
        }
    }

    pub(super) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Adds the completion of a send; returns whether the queue lost one.
    pub(super) fn sent(&self, done: &Done) -> bool {
        self.complete(&self.sends, done)
    }

    /// Adds the completion of a receive; returns whether the queue lost one.
    pub(super) fn received(&self, done: &Done) -> bool {
        self.complete(&self.receives, done)
    }

    fn complete(&self, queue: &WorkQueue, done: &Done) -> bool {
        if let Err((status, _)) = done.result {
            if self.limits.service == Service::Ud && !queue.is_receive {
                self.stop_sending(status);
            } else {
                self.enter_error();
            }
        }
        queue.complete(self.qpn(), done)
    }

    /// A datagram failed: the send queue stops, and receives go on. What is flushed says nothing new.
    fn stop_sending(&self, status: WcStatus) {
        if status != WcStatus::Flushed && self.state.get() == QpState::Rts {
            self.state.set(QpState::Sqe);
        }
    }

    pub(super) fn enter_error(&self) {
        if self.state.get() != QpState::Reset {
            self.state.set(QpState::Err);
        }
    }

    pub(super) fn flush(&self) {
        self.sends.flush(self.qpn());
        self.receives.flush(self.qpn());
    }

    pub(super) fn is_overrun(&self) -> bool {
        self.sends.cq.is_overrun() || self.receives.cq.is_overrun()
    }
}
