//! What a context and its service thread share: all queue pairs, and what its objects share.
use crate::device_core::DeviceCore;
use crate::inbox::MAX_RECV_SLOTS;
use crate::qp_core::QpCore;
use catchment_verbs::provider::{MAX_24_BITS, full, random};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Caps, RateRange, Services, VerbsError};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

/// 0 and 1 are the special queue pairs of InfiniBand, all ones is multicast.
const FIRST_QPN: u32 = 2;
/// Numbers are drawn until one is free, so half of them stay so.
const MOST_QUEUE_PAIRS: usize = (MAX_24_BITS / 2) as usize;

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

/// See the module.
pub(crate) struct State {
    core: Arc<DeviceCore>,
    /// Ends the service thread.
    pub(crate) stop: AtomicBool,
    queue_pairs: Mutex<HashMap<u32, Weak<QpCore>>>,
}

impl Deref for State {
    type Target = DeviceCore;

    fn deref(&self) -> &DeviceCore {
        &self.core
    }
}

impl State {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        Ok(Self {
            core: Arc::new(DeviceCore::new(caps())?),
            stop: AtomicBool::new(false),
            queue_pairs: Mutex::default(),
        })
    }

    /// Returns what its objects share.
    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.core
    }

    /// Adds the queue pair that `make` builds for a free number. All numbers are drawn from the system's
    /// random source.
    pub(crate) fn add_queue_pair(
        &self,
        make: impl FnOnce(u32) -> Result<Arc<QpCore>, VerbsError>,
    ) -> Result<Arc<QpCore>, VerbsError> {
        let mut queue_pairs = self.queue_pairs.lock();
        if queue_pairs.len() >= MOST_QUEUE_PAIRS {
            return Err(full("queue pairs of a context", MOST_QUEUE_PAIRS));
        }
        let qpn = loop {
            let qpn = random()? & MAX_24_BITS;
            if (FIRST_QPN..MAX_24_BITS).contains(&qpn) && !queue_pairs.contains_key(&qpn) {
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
        self.queue_pairs.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the queue pairs on which requests wait.
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
}
