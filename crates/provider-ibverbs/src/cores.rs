//! What a device and its queue pairs keep of completion queues and address handles. The
//! application's objects are in `cq` and `ah`.
use crate::sys::{AddressHandle, CompletionQueue, Domain};
use catchment_verbs::PortAddr;
use catchment_verbs::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What queue pairs and events need of a completion queue.
pub(crate) struct CqCore {
    pub(crate) queue: Arc<CompletionQueue>,
    pub(crate) tag: usize,
    overrun: AtomicBool,
    /// Slots of its queue pairs; one that uses it for both directions is there twice.
    queue_pairs: Mutex<Vec<u32>>,
}

impl CqCore {
    pub(crate) fn new(queue: CompletionQueue, tag: usize) -> Arc<Self> {
        Arc::new(Self {
            queue: Arc::new(queue),
            tag,
            overrun: AtomicBool::new(false),
            queue_pairs: Mutex::default(),
        })
    }

    #[inline]
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Notes that completions were lost; returns whether that is new.
    pub(crate) fn set_overrun(&self) -> bool {
        !self.overrun.swap(true, Ordering::AcqRel)
    }

    /// Returns the slots of its queue pairs.
    pub(crate) fn queue_pairs(&self) -> Vec<u32> {
        self.queue_pairs.lock().clone()
    }

    /// Adds a queue pair that uses it for one direction.
    pub(crate) fn add_user(&self, slot: u32) {
        self.queue_pairs.lock().push(slot);
    }

    pub(crate) fn remove_user(&self, slot: u32) {
        self.queue_pairs.lock().retain(|user| *user != slot);
    }
}

/// What queue pairs need of an address handle. It lives until the requests that name it are done.
pub(crate) struct AhCore {
    pub(crate) domain: Arc<Domain>,
    pub(crate) native: AddressHandle,
    /// Largest datagram.
    pub(crate) path_mtu: u32,
    pub(crate) to: PortAddr,
}
