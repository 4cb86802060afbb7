//! Counts the live objects of a device, and can make the creation of one fail: evidence that cleanup
//! leaves nothing behind, whichever step of the setup fails.
//!
//! [`Census::of`] wraps a device. What a program creates through it is counted until it is dropped.
use crate::forward::forward;
use catchment_verbs::mem::Region;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{
    Access, Ah, AsyncEvent, Caps, Completion, CompletionChannel, Context, Cq, CqError, Delivery,
    Endpoint, Gid, ModifyError, Mr, NetEnd, Pd, PortAddr, PostError, Qp, QpInit, QpState,
    QpTransition, RateError, RateLimit, RecvWr, RemoteMapError, RemoteWindow, SendWr, VerbsError,
    Watch,
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
    /// Steps so far that can fail: creations of objects and changes of state.
    steps: AtomicU64,
    /// The step that fails, counted from 1; 0 for none.
    failing: AtomicU64,
    log: Mutex<Vec<Change>>,
}

impl Census {
    /// Counts what is created through the returned device.
    pub fn of(context: Arc<dyn Context>) -> (Arc<dyn Context>, Arc<Self>) {
        let census = Arc::new(Self::default());
        (Arc::new(CountedContext { context, census: Arc::clone(&census) }), census)
    }

    /// Returns how many objects of this kind live.
    pub fn alive(&self, object: Object) -> i64 {
        self.alive[object as usize].load(Ordering::SeqCst)
    }

    /// Returns how many objects of all kinds live.
    pub fn total(&self) -> i64 {
        OBJECTS.into_iter().map(|object| self.alive(object)).sum()
    }

    /// Returns how many steps could have failed so far: creations of objects, and changes of a queue
    /// pair's state.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// Makes the `nth` step from now on fail, counted from 1.
    pub fn fail(&self, nth: u64) {
        self.failing.store(self.steps() + nth, Ordering::SeqCst);
    }

    /// Returns what was created and destroyed since the last call.
    pub fn take_log(&self) -> Vec<Change> {
        std::mem::take(&mut *self.log.lock())
    }

    /// Counts a step and returns whether it is to fail.
    fn step(&self) -> bool {
        let step = self.steps.fetch_add(1, Ordering::SeqCst) + 1;
        step == self.failing.load(Ordering::SeqCst)
    }

    /// Calls `make` and counts its object, unless this step is to fail.
    fn count<T>(
        self: &Arc<Self>,
        object: Object,
        make: impl FnOnce() -> Result<T, VerbsError>,
    ) -> Result<Counted<T>, VerbsError> {
        if self.step() {
            return Err(VerbsError::Invalid("this step is made to fail".into()));
        }
        let inner = make()?;
        self.alive[object as usize].fetch_add(1, Ordering::SeqCst);
        self.log.lock().push(Change::Made(object));
        Ok(Counted { inner, life: Life { object, census: Arc::clone(self) } })
    }
}

/// An object, counted until it is destroyed.
struct Counted<T> {
    inner: T,
    /// Dropped after the object itself.
    life: Life,
}

struct Life {
    object: Object,
    census: Arc<Census>,
}

impl Drop for Life {
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
        fn progress();
    }

    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError> {
        let pd = || self.context.alloc_pd();
        Ok(Arc::new(self.census.count(Object::Pd, pd)?))
    }

    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError> {
        let channel = || self.context.create_channel();
        Ok(Arc::new(self.census.count(Object::Channel, channel)?))
    }

    fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<dyn CompletionChannel>>,
    ) -> Result<Arc<dyn Cq>, VerbsError> {
        let cq = || self.context.create_cq(capacity, channel);
        Ok(Arc::new(self.census.count(Object::Cq, cq)?))
    }
}

impl Pd for Counted<Arc<dyn Pd>> {
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        let mr = || self.inner.reg_mr(region, access);
        Ok(Arc::new(self.life.census.count(Object::Mr, mr)?))
    }

    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError> {
        let qp = || self.inner.create_qp(init);
        Ok(Box::new(self.life.census.count(Object::Qp, qp)?))
    }

    fn create_ah(&self, to: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError> {
        let ah = || self.inner.create_ah(to);
        Ok(Arc::new(self.life.census.count(Object::Ah, ah)?))
    }
}

impl Ah for Counted<Arc<dyn Ah>> {
    forward! { self.inner;
        fn handle() -> u32;
        fn to() -> &PortAddr;
    }
}

impl CompletionChannel for Counted<Arc<dyn CompletionChannel>> {
    // The provider recognises its own channel through `as_any`.
    forward! { self.inner;
        fn wait(timeout: Duration) -> io::Result<bool>;
        fn wake();
        fn as_fd() -> BorrowedFd<'_>;
        fn as_any() -> &dyn Any;
    }
}

impl Cq for Counted<Arc<dyn Cq>> {
    // The provider recognises its own queue through `as_any`.
    forward! { self.inner;
        fn poll(out: &mut [Completion]) -> Result<usize, CqError>;
        fn req_notify(solicited_only: bool);
        fn capacity() -> u32;
        fn as_any() -> &dyn Any;
    }
}

impl Mr for Counted<Arc<dyn Mr>> {
    forward! { self.inner;
        fn region() -> &Arc<Region>;
        fn lkey() -> u32;
        fn rkey() -> u32;
        fn access() -> Access;
        fn watch() -> Option<Arc<dyn Watch>>;
        fn watch_ends(from: usize, every: usize) -> Option<Arc<dyn Watch>>;
        fn notify();
    }
}

impl Qp for Counted<Box<dyn Qp>> {
    forward! { self.inner;
        fn qpn() -> u32;
        fn state() -> QpState;
        fn endpoint() -> Endpoint;
        fn delivery() -> Option<Delivery>;
        fn map_remote(addr: u64, bytes: u64, rkey: u32) -> Result<RemoteWindow, RemoteMapError>;
        fn watch_remote(rkey: u32) -> Result<Arc<dyn Watch>, RemoteMapError>;
    }

    forward! { mut self.inner;
        fn post_send(requests: &[SendWr<'_>]) -> Result<(), PostError>;
        fn post_recv(requests: &[RecvWr<'_>]) -> Result<(), PostError>;
        fn set_rate(limit: Option<RateLimit>) -> Result<(), RateError>;
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        if self.life.census.step() {
            return Err(ModifyError::Resources {
                qpn: self.inner.qpn(),
                what: "this step",
                reason: "is made to fail".into(),
            });
        }
        self.inner.modify(transition)
    }
}
