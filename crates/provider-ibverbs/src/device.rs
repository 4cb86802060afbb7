//! What all objects of an open device share.
use crate::cores::{AhCore, CqCore};
use crate::keys::RetiredKeys;
use crate::mtu::{mtu_bytes, mtu_code};
use crate::name::Place;
use crate::probe::{self, Probed};
use crate::slots::{Slot, SlotTable};
use crate::sys::types::*;
use crate::sys::{self};
use crate::sysfs::{self, Roots};
use crate::{IbverbsOptions, NAME, memlock, rate};
use catchment_verbs::event::{event_fd, ring};
use catchment_verbs::provider::{
    EventQueue, HandleTable, explain_failure, explain_queue_pair, position,
};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{AsyncEvent, Caps, Failure, QpState, VerbsError};
use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Events kept in case the application does not take them; the oldest are dropped.
const MAX_EVENTS: usize = 4096;
/// Most requests outstanding, whatever the device allows: records of them take memory.
const MAX_WR: u32 = 1 << 14;
/// Most completion queue entries, likewise.
const MAX_CQE: u32 = 1 << 18;
/// Most elements of a request: drivers lose requests of a queue for many elements.
const MAX_SGE: u32 = 16;
/// `vendor_id` of the kernel's Soft-RoCE.
const RXE_VENDOR: u32 = 0xff_ffff;
/// Its driver.
const RXE_DRIVER: &str = "rdma_rxe";

/// Where a device deviates from verbs, so that this crate compensates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// The kernel's Soft-RoCE (rdma_rxe):
    /// - it treats seven retries as endless ones;
    /// - its queue pairs go to the error state without an event;
    /// - it does not notice receives that are posted in the error state;
    /// - it does not process its send queue when it leaves SQD;
    /// - its removal waits for us without an event.
    pub(crate) is_rxe: bool,
}

impl Quirks {
    fn of(attr: &ibv_device_attr) -> Self {
        Self { is_rxe: attr.vendor_id == RXE_VENDOR }
    }
}

/// Returns the driver of a software device, whose driver the kernel does not name.
pub(crate) fn software_driver(attr: &ibv_device_attr) -> Option<&'static str> {
    Quirks::of(attr).is_rxe.then_some(RXE_DRIVER)
}

pub(crate) struct Device {
    /// None of what follows is usable after the device is gone, but all of it is still there.
    pub(crate) handle: Arc<sys::Device>,
    pub(crate) place: Place,
    pub(crate) options: IbverbsOptions,
    pub(crate) caps: Caps,
    pub(crate) quirks: Quirks,
    /// The rates it supports, and for which kinds of queue pairs.
    pub(crate) pacing: Option<ibv_packet_pacing_caps>,
    /// The kernel's folder of its port.
    port_path: PathBuf,
    /// The kernel's folder of its device file: gone as soon as the device is removed.
    pub(crate) uverbs: PathBuf,
    /// Bytes of packets.
    pub(crate) path_mtu: u32,
    pub(crate) max_mr_bytes: u64,
    pub(crate) slots: SlotTable,
    pub(crate) retired_keys: RetiredKeys,
    /// Address handles; looked up when a datagram names a different one than the last.
    pub(crate) ahs: HandleTable<AhCore>,
    cqs: Mutex<HashMap<usize, Weak<CqCore>>>,
    next_cq: AtomicUsize,
    pub(crate) events: EventQueue,
    gone: AtomicBool,
    /// Readable forever once the device is gone.
    pub(crate) gone_bell: OwnedFd,
    start: Instant,
    next_vector: AtomicU64,
}

impl Device {
    pub(crate) fn new(
        handle: Arc<sys::Device>,
        place: Place,
        (options, roots): (IbverbsOptions, &Roots),
    ) -> Result<Arc<Self>, VerbsError> {
        let name = &place.device;
        let os = |what: &str| {
            let what = format!("{what} {name}");
            move |error: io::Error| VerbsError::os(what, error)
        };
        let attr = handle.query().map_err(os("asking for the limits of"))?;
        let port = handle.query_port(place.port);
        let port = port.map_err(os("asking for the port of"))?;
        let path_mtu = path_mtu(&options, &port)?;
        let probed =
            probe::probe(&handle, &place, path_mtu).map_err(os("trying a queue pair of"))?;
        let pacing = handle.query_pacing().filter(|_| handle.has_rate_limit());
        let gone_bell = event_fd().map_err(os("an event counter for"))?;
        Ok(Arc::new(Self {
            caps: Caps {
                rate: pacing.and_then(|pacing| rate::range(&pacing, place.gid)),
                ..caps(&attr, &port, path_mtu, &probed)
            },
            quirks: Quirks::of(&attr),
            pacing,
            port_path: sysfs::port_path(roots, name, place.port),
            uverbs: sysfs::uverbs_path(roots, name),
            path_mtu,
            max_mr_bytes: attr.max_mr_size,
            handle,
            place,
            options,
            slots: SlotTable::default(),
            retired_keys: RetiredKeys::default(),
            ahs: HandleTable::new("address handles of a context", positive(attr.max_ah) as usize),
            cqs: Mutex::default(),
            next_cq: AtomicUsize::new(0),
            events: EventQueue::new(MAX_EVENTS),
            gone: AtomicBool::new(false),
            gone_bell,
            start: Instant::now(),
            next_vector: AtomicU64::new(0),
        }))
    }

    /// Returns the current index of our GID; `None` if the table no longer has it.
    pub(crate) fn gid_index(&self) -> Option<u32> {
        let Place { index, gid, kind, .. } = self.place;
        sysfs::gid_index(&self.port_path, index, gid, kind)
    }

    /// Returns the nanoseconds since the device was opened.
    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns the interrupt for the next completion queue: they take turns.
    pub(crate) fn next_vector(&self) -> u32 {
        let turn = self.next_vector.fetch_add(1, Ordering::Relaxed);
        (turn % u64::from(self.handle.completion_vectors())) as u32
    }

    pub(crate) fn next_cq(&self) -> usize {
        self.next_cq.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers this completion queue under its number, for events.
    pub(crate) fn register_cq(&self, cq: &Arc<CqCore>) {
        self.cqs.lock().insert(cq.tag, Arc::downgrade(cq));
    }

    pub(crate) fn forget_cq(&self, tag: usize) {
        self.cqs.lock().remove(&tag);
    }

    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Marks the device as gone: everything outstanding fails, sleepers wake.
    pub(crate) fn lose(&self, reason: &str) {
        if self.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        let name = &self.place.device;
        tracing::warn!(device = name, reason, "RDMA device lost");
        self.events.add(AsyncEvent::DeviceFatal);
        for slot in self.slots.all() {
            let position = position(slot.sends_done());
            self.fail(slot, &format!("its device {name} is lost: {reason}; {position}"));
        }
        ring(&self.gone_bell);
    }

    /// Handles a queue pair that went to the error state by itself, or must go there.
    pub(crate) fn fail(&self, slot: &Slot, reason: &str) {
        let control = slot.control.lock();
        let Some(qp) = &control.qp else { return };
        if matches!(slot.state.get(), QpState::Err | QpState::Reset) {
            return;
        }
        slot.state.set(QpState::Err);
        let reason = explain_queue_pair(slot.qpn(), control.peer.as_ref(), reason);
        tracing::info!(device = self.place.device, %reason, "queue pair failed");
        self.events.add(AsyncEvent::QpFatal { qpn: slot.qpn(), reason });
        // It may be in it already; if not, its requests would wait forever.
        if !self.is_gone()
            && let Err(error) = qp.set_state(IBV_QPS_ERR)
        {
            tracing::debug!(%error, qpn = slot.qpn(), "to the error state");
        }
    }

    #[cold]
    pub(crate) fn request_failed(&self, slot: &Slot, failure: &Failure, is_recv: bool) {
        if slot.state.get() != QpState::Err {
            // A send that failed has left the queue too.
            let done = slot.sends_done().saturating_sub((!is_recv).into());
            self.fail(slot, &explain_failure(failure, Some(self.path_mtu), done));
        }
    }

    pub(crate) fn overrun(&self, tag: usize) {
        let cq = self.cqs.lock().get(&tag).and_then(Weak::upgrade);
        let Some(cq) = cq.filter(|cq| cq.set_overrun()) else { return };
        self.events.add(AsyncEvent::CqOverrun);
        for index in cq.queue_pairs() {
            if let Some(slot) = self.slots.get(index) {
                self.fail(
                    slot,
                    "its completion queue overran: poll it more often, or make it larger",
                );
            }
        }
    }

    pub(crate) fn handle_event(&self, event: sys::AsyncEvent) {
        match event {
            sys::AsyncEvent::Cq(tag) => self.overrun(tag),
            sys::AsyncEvent::Qp(tag, kind) => {
                let slot = u32::try_from(tag).ok().and_then(|tag| self.slots.get(tag));
                if let (Some(slot), Some(reason)) = (slot, qp_event(kind)) {
                    self.fail(slot, reason);
                }
            }
            sys::AsyncEvent::Port(kind, port) if port == c_int::from(self.place.port) => match kind
            {
                IBV_EVENT_PORT_ERR => self.events.add(AsyncEvent::PortDown),
                IBV_EVENT_PORT_ACTIVE => self.events.add(AsyncEvent::PortActive),
                _ => {}
            },
            sys::AsyncEvent::Device(IBV_EVENT_DEVICE_FATAL) => {
                self.lose("the driver reports a fatal error or the removal of the device");
            }
            sys::AsyncEvent::Port(..) | sys::AsyncEvent::Device(_) => {}
        }
    }
}

/// Returns why an event of a queue pair means that it failed; `None` if it does not.
fn qp_event(kind: c_uint) -> Option<&'static str> {
    match kind {
        IBV_EVENT_QP_FATAL => Some("the device found it broken (IBV_EVENT_QP_FATAL)"),
        IBV_EVENT_QP_REQ_ERR => Some(
            "the peer sent a request that it does not support: of the wrong kind, length or \
             order (IBV_EVENT_QP_REQ_ERR)",
        ),
        IBV_EVENT_QP_ACCESS_ERR => Some(
            "the peer named memory that it may not access: rkey, bounds or rights are wrong \
             (IBV_EVENT_QP_ACCESS_ERR)",
        ),
        _ => None,
    }
}

/// Returns the path MTU in bytes: the port's current MTU, or less if the options require it.
fn path_mtu(options: &IbverbsOptions, port: &ibv_port_attr) -> Result<u32, VerbsError> {
    let active = mtu_bytes(port.active_mtu).ok_or_else(|| {
        VerbsError::Invalid(format!("the port's MTU has the unknown code {}", port.active_mtu))
    })?;
    match options.path_mtu {
        None => Ok(active),
        Some(most) if mtu_code(most).is_some() => Ok(most.min(active)),
        Some(wrong) => Err(VerbsError::Invalid(format!(
            "a path MTU of {wrong} bytes: 256, 512, 1024, 2048 or 4096 is needed"
        ))),
    }
}

/// Converts a limit that the library returns as a signed number.
fn positive(limit: c_int) -> u32 {
    u32::try_from(limit).unwrap_or(0)
}

fn caps(attr: &ibv_device_attr, port: &ibv_port_attr, path_mtu: u32, probed: &Probed) -> Caps {
    Caps {
        services: probed.services,
        send_invalidate: attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS != 0,
        // Peers cannot invalidate regions of ibv_reg_mr, only memory windows.
        remote_invalidate: false,
        max_send_wr: positive(attr.max_qp_wr).min(MAX_WR),
        max_recv_wr: positive(attr.max_qp_wr).min(MAX_WR),
        max_sge: positive(attr.max_sge.min(attr.max_sge_rd)).min(MAX_SGE),
        max_inline_bytes: probed.max_inline_bytes,
        max_cqe: positive(attr.max_cqe).min(MAX_CQE),
        max_message_bytes: port.max_msg_sz.into(),
        max_rd_atomic: positive(attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom)).min(255),
        path_mtu: Some(path_mtu),
        atomics: attr.atomic_cap != IBV_ATOMIC_NONE,
        data_in_order: probed.data_in_order,
        writes_in_order: false,
        direct: false,
        doorbell: false,
        rate: None,
        strict_capacity: true,
    }
}

pub(crate) fn memory_error(what: &str, bytes: u64, error: io::Error) -> VerbsError {
    let locked = memlock::locked_bytes();
    let limit = memlock::limit_bytes();
    if error.raw_os_error() == Some(libc::ENOMEM)
        && let Some(limit_bytes) = limit
        && locked.saturating_add(bytes) > limit_bytes
    {
        return VerbsError::MemoryLock {
            provider: NAME,
            asked_bytes: bytes,
            locked_bytes: locked,
            limit_bytes,
        };
    }
    VerbsError::os(format!("{what} of {bytes} bytes"), error)
}
