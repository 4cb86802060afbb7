//! One end of a measurement: a queue pair and memory, made anew for each plan.
//!
//! The region is a ring of places for bandwidth. For latency, what comes lies at its beginning, and
//! what goes in its second half.

use super::PerfError;
use super::message::Place;
use super::plan::{Figure, Plan};
use super::wait::{Bed, patience, wait};
use crate::session::message::SessionPath;
use catchment_verbs::{
    Access, Completion, CompletionChannel, Context, Cq, Mr, Payload, Pd, Qp, QpInit, QpState,
    QpTransition, RecvWr, RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Service, Sge,
};
use std::sync::Arc;
use std::time::Duration;

/// Places begin at cache lines.
const LINE: u64 = 64;
/// Of the ring, where more than two places do not need more: what caches hold.
const RING_BYTES: u64 = 16 << 20;
/// Requests outstanding at most where one at a time is timed; completions are asked for rarely.
const LATENCY_DEPTH: u32 = 64;
/// Longest inline payload that is used.
const INLINE_BYTES: u32 = 256;

/// A queue of completions and what to sleep on for them.
pub(super) struct Queue {
    cq: Arc<dyn Cq>,
    channel: Arc<dyn CompletionChannel>,
}

/// See the module.
pub(super) struct End {
    pub(super) plan: Plan,
    pub(super) qp: Box<dyn Qp>,
    pub(super) sends: Queue,
    pub(super) receives: Queue,
    pub(super) mr: Arc<dyn Mr>,
    inline_bytes: u64,
    places: u64,
    peer: Option<RemoteAddr>,
    _pd: Arc<dyn Pd>,
    context: Arc<dyn Context>,
}

impl End {
    /// Memory and a queue pair for `plan`.
    pub(super) fn open(context: &Arc<dyn Context>, plan: Plan) -> Result<End, PerfError> {
        let depth = match plan.test.figure {
            Figure::Bandwidth => plan.depth,
            Figure::Latency => LATENCY_DEPTH,
        };
        let stride = stride(plan.bytes);
        let places = u64::from(depth).min(RING_BYTES / stride).max(2);
        let pd = context
            .alloc_pd()
            .map_err(PerfError::verbs("a protection domain"))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE;
        let mr = pd
            .alloc_mr((places * stride) as usize, access)
            .map_err(PerfError::verbs("registering memory"))?;
        let sends = Queue::new(&**context, depth)?;
        let receives = Queue::new(&**context, depth)?;
        let inline = context.caps().max_inline_bytes.min(INLINE_BYTES);
        let qp = pd.create_qp(QpInit {
            service: Service::Rc,
            send_cq: Arc::clone(&sends.cq),
            recv_cq: Arc::clone(&receives.cq),
            max_send_wr: depth,
            max_recv_wr: depth,
            max_sge: 1,
            max_inline_bytes: inline,
            strict: false,
        });
        Ok(End {
            plan,
            qp: qp.map_err(PerfError::verbs("a queue pair"))?,
            sends,
            receives,
            mr,
            inline_bytes: inline.into(),
            places,
            peer: None,
            _pd: pd,
            context: Arc::clone(context),
        })
    }

    /// What the peer must know.
    pub(super) fn place(&self) -> Place {
        let memory = RemoteAddr {
            addr: self.mr.addr(),
            rkey: self.mr.rkey(),
        };
        Place::new(self.qp.endpoint(), memory)
    }

    /// Connects to the peer.
    pub(super) fn connect(&mut self, peer: &Place, path: &SessionPath) -> Result<(), PerfError> {
        let endpoint = peer.endpoint().map_err(PerfError::Failed)?;
        for step in [
            QpTransition::ToInit {
                access: Access::REMOTE,
            },
            QpTransition::ToRtr(RtrAttr::new(path.agreed(endpoint))),
            QpTransition::ToRts(RtsAttr::default()),
        ] {
            self.qp.modify(step)?;
        }
        self.peer = Some(peer.memory());
        Ok(())
    }

    /// Byte of place `n`, counted on round the ring.
    pub(super) fn offset(&self, n: u64) -> u64 {
        n % self.places * stride(self.plan.bytes)
    }

    /// Byte where what is sent lies, for latency.
    pub(super) fn outbox(&self) -> u64 {
        self.places / 2 * stride(self.plan.bytes)
    }

    /// A request's bytes at an offset of the own memory.
    pub(super) fn sge(&self, offset: u64) -> Sge {
        Sge {
            addr: self.mr.addr() + offset,
            bytes: self.plan.bytes as u32,
            lkey: self.mr.lkey(),
        }
    }

    /// The same place in the peer's memory.
    pub(super) fn remote(&self, offset: u64) -> RemoteAddr {
        let peer = self.peer.unwrap_or(RemoteAddr { addr: 0, rkey: 0 });
        RemoteAddr {
            addr: peer.addr + offset,
            ..peer
        }
    }

    /// Posts request `n` from the outbox, whose last byte is `mark`.
    pub(super) fn post_marked(
        &mut self,
        (n, op, signaled): (u64, SendOp, bool),
        mark: u8,
    ) -> Result<(), PerfError> {
        let bytes = self.plan.bytes;
        let mut short = [0; INLINE_BYTES as usize];
        let sges = [self.sge(self.outbox())];
        let payload = if bytes <= self.inline_bytes {
            short[bytes as usize - 1] = mark;
            Payload::Inline(&short[..bytes as usize])
        } else {
            let last = (self.outbox() + bytes - 1) as usize;
            let written = self.mr.region().whole().write_at(last, &[mark]);
            written.map_err(|error| PerfError::Failed(error.to_string()))?;
            Payload::Sges(&sges)
        };
        let request = SendWr {
            signaled,
            ..SendWr::new(n, op, payload)
        };
        Ok(self.qp.post_send(&[request])?)
    }

    /// Posts a receive into the place at `offset`.
    pub(super) fn post_receive(&mut self, wr_id: u64, offset: u64) -> Result<(), PerfError> {
        let sges = [self.sge(offset)];
        let request = RecvWr { wr_id, sges: &sges };
        Ok(self.qp.post_recv(&[request])?)
    }

    /// Why the queue pair failed, if it did.
    pub(super) fn check(&self) -> Result<(), PerfError> {
        if self.qp.state() != QpState::Err {
            return Ok(());
        }
        let event = self.context.async_event();
        let why = event.map_or("is the other side gone?".to_owned(), |event| {
            format!("{event:?}")
        });
        Err(PerfError::Failed(format!("the queue pair failed: {why}")))
    }
}

fn stride(bytes: u64) -> u64 {
    bytes.next_multiple_of(LINE)
}

impl Queue {
    fn new(context: &dyn Context, capacity: u32) -> Result<Queue, PerfError> {
        let channel = context
            .create_channel()
            .map_err(PerfError::verbs("a completion channel"))?;
        let cq = context
            .create_cq(capacity, Some(Arc::clone(&channel)))
            .map_err(PerfError::verbs("a completion queue"))?;
        Ok(Queue { cq, channel })
    }

    /// Takes completions that are there, `MOST` at a time, and shows each one's number; how many.
    pub(super) fn poll<const MOST: usize>(
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
}

impl Bed for &Queue {
    fn arm(&self) {
        self.cq.req_notify(false);
    }

    fn doze(&self, limit: Duration) -> Result<(), PerfError> {
        let woken = self.channel.wait(limit);
        woken.map(|_| ()).map_err(PerfError::Sleep)
    }
}

/// Waits in the way of the plan until `look` has found something, and looks after the queue pair.
pub(super) fn demand<T>(
    end: &End,
    queue: &Queue,
    mut look: impl FnMut() -> Result<Option<T>, PerfError>,
) -> Result<T, PerfError> {
    let mut late = patience();
    let mut in_vain = |_: &()| end.check().and_then(|()| late());
    loop {
        let found = wait(
            &mut (),
            end.plan.waiting,
            |()| Some(queue),
            &mut in_vain,
            |()| look(),
        )?;
        if let Some(found) = found {
            return Ok(found);
        }
    }
}
