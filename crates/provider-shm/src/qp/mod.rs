//! The application's queue pair: posting, and the states.
mod change;

use crate::connection::Connection;
use crate::cq_core::Attached;
use crate::handles::ShmPd;
use crate::inner::PostedRecv;
use crate::local::LocalCache;
use crate::pace::Pace;
use crate::payload::{Piece, Source};
use crate::qp_core::{LOST, QpCore};
use crate::remote::{RemoteCache, RemoteMr, ShmBell};
use crate::request::{Front, Kept, Outcome, Progress, Waiting};
use crate::{one_sided, send};
use catchment_verbs::mem::RegionSlice;
use catchment_verbs::provider::{check_rate, check_transition, local_rights, post_each};
use catchment_verbs::{
    Access, Endpoint, ModifyError, Payload, PostError, PostFailure, Qp, QpState, QpTransition,
    RateError, RateLimit, RecvWr, RemoteMapError, RemoteWindow, SendWr, Sge, Watch, WcStatus,
};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Elements of a batch that are held until its end.
const PIECES: usize = 32;

/// See the module documentation.
pub(crate) struct ShmQp {
    core: Arc<QpCore>,
    pd: ShmPd,
    /// Requests ever posted.
    posted: u64,
    recv_posted: u64,
    connection: Option<Arc<Connection>>,
    locals: LocalCache,
    remotes: RefCell<RemoteCache>,
    /// The elements of the requests of this batch, or the one of the request before: holding and
    /// releasing a region are atomic operations, which wait until the bytes copied before have reached
    /// the caches. So the region of a request of one element stays mapped until this queue pair posts
    /// from another one, changes its state or is dropped.
    pieces: Vec<Piece>,
    /// Where those of the current request begin.
    in_hand: usize,
    /// It has a rate limit.
    paced: bool,
    /// A completion was pushed in this batch; true if of a failure.
    pushed: Option<bool>,
}

impl ShmQp {
    pub(crate) fn new(core: Arc<QpCore>, pd: ShmPd) -> Self {
        let attached: Arc<dyn Attached> = Arc::clone(&core) as _;
        core.send_cq.attach(Arc::downgrade(&attached));
        if !Arc::ptr_eq(&core.send_cq, &core.recv_cq) {
            core.recv_cq.attach(Arc::downgrade(&attached));
        }
        Self {
            pieces: Vec::with_capacity(PIECES.max(core.limits.max_sge as usize)),
            in_hand: 0,
            core,
            pd,
            posted: 0,
            recv_posted: 0,
            connection: None,
            locals: LocalCache::default(),
            remotes: RefCell::default(),
            paced: false,
            pushed: None,
        }
    }

    fn check_send(&self, wr: &SendWr<'_>) -> Result<(), PostFailure> {
        let core = &self.core;
        let outstanding = core.sq.outstanding(self.posted);
        core.limits.check_send(core.state(), outstanding, wr)
    }

    fn connection(&mut self) -> Option<&Arc<Connection>> {
        if self.connection.is_none() {
            self.connection = self.core.lock().connection.clone();
        }
        self.connection.as_ref()
    }

    fn post(&mut self, wr: &SendWr<'_>) {
        let seq = self.posted;
        if seq == 0 {
            self.core.keep_link();
        }
        self.posted += 1;
        let usable = self.gather(wr);
        let immediate = one_sided::is_alone(&wr.op)
            && !self.paced
            && !self.core.is_waiting()
            && self.core.state() == QpState::Rts
            && self.connection().is_some();
        if immediate {
            self.post_now(wr, seq, usable);
        } else {
            self.post_slowly(wr, seq, usable);
        }
    }

    /// Looks up the elements of the request, behind those of the batch so far.
    #[inline]
    fn gather(&mut self, wr: &SendWr<'_>) -> Result<(), WcStatus> {
        let Payload::Sges(sges) = wr.payload else { return Ok(()) };
        if let [sge] = sges
            && self.gather_again(sge, local_rights(&wr.op))
        {
            return Ok(());
        }
        if self.pieces.len() + sges.len() > self.pieces.capacity() {
            self.pieces.clear();
        }
        self.in_hand = self.pieces.len();
        let rights = local_rights(&wr.op);
        self.locals.gather(&self.core.context.keys, self.core.pd, sges, rights, &mut self.pieces)
    }

    /// Points the element of the request before to this one, if it is of the same region.
    #[inline]
    fn gather_again(&mut self, sge: &Sge, rights: Access) -> bool {
        let pd = self.core.pd;
        let Some(piece) = self.pieces.last_mut() else { return false };
        let again =
            piece.mr.key == sge.lkey && piece.mr.is_valid() && piece.mr.allows(pd, sge, rights);
        if again {
            (piece.addr, piece.bytes) = (sge.addr, sge.bytes);
            self.in_hand = self.pieces.len() - 1;
        }
        again
    }

    /// The short path: the request is done when this returns.
    #[inline]
    fn post_now(&mut self, wr: &SendWr<'_>, seq: u64, usable: Result<(), WcStatus>) {
        let Some(connection) = &self.connection else { return };
        let source = match wr.payload {
            Payload::Inline(data) => Source::Inline(data),
            Payload::Sges(_) => Source::Pieces(&self.pieces[self.in_hand..]),
        };
        let result = usable.and_then(|()| {
            if !connection.is_alive() {
                return Err(WcStatus::TransportRetryExceeded);
            }
            send::execute_now(connection, self.remotes.get_mut(), &wr.op, source)
        });
        let failed = result.err();
        let result = result.map(|bytes| (wr.op.opcode(), bytes));
        self.core.complete_send(wr.wr_id, seq, wr.signaled, result);
        if wr.signaled || failed.is_some() {
            self.pushed = Some(self.pushed.unwrap_or(false) || failed.is_some());
        }
        if let Some(status) = failed {
            self.core.blame(Some(connection), status);
            let lost = connection.is_broken() || self.remotes.get_mut().is_broken();
            let mut inner = self.core.lock();
            self.core.fail_by_request(&mut inner, lost.then_some(LOST));
            self.core.announce(inner);
        }
    }

    /// Under the lock: messages, and whatever must wait.
    fn post_slowly(&mut self, wr: &SendWr<'_>, seq: u64, usable: Result<(), WcStatus>) {
        let core = &self.core;
        let source = match wr.payload {
            Payload::Inline(data) => Source::Inline(data),
            Payload::Sges(_) => Source::Pieces(&self.pieces[self.in_hand..]),
        };
        let mut inner = core.lock();
        let state = core.state();
        let mut progress = Progress::default();
        let outcome = if state == QpState::Err {
            Outcome::Done(Err(WcStatus::Flushed))
        } else if state != QpState::Rts || !inner.sends.is_empty() || inner.pace.is_some() {
            Outcome::Wait
        } else if let Err(status) = usable {
            Outcome::Done(Err(status))
        } else {
            let front = Front { op: &wr.op, source, solicited: wr.solicited };
            core.attempt(&mut inner, &front, &mut progress)
        };
        if let Outcome::Done(result) = outcome {
            let done = result.map(|bytes| (wr.op.opcode(), bytes));
            core.complete_send(wr.wr_id, seq, wr.signaled, done);
            if wr.signaled || result.is_err() {
                inner.pushed_send = Some(inner.pushed_send.unwrap_or(false) || result.is_err());
            }
            if let Err(status) = result {
                core.blame(inner.connection.as_deref(), status);
                let lost = inner.is_broken();
                core.fail_by_request(&mut inner, lost.then_some(LOST));
            }
            return core.announce(inner);
        }
        let kept = match usable {
            Ok(()) => Kept::new(source),
            Err(_) => Kept::Wrong,
        };
        let waiting = Waiting {
            wr_id: wr.wr_id,
            seq,
            op: wr.op,
            signaled: wr.signaled,
            solicited: wr.solicited,
            kept,
            progress,
        };
        core.push_waiting(&mut inner, waiting);
        core.announce(inner);
        if self.paced || matches!(outcome, Outcome::Ask(..)) {
            core.progress(true, true);
        }
    }

    /// Ends a batch: wakes the threads that sleep until what it did.
    #[inline]
    fn finish(&mut self) {
        let remotes = self.remotes.get_mut();
        let pushed = self.pushed.take();
        if let Some(failed) = pushed {
            fence(Ordering::SeqCst);
            remotes.ring_fenced();
            self.core.send_cq.queue.announce_fenced(failed);
        } else if remotes.is_touched() {
            remotes.ring();
        }
        if self.pieces.len() > 1 {
            self.pieces.clear();
        }
    }

    fn post_one_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostFailure> {
        let core = &self.core;
        let outstanding = core.rq.outstanding(self.recv_posted);
        core.limits.check_recv(core.state(), outstanding, wr)?;
        let mut pieces = Vec::with_capacity(wr.sges.len());
        let keys = &core.context.keys;
        let usable = self.locals.gather(keys, core.pd, wr.sges, Access::LOCAL_WRITE, &mut pieces);
        let recv = PostedRecv {
            wr_id: wr.wr_id,
            seq: self.recv_posted,
            room: usable.is_ok().then(|| Source::Pieces(&pieces).bytes()),
            pieces,
            filled: 0,
        };
        self.recv_posted += 1;
        core.add_recv(recv);
        Ok(())
    }

    fn remote(&self, addr: u64, len: u64, rkey: u32) -> Result<Arc<RemoteMr>, RemoteMapError> {
        let state = self.core.state();
        let connected = matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        let connection = self.core.lock().connection.clone();
        let connection = connection.filter(|_| connected).ok_or(RemoteMapError::State(state))?;
        let refused = |status| RemoteMapError::Refused { rkey, addr, len, status };
        if !connection.is_alive() {
            return Err(refused(WcStatus::TransportRetryExceeded));
        }
        self.core.keep_link();
        let mut remotes = self.remotes.borrow_mut();
        let at = match remotes.find(rkey) {
            Some(at) => at,
            None => remotes.insert(RemoteMr::resolve(&connection, rkey).map_err(refused)?),
        };
        let mr = Arc::clone(remotes.get(at));
        let right =
            if mr.region().is_writable() { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
        if !connection.access.contains(right) {
            return Err(refused(WcStatus::RemoteInvalidRequest));
        }
        Ok(mr)
    }
}

impl Qp for ShmQp {
    fn qpn(&self) -> u32 {
        self.core.qpn
    }

    fn state(&self) -> QpState {
        self.core.fail_if_overrun();
        self.core.state()
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { gid: self.core.context.gid, qpn: self.core.qpn, psn: self.core.psn, net: None }
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        let core = &self.core;
        check_transition((core.qpn, core.limits.service), core.state(), &transition)?;
        self.pieces.clear();
        self.change(transition)
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        self.core.fail_if_overrun();
        let result = post_each(requests, |wr| self.check_send(wr).map(|()| self.post(wr)));
        self.finish();
        result
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        post_each(requests, |wr| self.post_one_recv(wr))
    }

    fn set_rate(&mut self, limit: Option<RateLimit>) -> Result<(), RateError> {
        let core = &self.core;
        check_rate(&core.context.caps, "this device", limit)?;
        let mut inner = core.lock();
        match (limit, &mut inner.pace) {
            (Some(limit), Some(pace)) => pace.set_limit(limit),
            (Some(limit), none) => *none = Some(Pace::new(limit)),
            (None, pace) => *pace = None,
        }
        inner.opens = None;
        drop(inner);
        self.paced = limit.is_some();
        core.progress(true, true);
        Ok(())
    }

    fn map_remote(&self, addr: u64, bytes: u64, rkey: u32) -> Result<RemoteWindow, RemoteMapError> {
        let refused = |status| RemoteMapError::Refused { rkey, addr, len: bytes, status };
        let mr = self.remote(addr, bytes, rkey)?;
        let offset = mr.offset(addr, bytes, Access::empty()).map_err(refused)?;
        let memory = RegionSlice::new(Arc::clone(mr.region()), offset, bytes as usize)
            .map_err(|_| refused(WcStatus::RemoteAccess))?;
        Ok(RemoteWindow { memory, bell: Arc::new(ShmBell(mr)) })
    }

    fn watch_remote(&self, rkey: u32) -> Result<Arc<dyn Watch>, RemoteMapError> {
        let watch = self.remote(0, 0, rkey)?.watch().map_err(|status| RemoteMapError::Refused {
            rkey,
            addr: 0,
            len: 0,
            status,
        })?;
        Ok(watch)
    }
}

impl Drop for ShmQp {
    fn drop(&mut self) {
        let core = &self.core;
        self.pd.state().remove_queue_pair(core.qpn);
        let mut inner = core.lock();
        core.set_state(QpState::Reset, &inner);
        if let Some(connection) = inner.connection.take() {
            connection.ring_sender();
        }
        while !inner.sends.is_empty() {
            core.pop_waiting(&mut inner);
        }
        inner.recvs.clear();
        core.note_receives(&inner);
        inner.peer = None;
        drop(inner);
        let attached: Arc<dyn Attached> = Arc::clone(core) as _;
        let attached = Arc::downgrade(&attached);
        core.send_cq.detach(&attached);
        core.recv_cq.detach(&attached);
    }
}
