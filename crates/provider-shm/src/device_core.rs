//! What the objects of a context share: its name, limits, keys, connections to other contexts.
use crate::keys::KeyTable;
use crate::link::{CallError, PeerLink};
use catchment_verbs::provider::{EventQueue, random_bytes};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Caps, Gid, VerbsError, event};
use rustix::event::epoll;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Events kept in case the application does not take them; the oldest are dropped.
const MAX_EVENTS: usize = 1024;

/// See the module.
pub(crate) struct DeviceCore {
    pub(crate) gid: Gid,
    pub(crate) caps: Caps,
    pub(crate) keys: KeyTable,
    pub(crate) epoll: OwnedFd,
    pub(crate) wake: OwnedFd,
    ids: AtomicU64,
    links: Mutex<HashMap<u64, Weak<PeerLink>>>,
    /// For the application.
    pub(crate) events: EventQueue,
    /// Queue pairs with waiting requests; the service thread drives them.
    pub(crate) waiting: Mutex<Vec<u32>>,
    overrun: AtomicBool,
}

impl DeviceCore {
    pub(crate) fn new(caps: Caps) -> Result<Self, VerbsError> {
        let os = |what: &'static str| move |e: rustix::io::Errno| VerbsError::os(what, e);
        Ok(Self {
            gid: Gid(random_bytes()?),
            caps,
            keys: KeyTable::new()?,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(os("epoll_create for a service thread"))?,
            wake: event::event_fd().map_err(|e| VerbsError::os("eventfd", e))?,
            ids: AtomicU64::new(1),
            links: Mutex::default(),
            events: EventQueue::new(MAX_EVENTS),
            waiting: Mutex::default(),
            overrun: AtomicBool::new(false),
        })
    }

    /// Returns a number that this context never used before.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the connection to another context; creates it if there is none.
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
        links.insert(link.id, Arc::downgrade(&link));
        link.watch_hang_up(&self.epoll)?;
        Ok(link)
    }

    fn known_link(&self, peer: Gid) -> Option<Arc<PeerLink>> {
        let links = self.links.lock();
        links.values().filter_map(Weak::upgrade).find(|link| link.gid == peer && !link.is_dead())
    }

    pub(crate) fn link_of_id(&self, id: u64) -> Option<Arc<PeerLink>> {
        self.links.lock().get(&id)?.upgrade()
    }

    /// Makes the service thread drive the requests that wait on this queue pair.
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

    /// Reports that a completion queue lost completions: the service thread fails its queue pairs.
    /// Not here, because the caller may hold the lock of a queue pair.
    pub(crate) fn break_queue_pairs_of_overrun_queues(&self) {
        self.overrun.store(true, Ordering::Release);
        event::ring(&self.wake);
    }

    pub(crate) fn take_overrun(&self) -> bool {
        self.overrun.swap(false, Ordering::AcqRel)
    }
}
