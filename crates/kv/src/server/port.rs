//! The store's memory at one device: its key, a queue pair for each client, and a thread that answers messages.
use super::Shared;
use super::request::answer;
use crate::error::KvError;
use crate::protocol::{Sided, rts_within};
use crate::request::MESSAGE_BYTES;
use catchment_verbs::mem::Region;
use catchment_verbs::sync::Mutex;
use catchment_verbs::wait::{Step, WaitPolicy, Waiter};
use catchment_verbs::{
    Access, Completion, CompletionChannel, Context, Cq, Endpoint, Mr, Payload, Pd, Qp, QpInit,
    RecvWr, RtrAttr, SendOp, SendWr, Sge,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Completions of all clients that may be waiting: one request and one answer of each.
const CQ_ENTRIES: u32 = 4096;
/// Longest sleep between two looks at whether it is over.
const SLEEP_MAX: Duration = Duration::from_millis(100);
const SPIN_POLLS: u32 = 500;
/// A request is numbered by its client, times two; its answer is the next number.
const ANSWER: u64 = 1;

/// The ports of all devices that clients came over.
pub(super) struct Ports {
    region: Arc<Region>,
    all: Mutex<Vec<Arc<Port>>>,
}

impl Ports {
    pub(super) fn new(region: Arc<Region>) -> Self {
        Self { region, all: Mutex::new(Vec::new()) }
    }

    /// Returns the port of a device, which is made for its first client.
    pub(super) fn of(
        &self,
        context: &Arc<dyn Context>,
        shared: &Arc<Shared>,
    ) -> Result<Arc<Port>, String> {
        let mut all = self.all.lock();
        if let Some(port) = all.iter().find(|port| Arc::ptr_eq(&port.context, context)) {
            return Ok(Arc::clone(port));
        }
        let port = Port::open(context, &self.region).map_err(|error| error.to_string())?;
        let port = Arc::new(port);
        let (serving, shared) = (Arc::clone(&port), Arc::clone(shared));
        let thread = std::thread::Builder::new().name("kv-port".to_owned());
        let thread = thread.spawn(move || serving.serve(&shared));
        *port.thread.lock() = Some(thread.map_err(|error| error.to_string())?);
        all.push(Arc::clone(&port));
        Ok(port)
    }

    /// Ends their threads.
    pub(super) fn end(&self) {
        for port in std::mem::take(&mut *self.all.lock()) {
            port.stop.store(true, Ordering::Release);
            port.channel.wake();
            if let Some(thread) = port.thread.lock().take() {
                let _ = thread.join();
            }
        }
    }
}

pub(super) struct Port {
    context: Arc<dyn Context>,
    pd: Arc<dyn Pd>,
    mr: Arc<dyn Mr>,
    cq: Arc<dyn Cq>,
    channel: Arc<dyn CompletionChannel>,
    clients: Mutex<BTreeMap<u32, Arc<Mutex<Connection>>>>,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// One client's queue pair, with memory for a request and its answer where it sends messages.
struct Connection {
    qp: Box<dyn Qp>,
    buffers: Option<Arc<dyn Mr>>,
    /// A copy of the request, and the answer.
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Port {
    fn open(context: &Arc<dyn Context>, region: &Arc<Region>) -> Result<Self, KvError> {
        let pd = context.alloc_pd().map_err(KvError::verbs("allocating a protection domain"))?;
        let all = Access::LOCAL_WRITE | Access::REMOTE;
        let access = if context.caps().atomics { all } else { all - Access::REMOTE_ATOMIC };
        let mr = pd.reg_mr(Arc::clone(region), access);
        let channel = context.create_channel();
        let channel = channel.map_err(KvError::verbs("creating a completion channel"))?;
        let entries = context.caps().max_cqe.min(CQ_ENTRIES);
        let cq = context.create_cq(entries, Some(Arc::clone(&channel)));
        Ok(Self {
            context: Arc::clone(context),
            mr: mr.map_err(KvError::verbs("registering the store's memory"))?,
            pd,
            cq: cq.map_err(KvError::verbs("creating a completion queue"))?,
            channel,
            clients: Mutex::new(BTreeMap::new()),
            stop: AtomicBool::new(false),
            thread: Mutex::new(None),
        })
    }

    /// Returns address, key and bytes of the store's memory at this device.
    pub(super) fn region(&self) -> (u64, u32, u64) {
        (self.mr.addr(), self.mr.rkey(), self.mr.bytes() as u64)
    }

    /// Makes a queue pair for a client and connects it with the client's.
    pub(super) fn connect(
        &self,
        number: u32,
        theirs: Endpoint,
        sided: Sided,
        may_write: bool,
        lease: Duration,
    ) -> Result<Endpoint, KvError> {
        let mut qp = self
            .pd
            .create_qp(QpInit::rc(&self.cq, 2, 2))
            .map_err(KvError::verbs("creating a queue pair"))?;
        let access = if may_write { Access::REMOTE } else { Access::REMOTE_READ };
        let ours = qp.endpoint();
        qp.connect(access, RtrAttr::new(theirs), rts_within(lease))?;
        let buffers = (sided == Sided::Two).then(|| {
            let made = self.pd.alloc_mr(2 * MESSAGE_BYTES, Access::LOCAL_WRITE);
            made.map_err(KvError::verbs("registering memory for messages"))
        });
        let buffers = buffers.transpose()?;
        let mut connection = Connection { qp, buffers, request: Vec::new(), answer: Vec::new() };
        connection.post_receive(number)?;
        self.clients.lock().insert(number, Arc::new(Mutex::new(connection)));
        Ok(ours)
    }

    /// Destroys a client's queue pair.
    pub(super) fn disconnect(&self, number: u32) {
        let connection = self.clients.lock().remove(&number);
        // Another thread may be answering its last request.
        if let Some(connection) = connection {
            let _ = connection.lock().qp.modify(catchment_verbs::QpTransition::ToErr);
        }
    }

    fn serve(&self, shared: &Shared) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut waiter = Waiter::new(WaitPolicy::Doorbell { spin_polls: SPIN_POLLS }, cores);
        let mut completions = [Completion::EMPTY; 16];
        while !self.stop.load(Ordering::Acquire) {
            if self.poll(shared, &mut completions) {
                waiter.found();
                continue;
            }
            match waiter.empty() {
                Step::Spin => std::hint::spin_loop(),
                Step::Yield => std::thread::yield_now(),
                // The policy sleeps on the doorbell; a fixed sleep has no event.
                Step::Sleep(time) => std::thread::sleep(time),
                Step::Block => {
                    self.cq.req_notify(false);
                    if !self.poll(shared, &mut completions)
                        && !self.channel.wait(SLEEP_MAX).unwrap_or(true)
                    {
                        // Clients that READ ring nothing for hours: to spin each time is what their GETs would cost here.
                        waiter.timed_out();
                    }
                }
            }
        }
    }

    fn poll(&self, shared: &Shared, completions: &mut [Completion; 16]) -> bool {
        let count = match self.cq.poll(completions) {
            Ok(count) => count,
            Err(error) => {
                tracing::error!(%error, "the store answers no messages any more");
                self.stop.store(true, Ordering::Release);
                return false;
            }
        };
        for completion in &completions[..count] {
            let Ok(success) = &completion.result else { continue };
            if completion.wr_id & ANSWER != 0 {
                continue;
            }
            let number = (completion.wr_id >> 1) as u32;
            let client = self.clients.lock().get(&number).cloned();
            let Some(client) = client else { continue };
            if let Err(error) = client.lock().answer(shared, number, success.bytes as usize) {
                tracing::warn!(number, %error, "a message cannot be answered");
            }
        }
        count > 0
    }
}

impl Connection {
    fn sge(buffers: &dyn Mr, offset: usize, bytes: usize) -> Sge {
        Sge { addr: buffers.addr() + offset as u64, bytes: bytes as u32, lkey: buffers.lkey() }
    }

    fn post_receive(&mut self, number: u32) -> Result<(), KvError> {
        let Some(buffers) = &self.buffers else { return Ok(()) };
        let sges = [Self::sge(&**buffers, 0, MESSAGE_BYTES)];
        Ok(self.qp.post_recv(&[RecvWr { wr_id: u64::from(number) << 1, sges: &sges }])?)
    }

    /// Does what a request of so many bytes asks for, and sends the answer.
    fn answer(&mut self, shared: &Shared, number: u32, bytes: usize) -> Result<(), KvError> {
        let Some(buffers) = self.buffers.clone() else { return Ok(()) };
        self.request.resize(bytes.min(MESSAGE_BYTES), 0);
        buffers.region().whole().read_at(0, &mut self.request)?;
        self.post_receive(number)?;
        answer(shared, &self.request, &mut self.answer);
        buffers.region().whole().write_at(MESSAGE_BYTES, &self.answer)?;
        let sges = [Self::sge(&*buffers, MESSAGE_BYTES, self.answer.len())];
        let wr_id = u64::from(number) << 1 | ANSWER;
        Ok(self.qp.post_send(&[SendWr::new(wr_id, SendOp::Send, Payload::Sges(&sges))])?)
    }
}
