//! One end of a measurement over verbs: a queue pair and registered memory.
//!
//! For bandwidth the memory is a ring of places. For latency, what comes lies at its beginning, and what
//! is sent in its second half.
use crate::PerfError;
use crate::message::Place;
use crate::operation::Figure;
use crate::plan::{Plan, Waiting};
use crate::wait::{patience, wait_for};
use catchment_verbs::wait::CqWatch;
use catchment_verbs::{
    Access, Completion, Context, Cq, Endpoint as QpEndpoint, Mr, Payload, Pd, Qp, QpInit, QpState,
    RateLimit, RecvWr, RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Sge, Watch,
};
use std::sync::Arc;

/// Requests outstanding at most where one at a time is timed; completions are asked for rarely.
const LATENCY_DEPTH: u32 = 64;
/// Longest inline payload that is used.
const INLINE_BYTES: u32 = 256;

/// The device that a side measures over.
pub struct LocalDevice {
    /// The open device.
    pub context: Arc<dyn Context>,
    /// Turns the peer's endpoint into the one that both sides agreed on.
    pub agree: Box<dyn Fn(QpEndpoint) -> QpEndpoint + Send>,
    /// How patient the queue pair is.
    pub rts: RtsAttr,
    /// What else is counted beside processor time; the meaning of the numbers is the front end's.
    pub counters: Box<dyn Fn() -> Vec<u64> + Send>,
}

impl LocalDevice {
    /// Returns a device that takes endpoints as they come, with default patience and no counters.
    pub fn new(context: Arc<dyn Context>) -> Self {
        Self {
            context,
            agree: Box::new(|endpoint| endpoint),
            rts: RtsAttr::default(),
            counters: Box::new(Vec::new),
        }
    }
}

/// A completion queue and what to sleep on for it.
pub(crate) struct Queue {
    cq: Arc<dyn Cq>,
    watch: Arc<CqWatch>,
}

impl Queue {
    fn create(context: &dyn Context, capacity: u32) -> Result<Self, PerfError> {
        let channel =
            context.create_channel().map_err(PerfError::verbs("creating a completion channel"))?;
        let cq = context
            .create_cq(capacity, Some(Arc::clone(&channel)))
            .map_err(PerfError::verbs("creating a completion queue"))?;
        let watch = Arc::new(CqWatch::new(Arc::clone(&cq), channel));
        Ok(Self { cq, watch })
    }

    /// Takes up to `MOST` completions that are there and shows the number of each; returns how many.
    pub(crate) fn poll<const MOST: usize>(
        &self,
        mut see: impl FnMut(u64),
    ) -> Result<usize, PerfError> {
        let mut taken = [Completion::EMPTY; MOST];
        let count = self.cq.poll(&mut taken)?;
        for completion in &taken[..count] {
            if let Err(failure) = completion.result {
                let status = failure.status;
                let text = format!("request {} failed: {status:?}", completion.wr_id);
                return Err(PerfError::Failed(text));
            }
            see(completion.wr_id);
        }
        Ok(count)
    }

    /// Returns what to sleep on.
    pub(crate) fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.watch) as Arc<dyn Watch>
    }
}

/// A queue pair and memory that a side makes for one plan.
pub(crate) struct Endpoint {
    qp: Box<dyn Qp>,
    sends: Queue,
    receives: Queue,
    mr: Arc<dyn Mr>,
    inline_bytes: u64,
    peer: RemoteAddr,
    _pd: Arc<dyn Pd>,
    context: Arc<dyn Context>,
}

impl Endpoint {
    /// Creates memory and a queue pair for `plan`.
    ///
    /// # Errors
    /// [`PerfError::Verbs`] with what the device refused.
    pub(crate) fn open(context: &Arc<dyn Context>, plan: &Plan) -> Result<Self, PerfError> {
        let (sends, receives, places) = match plan.test.figure {
            Figure::Bandwidth => (plan.depth, plan.receives, plan.places),
            Figure::Latency => (LATENCY_DEPTH, LATENCY_DEPTH, 2),
        };
        let pd = context.alloc_pd().map_err(PerfError::verbs("allocating a protection domain"))?;
        let bytes = places * Plan::place_bytes(plan.bytes);
        let mr = pd
            .alloc_mr(bytes as usize, Access::LOCAL_WRITE | Access::REMOTE)
            .map_err(PerfError::verbs("registering memory"))?;
        let (send_queue, receive_queue) =
            (Queue::create(&**context, sends)?, Queue::create(&**context, receives)?);
        let inline = context.caps().max_inline_bytes.min(INLINE_BYTES);
        let qp = pd.create_qp(QpInit {
            recv_cq: Arc::clone(&receive_queue.cq),
            max_inline_bytes: inline,
            ..QpInit::rc(&send_queue.cq, sends, receives)
        });
        Ok(Self {
            qp: qp.map_err(PerfError::verbs("creating a queue pair"))?,
            sends: send_queue,
            receives: receive_queue,
            mr,
            inline_bytes: inline.into(),
            peer: RemoteAddr { addr: 0, rkey: 0 },
            _pd: pd,
            context: Arc::clone(context),
        })
    }

    /// Returns what the peer must know.
    pub(crate) fn place(&self) -> Place {
        Place::new(self.qp.endpoint(), RemoteAddr { addr: self.mr.addr(), rkey: self.mr.rkey() })
    }

    /// Connects to the peer.
    pub(crate) fn connect(&mut self, peer: &Place, device: &LocalDevice) -> Result<(), PerfError> {
        let remote = (device.agree)(peer.endpoint()?);
        self.qp.connect(Access::REMOTE, RtrAttr::new(remote), device.rts)?;
        self.peer = peer.memory();
        Ok(())
    }

    /// Limits the rate of the queue pair, where one is asked for.
    pub(crate) fn limit(&mut self, rate_bps: Option<u64>) -> Result<(), PerfError> {
        match rate_bps {
            Some(_) => self.qp.set_rate(rate_bps.map(RateLimit::new)).map_err(PerfError::failed),
            None => Ok(()),
        }
    }

    /// Lends its parts for a measurement.
    pub(crate) fn connection(&mut self, plan: &Plan) -> Connection<'_> {
        Connection {
            qp: &mut *self.qp,
            sends: &self.sends,
            receives: &self.receives,
            memory: &*self.mr,
            peer: self.peer,
            context: &*self.context,
            waiting: plan.waiting,
            bytes: plan.bytes,
            inline_bytes: self.inline_bytes,
            polls: plan.polls,
        }
    }
}

/// A connected queue pair with memory at both ends, borrowed from its owner.
pub(crate) struct Connection<'a> {
    /// The queue pair.
    pub(crate) qp: &'a mut dyn Qp,
    /// Where requests complete.
    pub(crate) sends: &'a Queue,
    /// Where receives complete.
    pub(crate) receives: &'a Queue,
    /// The own memory.
    pub(crate) memory: &'a dyn Mr,
    /// The peer's memory, as long as the own.
    pub(crate) peer: RemoteAddr,
    /// The device, which knows why a queue pair failed.
    pub(crate) context: &'a dyn Context,
    /// How to wait.
    pub(crate) waiting: Waiting,
    /// Bytes of a request.
    pub(crate) bytes: u64,
    /// Longest inline payload.
    pub(crate) inline_bytes: u64,
    /// As [`Plan::polls`].
    pub(crate) polls: bool,
}

impl Connection<'_> {
    /// Returns the places of a ring that the memory has room for.
    pub(crate) fn places(&self) -> u64 {
        self.memory.bytes() as u64 / Plan::place_bytes(self.bytes)
    }

    /// Returns the byte at which place `n` of a ring of `places` begins, counted on round the ring.
    pub(crate) fn offset(&self, n: u64, places: u64) -> u64 {
        n % places * Plan::place_bytes(self.bytes)
    }

    /// Returns the byte at which lies what is sent, for latency.
    pub(crate) fn outbox(&self) -> u64 {
        self.places() / 2 * Plan::place_bytes(self.bytes)
    }

    /// Returns the bytes of a request at an offset of the own memory.
    pub(crate) fn sge(&self, offset: u64) -> Sge {
        Sge {
            addr: self.memory.addr() + offset,
            bytes: self.bytes as u32,
            lkey: self.memory.lkey(),
        }
    }

    /// Returns the same offset of the peer's memory.
    pub(crate) fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { addr: self.peer.addr + offset, ..self.peer }
    }

    /// Posts request `n` from the outbox, with `mark` as its last byte.
    pub(crate) fn post_marked(
        &mut self,
        (n, op, signaled): (u64, SendOp, bool),
        mark: u8,
    ) -> Result<(), PerfError> {
        let bytes = self.bytes;
        let mut short = [0; INLINE_BYTES as usize];
        let sges = [self.sge(self.outbox())];
        let payload = if bytes <= self.inline_bytes.min(INLINE_BYTES.into()) {
            short[bytes as usize - 1] = mark;
            Payload::Inline(&short[..bytes as usize])
        } else {
            let last = (self.outbox() + bytes - 1) as usize;
            self.memory.region().whole().write_at(last, &[mark]).map_err(PerfError::failed)?;
            Payload::Sges(&sges)
        };
        Ok(self.qp.post_send(&[SendWr { signaled, ..SendWr::new(n, op, payload) }])?)
    }

    /// Posts a receive into the memory at `offset`.
    pub(crate) fn post_receive(&mut self, wr_id: u64, offset: u64) -> Result<(), PerfError> {
        let sges = [self.sge(offset)];
        Ok(self.qp.post_recv(&[RecvWr { wr_id, sges: &sges }])?)
    }

    /// Fails if the queue pair did, and says why.
    pub(crate) fn check(&self) -> Result<(), PerfError> {
        if self.qp.state() != QpState::Err {
            return Ok(());
        }
        let event = self.context.async_event();
        let why = event.map_or("is the other side gone?".to_owned(), |event| format!("{event:?}"));
        Err(PerfError::Failed(format!("the queue pair failed: {why}")))
    }

    /// Waits until `look` finds something, which must come, and looks after the queue pair.
    pub(crate) fn demand<T>(
        &self,
        queue: &Queue,
        mut look: impl FnMut() -> Result<Option<T>, PerfError>,
    ) -> Result<T, PerfError> {
        let mut late = patience();
        let mut idle = |_: &()| self.check().and_then(|()| late());
        loop {
            let watch = |(): &()| Some(queue.watch());
            let found = wait_for(&mut (), self.waiting, watch, &mut idle, |()| look())?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }
}
