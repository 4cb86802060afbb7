//! Counts the objects of a device that live, and can refuse to make one: evidence that cleanup leaves
//! nothing behind, whatever step of the way up fails.
//!
//! [`Census::of`] puts itself between a program and its device. What the program makes is counted
//! until it drops it.
use crate::forward::forward;
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
    Pd,
    Channel,
    Cq,
    Mr,
    Qp,
    Ah,
}

const OBJECTS: [Object; 6] =
    [Object::Pd, Object::Channel, Object::Cq, Object::Mr, Object::Qp, Object::Ah];

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    Made(Object),
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
    pub fn of(context: Arc<dyn Context>) -> (Arc<dyn Context>, Arc<Self>) {
        let census = Arc::new(Self::default());
        (Arc::new(CountedContext { context, census: Arc::clone(&census) }), census)
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
        std::mem::take(&mut *self.log.lock())
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
    fn new(object: Object, census: &Arc<Census>) -> Self {
        census.alive[object as usize].fetch_add(1, Ordering::SeqCst);
        census.log.lock().push(Change::Made(object));
        Self { object, census: Arc::clone(census) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let alive = &self.census.alive[self.object as usize];
        alive.fetch_sub(1, Ordering::SeqCst);
        self.census.log.lock().push(Change::Destroyed(self.object));
    }
}

struct CountedContext {
    context: Arc<dyn Context>,
    census: Arc<Census>,
}

impl Context for CountedContext {
    forward! { self.context;
        fn caps() -> &Caps;
        fn gid() -> Gid;
        fn net() -> Option<NetEnd>;
        fn async_event() -> Option<AsyncEvent>;
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
    forward! { self.ah;
        fn handle() -> u32;
        fn to() -> &PortAddr;
    }
}

struct CountedChannel {
    channel: Arc<dyn CompletionChannel>,
    _counted: Counted,
}

impl CompletionChannel for CountedChannel {
    // The provider recognises its own channel, which `as_any` gives.
    forward! { self.channel;
        fn wait(timeout: Duration) -> io::Result<bool>;
        fn wake();
        fn as_fd() -> BorrowedFd<'_>;
        fn as_any() -> &dyn Any;
    }
}

struct CountedCq {
    cq: Arc<dyn Cq>,
    _counted: Counted,
}

impl Cq for CountedCq {
    // The provider recognises its own queue, which `as_any` gives.
    forward! { self.cq;
        fn poll(out: &mut [Completion]) -> Result<usize, CqError>;
        fn req_notify(solicited_only: bool);
        fn capacity() -> u32;
        fn as_any() -> &dyn Any;
    }
}

struct CountedMr {
    mr: Arc<dyn Mr>,
    _counted: Counted,
}

impl Mr for CountedMr {
    forward! { self.mr;
        fn region() -> &Arc<Region>;
        fn lkey() -> u32;
        fn rkey() -> u32;
        fn access() -> Access;
        fn watch() -> Option<Arc<dyn Watch>>;
        fn notify();
    }
}

struct CountedQp {
    qp: Box<dyn Qp>,
    census: Arc<Census>,
    _counted: Counted,
}

impl Qp for CountedQp {
    forward! { self.qp;
        fn qpn() -> u32;
        fn state() -> QpState;
        fn endpoint() -> Endpoint;
        fn map_remote(addr: u64, bytes: u64, rkey: u32) -> Result<RemoteWindow, RemoteMapError>;
        fn watch_remote(rkey: u32) -> Result<Arc<dyn Watch>, RemoteMapError>;
    }

    forward! { mut self.qp;
        fn post_send(requests: &[SendWr<'_>]) -> Result<(), PostError>;
        fn post_recv(requests: &[RecvWr<'_>]) -> Result<(), PostError>;
        fn set_rate(rate_bps: Option<u64>) -> Result<(), RateError>;
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
}
