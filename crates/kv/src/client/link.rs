//! The data side of a client: a queue pair, and memory that it reads into and writes from.
use super::patience::Patience;
use crate::error::KvError;
use crate::layout::UNIT_BYTES;
use crate::operation::Swap;
use crate::protocol::rts_within;
use crate::request::MESSAGE_BYTES;
use catchment_verbs::sync::Mutex;
use catchment_verbs::wait::{CqWatch, Paused, WaitPolicy, Waiter, pause};
use catchment_verbs::{
    Access, Completion, Context, Cq, Endpoint, Mr, Payload, Pd, Qp, QpInit, RecvWr, RemoteAddr,
    RtrAttr, SendOp, SendWr, Sge,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is read lies at the beginning of the memory, what is written here, and what atomics return behind.
const WRITTEN: u64 = (MESSAGE_BYTES as u64).next_multiple_of(UNIT_BYTES);
const ANSWERS: u64 = 2 * WRITTEN;
const BYTES: u64 = ANSWERS + UNIT_BYTES;
const QUEUE: u32 = 16;
/// Longest inline payload that is used.
const INLINE_BYTES: u32 = 256;
/// A request that takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(20);
/// Empty polls between two looks at the clock.
const LOOKS: u32 = 4096;
const SLEEP_MAX: Duration = Duration::from_millis(100);
const SPIN_POLLS: u32 = 2000;

pub(super) struct Link {
    qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    watch: CqWatch,
    waiter: Waiter,
    mr: Arc<dyn Mr>,
    inline_bytes: usize,
    region: RemoteAddr,
    sent: u64,
    /// Why the connection has ended, once it has.
    lost: Arc<Mutex<Option<String>>>,
    _pd: Arc<dyn Pd>,
    _context: Arc<dyn Context>,
}

impl Link {
    pub(super) fn open(context: &Arc<dyn Context>) -> Result<Self, KvError> {
        let pd = context.alloc_pd().map_err(KvError::verbs("allocating a protection domain"))?;
        let mr = pd.alloc_mr(BYTES as usize, Access::LOCAL_WRITE);
        let mr = mr.map_err(KvError::verbs("registering memory"))?;
        let channel = context.create_channel();
        let channel = channel.map_err(KvError::verbs("creating a completion channel"))?;
        let cq = context.create_cq(2 * QUEUE, Some(Arc::clone(&channel)));
        let cq = cq.map_err(KvError::verbs("creating a completion queue"))?;
        let inline = context.caps().max_inline_bytes.min(INLINE_BYTES);
        let init = QpInit { max_inline_bytes: inline, ..QpInit::rc(&cq, QUEUE, 2) };
        let qp = pd.create_qp(init).map_err(KvError::verbs("creating a queue pair"))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            qp,
            watch: CqWatch::new(Arc::clone(&cq), channel),
            cq,
            waiter: Waiter::new(WaitPolicy::Doorbell { spin_polls: SPIN_POLLS }, cores),
            mr,
            inline_bytes: inline as usize,
            region: RemoteAddr { addr: 0, rkey: 0 },
            sent: 0,
            lost: Arc::default(),
            _pd: pd,
            _context: Arc::clone(context),
        })
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// Where whoever learns that the connection has ended says why: no operation waits any longer then.
    pub(super) fn lost(&self) -> Arc<Mutex<Option<String>>> {
        Arc::clone(&self.lost)
    }

    pub(super) fn connect(
        &mut self,
        theirs: Endpoint,
        region: RemoteAddr,
        lease: Duration,
    ) -> Result<(), KvError> {
        self.region = region;
        let nothing = Access::empty();
        Ok(self.qp.connect(nothing, RtrAttr::new(theirs), rts_within(lease))?)
    }

    fn sge(&self, offset: u64, bytes: usize) -> Sge {
        Sge { addr: self.mr.addr() + offset, bytes: bytes as u32, lkey: self.mr.lkey() }
    }

    fn remote(&self, at: u64) -> RemoteAddr {
        RemoteAddr { addr: self.region.addr + at, ..self.region }
    }

    /// READs from an offset of the store.
    pub(super) fn read(&mut self, at: u64, count: u32, out: &mut Vec<u8>) -> Result<(), KvError> {
        let sges = [self.sge(0, count as usize)];
        self.sent += 1;
        let op = SendOp::Read(self.remote(at));
        self.qp.post_send(&[SendWr::new(self.sent, op, Payload::Sges(&sges))])?;
        self.complete()?;
        out.resize(count as usize, 0);
        Ok(self.mr.region().whole().read_at(0, out)?)
    }

    /// WRITEs an item to an offset, then makes the swaps in their order; returns what the last one found.
    pub(super) fn publish(
        &mut self,
        (at, item): (u64, &[u8]),
        mark: Option<Swap>,
        swap: Swap,
    ) -> Result<u64, KvError> {
        let item_sges = [self.sge(WRITTEN, item.len())];
        let payload = if item.len() <= self.inline_bytes {
            Payload::Inline(item)
        } else {
            self.mr.region().whole().write_at(WRITTEN as usize, item)?;
            Payload::Sges(&item_sges)
        };
        let sges = [[self.sge(ANSWERS, 8)], [self.sge(ANSWERS + 8, 8)]];
        let atomic = |swap: Swap| SendOp::CompareSwap {
            remote: self.remote(swap.at),
            compare: swap.compare,
            swap: swap.swap,
        };
        let write = SendWr::new(0, SendOp::Write(self.remote(at)), payload).unsignaled();
        let last = SendWr::new(self.sent + 1, atomic(swap), Payload::Sges(&sges[1]));
        let posted = match mark {
            Some(mark) => {
                let mark = SendWr::new(0, atomic(mark), Payload::Sges(&sges[0])).unsignaled();
                self.qp.post_send(&[write, mark, last])
            }
            None => self.qp.post_send(&[write, last]),
        };
        posted?;
        self.sent += 1;
        self.complete()?;
        let mut found = [0; 8];
        self.mr.region().whole().read_at(ANSWERS as usize + 8, &mut found)?;
        Ok(u64::from_ne_bytes(found))
    }

    /// Sends a message and receives its answer.
    pub(super) fn ask(&mut self, request: &[u8], answer: &mut Vec<u8>) -> Result<(), KvError> {
        let sges = [self.sge(0, MESSAGE_BYTES)];
        self.qp.post_recv(&[RecvWr { wr_id: self.sent + 2, sges: &sges }])?;
        self.mr.region().whole().write_at(WRITTEN as usize, request)?;
        let sges = [self.sge(WRITTEN, request.len())];
        let send = SendWr::new(self.sent + 1, SendOp::Send, Payload::Sges(&sges));
        self.qp.post_send(&[send])?;
        self.sent += 1;
        // The answer may come before the SEND is acknowledged.
        let first = self.next()?;
        let second = self.next()?;
        self.sent += 1;
        let answered = if first.0 == self.sent { first.1 } else { second.1 };
        answer.resize(answered as usize, 0);
        Ok(self.mr.region().whole().read_at(0, answer)?)
    }

    fn complete(&mut self) -> Result<(), KvError> {
        self.next().map(drop)
    }

    /// Waits for the next completion; returns its number and bytes.
    fn next(&mut self) -> Result<(u64, u64), KvError> {
        let (mut empty, mut patience) = (0_u32, None);
        loop {
            if let Some(done) = poll(&*self.cq)? {
                self.waiter.found();
                return Ok(done);
            }
            match pause(&mut self.waiter, &self.watch, SLEEP_MAX, || poll(&*self.cq))? {
                Paused::Found(done) => {
                    self.waiter.found();
                    return Ok(done);
                }
                Paused::Over => empty += 1,
                Paused::InVain => empty = LOOKS,
            }
            if empty >= LOOKS {
                empty = 0;
                let now = Instant::now();
                let patience = patience.get_or_insert_with(|| Patience::new(now));
                if patience.waited(now) > PATIENCE {
                    return Err(KvError::Lost(format!("nothing came for {PATIENCE:?}")));
                }
                if let Some(reason) = &*self.lost.lock() {
                    return Err(KvError::Lost(reason.clone()));
                }
            }
        }
    }
}

/// Takes a completion: its number and bytes.
fn poll(cq: &dyn Cq) -> Result<Option<(u64, u64)>, KvError> {
    let mut completion = [Completion::EMPTY];
    if cq.poll(&mut completion)? == 0 {
        return Ok(None);
    }
    match completion[0].result {
        Ok(success) => Ok(Some((completion[0].wr_id, success.bytes))),
        Err(failure) => Err(KvError::Request(failure.status)),
    }
}
