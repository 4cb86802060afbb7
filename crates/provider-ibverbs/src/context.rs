//! Creating objects from open devices and protection domains.
use crate::NAME;
use crate::ah::IbAh;
use crate::cores::CqCore;
use crate::cq::{IbChannel, IbCq};
use crate::device::memory_error;
use crate::handles::{IbPd, IbverbsContext};
use crate::mr::IbMr;
use crate::path::access_bits;
use crate::qp::IbQp;
use crate::sys::types::{IBV_ACCESS_RELAXED_ORDERING, ibv_qp_cap};
use crate::sys::{Domain, QueuePair, QueuePairInit, Registration};
use catchment_verbs::mem::Region;
use catchment_verbs::provider::{check_cq, check_mr, check_qp, check_service, own_channel, own_cq};
use catchment_verbs::{
    Access, Ah, AsyncEvent, Caps, CompletionChannel, Context, Cq, Gid, Mr, Pd, PortAddr, Qp,
    QpInit, Service, VerbsError,
};
use std::sync::Arc;

/// Consecutive keys that a device may have used before. After more, it has no others.
const MOST_KNOWN_KEYS: usize = 64;
/// Most bytes of a queue entry, to estimate the memory that a queue needs.
const ENTRY_BYTES: u64 = 1024;

impl Context for IbverbsContext {
    fn caps(&self) -> &Caps {
        &self.device().caps
    }

    fn gid(&self) -> Gid {
        self.device().place.gid
    }

    fn alloc_pd(&self) -> Result<Arc<dyn Pd>, VerbsError> {
        let domain = Domain::new(Arc::clone(&self.device().handle))
            .map_err(|error| VerbsError::os("a protection domain", error))?;
        Ok(Arc::new(IbPd { domain: Arc::new(domain), context: self.clone() }))
    }

    fn create_channel(&self) -> Result<Arc<dyn CompletionChannel>, VerbsError> {
        let channel = IbChannel::new(self.clone());
        let channel = channel.map_err(|error| VerbsError::os("a completion channel", error))?;
        Ok(Arc::new(channel))
    }

    fn create_cq(
        &self,
        capacity: u32,
        channel: Option<Arc<dyn CompletionChannel>>,
    ) -> Result<Arc<dyn Cq>, VerbsError> {
        check_cq(&self.device().caps, capacity)?;
        let channel = own_channel(channel.as_ref(), |ours: &IbChannel| ours.is_of(self.device()))?;
        let channel = channel.map(|ours| Arc::clone(&ours.channel));
        let made = IbCq::new(self.clone(), capacity, channel);
        let needed = u64::from(capacity) * ENTRY_BYTES;
        let made = made.map_err(|error| memory_error("a completion queue", needed, error))?;
        Ok(Arc::new(made))
    }

    fn async_event(&self) -> Option<AsyncEvent> {
        self.device().events.take()
    }
}

impl IbPd {
    /// Registers a region under a key that no peer has seen.
    fn register(&self, region: &Arc<Region>, access: Access) -> Result<Registration, VerbsError> {
        let retired = &self.device().retired_keys;
        let mut made = self.register_once(region, access)?;
        let mut known = Vec::new();
        while retired.contains(made.rkey) && known.len() < MOST_KNOWN_KEYS {
            // Kept for now, so that the device cannot return the same key again.
            known.push(made);
            made = self.register_once(region, access)?;
        }
        Ok(made)
    }

    fn register_once(
        &self,
        region: &Arc<Region>,
        access: Access,
    ) -> Result<Registration, VerbsError> {
        let optional =
            if access.contains(Access::RELAXED_ORDERING) { IBV_ACCESS_RELAXED_ORDERING } else { 0 };
        let (rights, bytes) = (access_bits(access), region.bytes() as u64);
        let domain = Arc::clone(&self.domain);
        let made = Registration::new(domain, Arc::clone(region), rights, optional);
        made.map_err(|error| match error.raw_os_error() {
            Some(libc::EFAULT) if !region.is_writable() => VerbsError::Unsupported {
                provider: NAME,
                what: "memory that is mapped for reading only, on Linux before 6.2",
            },
            _ => memory_error("registering a region", bytes, error),
        })
    }

    fn cq(&self, cq: &Arc<dyn Cq>) -> Result<Arc<CqCore>, VerbsError> {
        let ours = own_cq(cq, |cq: &IbCq| Arc::ptr_eq(cq.context.device(), self.device()))?;
        Ok(Arc::clone(&ours.core))
    }
}

impl Pd for IbPd {
    fn reg_mr(&self, region: Arc<Region>, access: Access) -> Result<Arc<dyn Mr>, VerbsError> {
        check_mr(&self.device().caps, &region, access)?;
        let (bytes, limit) = (region.bytes() as u64, self.device().max_mr_bytes);
        if bytes > limit {
            return Err(VerbsError::Limit {
                what: "bytes of a memory region",
                asked: bytes,
                limit,
            });
        }
        let made = self.register(&region, access)?;
        Ok(Arc::new(IbMr::new(made, access, self.clone())))
    }

    fn create_qp(&self, init: QpInit) -> Result<Box<dyn Qp>, VerbsError> {
        let device = self.device();
        check_qp(&device.caps, &init)?;
        let cqs = (self.cq(&init.send_cq)?, self.cq(&init.recv_cq)?);
        let slot = device.slots.take(init.max_send_wr, init.max_recv_wr)?;
        // Some devices create no empty queue.
        let cap = ibv_qp_cap {
            max_send_wr: init.max_send_wr.max(1),
            max_recv_wr: init.max_recv_wr.max(1),
            max_send_sge: init.max_sge.max(1),
            max_recv_sge: init.max_sge.max(1),
            max_inline_data: init.max_inline_bytes,
        };
        let made = QueuePair::new(
            Arc::clone(&self.domain),
            QueuePairInit {
                send_cq: Arc::clone(&cqs.0.queue),
                recv_cq: Arc::clone(&cqs.1.queue),
                cap,
                service: init.service,
                tag: slot.index as usize,
            },
        );
        let needed = u64::from(cap.max_send_wr + cap.max_recv_wr) * ENTRY_BYTES;
        let made = match made {
            Ok(made) => Arc::new(made),
            Err(error) => {
                device.slots.give_back(&slot);
                return Err(memory_error("a queue pair", needed, error));
            }
        };
        let limits = init.limits(&device.caps);
        Ok(Box::new(IbQp::new(made, slot, (self.clone(), cqs), limits)?))
    }

    fn create_ah(&self, to: &PortAddr) -> Result<Arc<dyn Ah>, VerbsError> {
        check_service(&self.device().caps, Service::Ud)?;
        Ok(Arc::new(IbAh::new(self.clone(), to)?))
    }
}
