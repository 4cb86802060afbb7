//! Counts the objects of a device that live, and can refuse to make one: evidence that cleanup leaves
//! nothing behind, whatever step of the way up fails.
//!
//! [`Census::of`] puts itself between a program and its device. What the program makes is counted
//! until it drops it.
use catchment_verbs::mem::Region;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{
    Access, Ah, AsyncEvent, Caps, Completion, CompletionChannel, Context, Cq, CqError, Endpoint,
    Gid, ModifyError, Mr, NetEnd, Pd, PortAddr, PostError, Qp, QpInit, QpState, QpTransition,
    RateError, RecvWr, RemoteMapError, RemoteWindow, SendWr, VerbsError, Watch,
};
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Object {
    /// Protection domain.
    Pd,
    /// Completion channel.
    Channel,
    /// Completion queue.
    Cq,
    /// Memory region.
    Mr,
    /// Queue pair.
    Qp,
    /// Address handle.
    Ah,
}

const OBJECTS: [Object; 6] =
    [Object::Pd, Object::Channel, Object::Cq, Object::Mr, Object::Qp, Object::Ah];

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// It was made.
    Made(Object),
    /// It was destroyed.
    Destroyed(Object),
}

/// The objects of one device.
#[derive(Debug, Default)]
pub struct Census {
    alive: [AtomicI64; OBJECTS.len()],
    /// Steps that can fail, so far: objects asked for and changes of state.
    steps: AtomicU64,
    /// The step that fails, counted from 1; 0 for none.
    failing: AtomicU64,
    log: Mutex<Vec<Change>>,
}

impl Census {
    /// Counts what is made through the device that this returns.
    pub fn of(context: Arc<dyn Context>) -> (Arc<dyn Context>, Arc<Census>) {
        let census = Arc::new(Census::default());
        let counted = CountedContext { context, census: Arc::clone(&census) };
        (Arc::new(counted), census)
    }

    /// Objects of this kind that live.
    pub fn alive(&self, object: Object) -> i64 {
        self.alive[object as usize].load(Ordering::SeqCst)
    }

    /// Objects of all kinds that live.
    pub fn total(&self) -> i64 {
        OBJECTS.into_iter().map(|object| self.alive(object)).sum()
    }

    /// Steps that could have failed so far: objects asked for, and changes of a queue pair's state.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// The `nth` step from now on fails, counted from 1.
    pub fn fail(&self, nth: u64) {
        self.failing.store(self.steps() + nth, Ordering::SeqCst);
    }

    /// What was made and destroyed since the last call.
    pub fn take_log(&self) -> Vec<Change> {
        std::mem::take(&mut *self.log())
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Vec<Change>> {
        self.log.lock()
    }

    /// Whether this step fails.
    fn step(&self) -> bool {
        let step = self.steps.fetch_add(1, Ordering::SeqCst) + 1;
        step == self.failing.load(Ordering::SeqCst)
    }

    fn ask(&self) -> Result<(), VerbsError> {
        if self.step() {
            return Err(VerbsError::Invalid("this step is made to fail".into()));
        }
        Ok(())
    }
}

/// Lives as long as the object that it counts.
struct Counted {
    object: Object,
    census: Arc<Census>,
}

impl Counted {
    fn new(object: Object, census: &Arc<Census>) -> Counted {
        census.alive[object as usize].fetch_add(1, Ordering::SeqCst);
        census.log().push(Change::Made(object));
        Counted { object, census: Arc::clone(census) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let alive = &self.census.alive[self.object as usize];
        alive.fetch_sub(1, Ordering::SeqCst);
        self.census.log().push(Change::Destroyed(self.object));
    }
}

struct CountedContext {
    context: Arc<dyn Context>,
    census: Arc<Census>,
}

impl Context for CountedContext {
    fn caps(&self) -> &Caps {
        self.context.caps()
    }

    fn gid(&self) -> Gid {
        self.context.gid()
    }

    fn net(&self) -> Option<NetEnd> {
        self.context.net()
    }

    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError> {
        self.census.ask()?;
        Ok(Arc::new(CountedPd {
            pd: self.context.alloc_pd()?,
            census: Arc::clone(&self.census),
            _counted: Counted::new(Object::Pd, &self.census),
        }))
    }

    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError> {
        self.census.ask()?;
        Ok(Arc::new(CountedChannel {
            channel: self.context.create_channel()?,
            _counted: Counted::new(Object::Channel, &self.census),
        }))
    }

    fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<dyn CompletionChannel>>,
    ) -> Result<Arc<dyn Cq>, VerbsError> {
        self.census.ask()?;
        Ok(Arc::new(CountedCq {
            cq: self.context.create_cq(capacity, channel)?,
            _counted: Counted::new(Object::Cq, &self.census),
        }))
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.context.async_event()
    }
}

struct CountedPd {
    pd: Arc<dyn Pd>,
    census: Arc<Census>,
    _counted: Counted,
}

impl Pd for CountedPd {
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        self.census.ask()?;
        Ok(Arc::new(CountedMr {
            mr: self.pd.reg_mr(region, access)?,
            _counted: Counted::new(Object::Mr, &self.census),
        }))
    }

    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError> {
        self.census.ask()?;
        Ok(Box::new(CountedQp {
            qp: self.pd.create_qp(init)?,
            census: Arc::clone(&self.census),
            _counted: Counted::new(Object::Qp, &self.census),
        }))
    }

    fn create_ah(&self, to: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError> {
        self.census.ask()?;
        Ok(Arc::new(CountedAh {
            ah: self.pd.create_ah(to)?,
            _counted: Counted::new(Object::Ah, &self.census),
        }))
    }
}

struct CountedAh {
    ah: Arc<dyn Ah>,
    _counted: Counted,
}

impl Ah for CountedAh {
    fn handle(&self) -> u32 {
        self.ah.handle()
    }

    fn to(&self) -> &PortAddr {
        self.ah.to()
    }
}

struct CountedChannel {
    channel: Arc<dyn CompletionChannel>,
    _counted: Counted,
}

impl CompletionChannel for CountedChannel {
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        self.channel.wait(timeout)
    }

    fn wake(&self) {
        self.channel.wake();
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// The provider's own channel: it recognises that.
    fn as_any(&self) -> &dyn Any {
        self.channel.as_any()
    }
}

struct CountedCq {
    cq: Arc<dyn Cq>,
    _counted: Counted,
}

impl Cq for CountedCq {
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        self.cq.poll(out)
    }

    fn req_notify(&self, solicited_only: bool) {
        self.cq.req_notify(solicited_only);
    }

    fn capacity(&self) -> u32 {
        self.cq.capacity()
    }

    /// The provider's own queue: it recognises that.
    fn as_any(&self) -> &dyn Any {
        self.cq.as_any()
    }
}

struct CountedMr {
    mr: Arc<dyn Mr>,
    _counted: Counted,
}

impl Mr for CountedMr {
    fn region(&self) -> &Arc<Region> {
        self.mr.region()
    }

    fn lkey(&self) -> u32 {
        self.mr.lkey()
    }

    fn rkey(&self) -> u32 {
        self.mr.rkey()
    }

    fn access(&self) -> Access {
        self.mr.access()
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.mr.watch()
    }

    fn notify(&self) {
        self.mr.notify();
    }
}

struct CountedQp {
    qp: Box<dyn Qp>,
    census: Arc<Census>,
    _counted: Counted,
}

impl Qp for CountedQp {
    fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    fn state(&self) -> QpState {
        self.qp.state()
    }

    fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        if self.census.step() {
            return Err(ModifyError::Resources {
                qpn: self.qp.qpn(),
                what: "this step",
                reason: "is made to fail".into(),
            });
        }
        self.qp.modify(transition)
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        self.qp.post_send(requests)
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.qp.post_recv(requests)
    }

    fn set_rate(&mut self, rate_bps: Option<u64>) -> Result<(), RateError> {
        self.qp.set_rate(rate_bps)
    }

    fn map_remote(&self, addr: u64, bytes: u64, rkey: u32) -> Result<RemoteWindow, RemoteMapError> {
        self.qp.map_remote(addr, bytes, rkey)
    }

    fn watch_remote(&self, rkey: u32) -> Result<Arc<dyn Watch>, RemoteMapError> {
        self.qp.watch_remote(rkey)
    }
}
