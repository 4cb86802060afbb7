//! The application's queue pair: posting, and the states.
mod change;
mod datagrams;

use crate::cores::{AhCore, CqCore};
use crate::device::Device;
use crate::handles::IbPd;
use crate::rate::{Rate, paces};
use crate::slots::{Control, RequestId, Slot};
use crate::sys::types::{IBV_QPS_ERR, IBV_QPS_SQE};
use crate::sys::{QueuePair, Refused};
use catchment_verbs::provider::{Handle, Limits, MAX_24_BITS, check_rate, random};
use catchment_verbs::{
    Endpoint, ModifyError, NetEnd, PostError, PostFailure, Qp, QpState, QpTransition, RateError,
    RateLimit, RecvWr, RtsAttr, SendOp, SendWr, Service, VerbsError,
};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard};

/// The shortest interval between queries of a queue pair's state.
const ASK_NS: u64 = 10_000_000;

pub(crate) struct IbQp {
    qp: Arc<QueuePair>,
    slot: Arc<Slot>,
    pd: IbPd,
    cqs: (Arc<CqCore>, Arc<CqCore>),
    limits: Limits,
    psn: u32,
    /// The attributes of RTS that are in force.
    sending: Option<RtsAttr>,
    rate: Rate,
    /// Address handles of the datagrams that are outstanding, by number, oldest first.
    handles: VecDeque<(u64, Arc<Handle<AhCore>>)>,
}

impl IbQp {
    pub(crate) fn new(
        qp: Arc<QueuePair>,
        slot: Arc<Slot>,
        (pd, cqs): (IbPd, (Arc<CqCore>, Arc<CqCore>)),
        limits: Limits,
    ) -> Result<Self, VerbsError> {
        slot.occupy(&qp, limits.service, [cqs.0.tag, cqs.1.tag]);
        cqs.0.add_user(slot.index);
        cqs.1.add_user(slot.index);
        // From here on dropping undoes all.
        let mut qp = Self {
            qp,
            slot,
            pd,
            cqs,
            limits,
            psn: 0,
            sending: None,
            rate: Rate::default(),
            handles: VecDeque::new(),
        };
        qp.psn = random()? & MAX_24_BITS;
        Ok(qp)
    }

    /// Sets the requested rate on the device, once it accepts one.
    fn settle_rate(&mut self) -> io::Result<()> {
        if self.slot.state.get() != QpState::Rts || !self.reaches_device() {
            return Ok(());
        }
        self.rate.settle(|kbps| self.qp.limit_rate(kbps))
    }

    fn device(&self) -> &Arc<Device> {
        self.pd.device()
    }

    /// Queries the kernel for the state, if it may have changed and was not queried just now.
    fn ask_for_state(&self) {
        let device = self.device();
        let sends = &self.slot.sends;
        let waits = sends.outstanding(sends.posted()) > 0;
        if !waits && !device.quirks.is_rxe {
            // Errors of peers arrive as events.
            return;
        }
        let (now, asked) = (device.now_ns(), self.slot.asked_ns.load(Ordering::Relaxed));
        if now < asked.saturating_add(ASK_NS) {
            return;
        }
        self.slot.asked_ns.store(now, Ordering::Relaxed);
        match self.qp.query_state() {
            Ok(IBV_QPS_ERR | IBV_QPS_SQE) => device.fail(
                &self.slot,
                "the device moved it to the error state: a request of this side or of the peer \
                 failed, and its completion reports why",
            ),
            Ok(_) => {}
            Err(error) => device.lose(&format!("it does not answer ({error})")),
        }
    }

    fn refused(&self, refused: &Refused, capacity: u32) -> PostFailure {
        match refused.errno {
            libc::ENOMEM => PostFailure::QueueFull(capacity),
            errno => PostFailure::Device(errno),
        }
    }

    /// Returns whether the device is still there: otherwise requests only wait to be flushed.
    fn reaches_device(&self) -> bool {
        !self.device().is_gone()
    }

    /// Records what completions need of sends, and posts them with `post`.
    #[inline]
    fn post_sends(
        &self,
        requests: &[SendWr<'_>],
        post: impl FnOnce((u64, u64)) -> Result<(), Refused>,
    ) -> Result<(), PostError> {
        let kept = requests.iter().map(|wr| (wr.wr_id, wr.payload.bytes()));
        self.give(false, self.limits.max_send_wr, kept, post)
    }

    fn post_recvs(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let kept = requests.iter().map(|wr| (wr.wr_id, 0));
        let post = |ids| self.qp.post_recv(requests, ids);
        let result = self.give(true, self.limits.max_recv_wr, kept, post);
        self.flush_late_receives();
        result
    }

    /// Records number and length of requests for one of the queues, and posts them with `post`.
    #[inline]
    fn give(
        &self,
        is_recv: bool,
        capacity: u32,
        kept: impl ExactSizeIterator<Item = (u64, u64)>,
        post: impl FnOnce((u64, u64)) -> Result<(), Refused>,
    ) -> Result<(), PostError> {
        let queue = self.slot.queue(is_recv);
        let (first, mut posted, mut result) = (queue.posted(), kept.len(), Ok(()));
        for (seq, (wr_id, bytes)) in (first..).zip(kept) {
            queue.keep(seq, wr_id, bytes);
        }
        if self.reaches_device() {
            let RequestId(id) = self.slot.request_id(is_recv, first);
            if let Err(refused) = post((id, RequestId::STEP)) {
                (posted, result) = self.after_refusal(refused, posted, capacity);
            }
        }
        queue.set_posted(first + posted as u64);
        result
    }

    /// Handles requests that the device refused: returns how many are posted, and the error.
    #[cold]
    fn after_refusal(
        &self,
        refused: Refused,
        asked: usize,
        capacity: u32,
    ) -> (usize, Result<(), PostError>) {
        if matches!(refused.errno, libc::EIO | libc::ENODEV) {
            let error = io::Error::from_raw_os_error(refused.errno);
            self.device().lose(&format!("it takes no requests ({error})"));
            // They are flushed with the others.
            return (asked, Ok(()));
        }
        let error = PostError { index: refused.index, reason: self.refused(&refused, capacity) };
        (refused.index, Err(error))
    }

    /// Soft-RoCE flushes the receives that exist when it is moved to the error state, and none
    /// posted later. The thread that notices the error moves it once; so does this one, if that was
    /// before its receives were posted.
    fn flush_late_receives(&self) {
        if !self.device().quirks.is_rxe {
            return;
        }
        // Either the other thread's change of state is seen here, or it sees our receives.
        fence(Ordering::SeqCst);
        if self.slot.state.get() == QpState::Err
            && self.reaches_device()
            && let Err(error) = self.qp.set_state(IBV_QPS_ERR)
        {
            tracing::debug!(%error, "flushing late receives");
        }
    }
}

/// The address of an atomic must be a multiple of eight (IBTA 9.4.5.1). Some drivers refuse it with
/// a bare error number, others let the peer break the connection.
#[inline]
fn check_alignment(op: &SendOp) -> Result<(), PostFailure> {
    if op.is_misaligned_atomic() {
        return Err(PostFailure::Payload(
            "the remote address of an atomic is not a multiple of eight",
        ));
    }
    Ok(())
}

/// Returns how many of these requests are valid, and the error of the next.
fn split<T>(
    requests: &[T],
    check: impl Fn(u64, &T) -> Result<(), PostFailure>,
) -> (usize, Result<(), PostError>) {
    for (index, request) in requests.iter().enumerate() {
        if let Err(reason) = check(index as u64, request) {
            return (index, Err(PostError { index, reason }));
        }
    }
    (requests.len(), Ok(()))
}

impl Qp for IbQp {
    fn qpn(&self) -> u32 {
        self.qp.qpn
    }

    fn state(&self) -> QpState {
        if matches!(self.slot.state.get(), QpState::Rtr | QpState::Rts | QpState::Sqd)
            && !self.device().is_gone()
        {
            self.ask_for_state();
        }
        self.slot.state.get()
    }

    fn endpoint(&self) -> Endpoint {
        let device = self.device();
        Endpoint {
            gid: device.place.gid,
            qpn: self.qp.qpn,
            psn: self.psn,
            net: Some(NetEnd::of_rnic(device.path_mtu)),
        }
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        let slot = Arc::clone(&self.slot);
        let mut control: MutexGuard<'_, Control> = slot.control.lock();
        self.change(&mut control, &transition)
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        if self.limits.service == Service::Ud {
            return self.post_datagrams(requests);
        }
        let (state, posted) = (self.slot.state.get(), self.slot.sends.posted());
        let outstanding = self.slot.sends.outstanding(posted);
        let (right, wrong) = split(requests, |n, wr| {
            check_alignment(&wr.op)?;
            self.limits.check_send(state, outstanding + n, wr)
        });
        let requests = &requests[..right];
        self.post_sends(requests, |ids| self.qp.post_send(requests, ids)).and(wrong)
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let (state, posted) = (self.slot.state.get(), self.slot.recvs.posted());
        let outstanding = self.slot.recvs.outstanding(posted);
        let (right, wrong) =
            split(requests, |n, wr| self.limits.check_recv(state, outstanding + n, wr));
        self.post_recvs(&requests[..right]).and(wrong)
    }

    fn set_rate(&mut self, limit: Option<RateLimit>) -> Result<(), RateError> {
        let device = self.device();
        check_rate(&device.caps, "this device", limit)?;
        if !device.pacing.is_some_and(|pacing| paces(&pacing, self.limits.service)) {
            let device = format!("{} ({:?})", device.place.device, self.limits.service);
            return Err(RateError::Unsupported(device));
        }
        let before = self.rate.ask(limit.map(|limit| limit.rate_bps));
        self.settle_rate().map_err(|error| {
            self.rate = before;
            RateError::Device { qpn: self.qpn(), reason: error.to_string() }
        })
    }
}

impl Drop for IbQp {
    fn drop(&mut self) {
        // Events and pollers reach the queue pair through its slot: leave that first.
        self.slot.control.lock().qp = None;
        self.cqs.0.remove_user(self.slot.index);
        self.cqs.1.remove_user(self.slot.index);
        self.device().slots.give_back(&self.slot);
    }
}
