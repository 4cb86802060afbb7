//! An open device: its objects, its keys, its service thread.
use crate::cq::{CqCore, ShmChannel, ShmCq};
use crate::inbox::MAX_RECV_SLOTS;
use crate::keys::KeyTable;
use crate::link::{CallError, PeerLink};
use crate::mr::{MrCore, ShmMr};
use crate::qp::ShmQp;
use crate::qp_core::QpCore;
use crate::{service, socket};
use catchment_verbs::mem::Region;
use catchment_verbs::provider::{EventQueue, MAX_24_BITS, check_cq, check_mr, check_qp, foreign};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{
    Access, Ah, AsyncEvent, Caps, CompletionChannel, Context, Cq, Gid, Mr, Pd, PortAddr, Qp,
    QpInit, RateRange, Service, Services, VerbsError, event,
};
use rustix::event::epoll;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// Events kept for an application that does not ask for them; the oldest go first.
const MAX_EVENTS: usize = 1024;
const QPN_MASK: u64 = MAX_24_BITS as u64;

/// Returns the limits of the device.
pub(crate) fn caps() -> Caps {
    Caps {
        services: Services::RC,
        max_send_wr: 1 << 16,
        max_recv_wr: MAX_RECV_SLOTS,
        max_sge: 32,
        max_inline_bytes: 1024,
        max_cqe: 1 << 20,
        max_message_bytes: 1 << 31,
        max_rd_atomic: 255,
        path_mtu: None,
        atomics: true,
        send_invalidate: false,
        remote_invalidate: false,
        data_in_order: true,
        writes_in_order: true,
        direct: true,
        doorbell: true,
        rate: Some(RateRange {
            min_bps: 1000,
            max_bps: 1_000_000_000_000,
            step_bps: 1,
            packet_overhead_bytes: 0,
        }),
        strict_capacity: true,
    }
}

/// What the objects of a context and its service thread share.
pub(crate) struct State {
    pub(crate) gid: Gid,
    pub(crate) caps: Caps,
    pub(crate) keys: KeyTable,
    pub(crate) epoll: OwnedFd,
    pub(crate) wake: OwnedFd,
    pub(crate) stop: AtomicBool,
    ids: AtomicU64,
    first_qpn: u64,
    queue_pairs: Mutex<HashMap<u32, Weak<QpCore>>>,
    links: Mutex<HashMap<u64, Weak<PeerLink>>>,
    /// For the application.
    pub(crate) events: EventQueue,
    /// Queue pairs with requests that wait; the service thread looks after them.
    waiting: Mutex<Vec<u32>>,
    overrun: AtomicBool,
}

impl State {
    fn new() -> Result<State, VerbsError> {
        let mut random = [0u8; 24];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|e| VerbsError::os("getrandom for a GID", e))?;
        let mut gid = [0; 16];
        gid.copy_from_slice(&random[..16]);
        let os = |what: &'static str| move |e: rustix::io::Errno| VerbsError::os(what, e);
        Ok(State {
            gid: Gid(gid),
            caps: caps(),
            keys: KeyTable::new(u16::from_ne_bytes([random[16], random[17]]))?,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(os("epoll_create for a service thread"))?,
            wake: event::event_fd().map_err(|e| VerbsError::os("eventfd", e))?,
            stop: AtomicBool::new(false),
            ids: AtomicU64::new(1),
            first_qpn: u64::from(u32::from_ne_bytes([
                random[18], random[19], random[20], random[21],
            ])),
            queue_pairs: Mutex::default(),
            links: Mutex::default(),
            events: EventQueue::new(MAX_EVENTS),
            waiting: Mutex::default(),
            overrun: AtomicBool::new(false),
        })
    }

    /// A number that this context never gave before.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// A free queue pair number for `make`, which is known by it from then on.
    fn add_queue_pair(
        &self,
        make: impl FnOnce(u32) -> Result<Arc<QpCore>, VerbsError>,
    ) -> Result<Arc<QpCore>, VerbsError> {
        let mut queue_pairs = self.queue_pairs.lock();
        if queue_pairs.len() as u64 >= QPN_MASK / 2 {
            return Err(VerbsError::Limit {
                what: "queue pairs of a context",
                asked: queue_pairs.len() as u64 + 1,
                limit: QPN_MASK / 2,
            });
        }
        let qpn = loop {
            let qpn = (self.first_qpn.wrapping_add(self.next_id()) & QPN_MASK) as u32;
            // 0 and 1 are the special queue pairs of InfiniBand, all ones is multicast.
            if qpn > 1 && u64::from(qpn) != QPN_MASK && !queue_pairs.contains_key(&qpn) {
                break qpn;
            }
        };
        let qp = make(qpn)?;
        queue_pairs.insert(qpn, Arc::downgrade(&qp));
        Ok(qp)
    }

    pub(crate) fn remove_queue_pair(&self, qpn: u32) {
        self.queue_pairs.lock().remove(&qpn);
    }

    pub(crate) fn queue_pair(&self, qpn: u32) -> Option<Arc<QpCore>> {
        self.queue_pairs.lock().get(&qpn)?.upgrade()
    }

    pub(crate) fn queue_pairs(&self) -> Vec<Arc<QpCore>> {
        let all = self.queue_pairs.lock();
        all.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the connection to another context; made if there is none.
    pub(crate) fn link(&self, peer: Gid) -> Result<Arc<PeerLink>, CallError> {
        if let Some(link) = self.known_link(peer) {
            return Ok(link);
        }
        // Not under the lock: this waits for the peer, and the service thread needs the lock.
        let link = Arc::new(PeerLink::connect(self.gid, peer, self.next_id())?);
        if let Some(other) = self.known_link(peer) {
            return Ok(other);
        }
        let mut links = self.links.lock();
        links.retain(|_, known| known.strong_count() > 0);
        links.insert(link.id(), Arc::downgrade(&link));
        service::watch_link(&self.epoll, &link)?;
        Ok(link)
    }

    fn known_link(&self, peer: Gid) -> Option<Arc<PeerLink>> {
        let links = self.links.lock();
        links
            .values()
            .filter_map(Weak::upgrade)
            .find(|link| link.gid() == peer && !link.is_dead())
    }

    pub(crate) fn link_of_id(&self, id: u64) -> Option<Arc<PeerLink>> {
        self.links.lock().get(&id)?.upgrade()
    }

    /// The service thread looks after the requests that wait on this queue pair.
    pub(crate) fn watch_waiting(&self, qpn: u32) {
        let mut waiting = self.waiting.lock();
        if waiting.contains(&qpn) {
            return;
        }
        waiting.push(qpn);
        if waiting.len() == 1 {
            event::ring(&self.wake);
        }
    }

    /// Queue pairs on which requests wait.
    pub(crate) fn waiting(&self) -> Vec<Arc<QpCore>> {
        let mut numbers = self.waiting.lock();
        let mut waiting = Vec::new();
        numbers.retain(|qpn| match self.queue_pair(*qpn) {
            Some(qp) if qp.is_waiting() => {
                waiting.push(qp);
                true
            }
            _ => false,
        });
        waiting
    }

    /// A completion queue lost completions: the service thread breaks what completes there. Not
    /// here, because the caller may hold the lock of a queue pair.
    pub(crate) fn break_queue_pairs_of_overrun_queues(&self) {
        self.overrun.store(true, Ordering::Release);
        event::ring(&self.wake);
    }

    pub(crate) fn take_overrun(&self) -> bool {
        self.overrun.swap(false, Ordering::AcqRel)
    }
}

/// An open device, as the application holds it. The last handle ends the service thread.
pub(crate) struct ShmContext {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    myself: Weak<ShmContext>,
}

impl ShmContext {
    /// Opens the device: a name, a socket, a thread.
    pub(crate) fn open() -> Result<Arc<ShmContext>, VerbsError> {
        let state = Arc::new(State::new()?);
        let listener = socket::listen(state.gid)
            .map_err(|e| VerbsError::os("listening on an abstract unix socket", e))?;
        let thread = service::start(Arc::clone(&state), listener)
            .map_err(|e| VerbsError::os("starting a service thread", e))?;
        Ok(Arc::new_cyclic(|myself| ShmContext {
            state,
            thread: Some(thread),
            myself: Weak::clone(myself),
        }))
    }

    /// What its objects share.
    #[cfg(test)]
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    fn strong(&self) -> Arc<ShmContext> {
        self.myself
            .upgrade()
            .expect("a context that is used is alive")
    }
}

impl Drop for ShmContext {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Release);
        event::ring(&self.state.wake);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Context for ShmContext {
    fn caps(&self) -> &Caps {
        &self.state.caps
    }

    fn gid(&self) -> Gid {
        self.state.gid
    }

    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError> {
        Ok(Arc::new_cyclic(|myself| ShmPd {
            id: self.state.next_id(),
            context: self.strong(),
            myself: Weak::clone(myself),
        }))
    }

    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError> {
        let channel = ShmChannel::new().map_err(|e| VerbsError::os("eventfd for a channel", e))?;
        Ok(Arc::new(channel))
    }

    fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<dyn CompletionChannel>>,
    ) -> Result<Arc<dyn Cq>, VerbsError> {
        check_cq(&self.state.caps, capacity)?;
        let channel = match channel {
            None => None,
            Some(channel) => match channel.as_any().downcast_ref::<ShmChannel>() {
                Some(ours) => Some(Arc::clone(&ours.0)),
                None => return Err(foreign("completion channel")),
            },
        };
        let core = CqCore::new(capacity, channel, Arc::clone(&self.state));
        Ok(Arc::new(ShmCq {
            core,
            _context: self.strong(),
        }))
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.state.events.take()
    }
}

/// A protection domain.
pub(crate) struct ShmPd {
    id: u64,
    context: Arc<ShmContext>,
    myself: Weak<ShmPd>,
}

impl ShmPd {
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.context.state
    }

    fn strong(&self) -> Arc<ShmPd> {
        self.myself
            .upgrade()
            .expect("a protection domain that is used is alive")
    }

    fn cq(&self, cq: &Arc<dyn Cq>) -> Result<Arc<CqCore>, VerbsError> {
        match cq.as_any().downcast_ref::<ShmCq>() {
            Some(ours) if ours.core.is_of(self.state()) => Ok(Arc::clone(&ours.core)),
            _ => Err(foreign("completion queue")),
        }
    }
}

impl Pd for ShmPd {
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        check_mr(&self.state().caps, &region, access)?;
        let keys = &self.state().keys;
        let core = keys.insert(|key| MrCore::new(key, self.id, access, region, keys.bells()))?;
        Ok(Arc::new(ShmMr::new(core, self.strong())))
    }

    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError> {
        let state = self.state();
        check_qp(&state.caps, &init)?;
        let (send_cq, recv_cq) = (self.cq(&init.send_cq)?, self.cq(&init.recv_cq)?);
        let mut random = [0u8; 4];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|e| VerbsError::os("getrandom for a PSN", e))?;
        let psn = u32::from_ne_bytes(random) & MAX_24_BITS;
        let core = state.add_queue_pair(|qpn| {
            let context = Arc::clone(state);
            QpCore::new(context, self.id, (qpn, psn), &init, send_cq, recv_cq).map(Arc::new)
        })?;
        Ok(Box::new(ShmQp::new(core, self.strong())))
    }

    /// Always refused: there are no datagrams here.
    fn create_ah(&self, _: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError> {
        Err(VerbsError::Service {
            asked: Service::Ud,
            offered: self.state().caps.services,
        })
    }
}
