//! Queue pairs.
use super::answer::{Object, check, made};
use super::types::*;
use super::{CompletionQueue, Device, Domain};
use catchment_verbs::Service;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::{io, mem, ptr};

pub(crate) struct QueuePairInit {
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) service: Service,
    /// Returned in events.
    pub(crate) tag: usize,
}

pub(crate) struct QueuePair {
    qp: Object<ibv_qp>,
    domain: Arc<Domain>,
    _send_cq: Arc<CompletionQueue>,
    _recv_cq: Arc<CompletionQueue>,
    pub(crate) qpn: u32,
}

impl QueuePair {
    /// Creates a queue pair in RESET, with at least these capacities.
    pub(crate) fn new(domain: Arc<Domain>, init: QueuePairInit) -> io::Result<Self> {
        let mut attr = ibv_qp_init_attr {
            qp_context: init.tag as *mut c_void,
            send_cq: init.send_cq.cq.as_ptr(),
            recv_cq: init.recv_cq.cq.as_ptr(),
            srq: ptr::null_mut(),
            cap: init.cap,
            qp_type: match init.service {
                Service::Rc => IBV_QPT_RC,
                Service::Uc => IBV_QPT_UC,
                Service::Ud => IBV_QPT_UD,
            },
            sq_sig_all: 0,
        };
        let functions = &domain.device.library.functions;
        // SAFETY: domain and queues are alive, and are kept so by this object.
        let qp = made(unsafe { (functions.ibv_create_qp)(domain.pd.as_ptr(), &raw mut attr) })?;
        // SAFETY: nothing is made from a queue pair.
        let qp = unsafe { Object::new(qp, functions.ibv_destroy_qp, "giving back a queue pair") };
        // SAFETY: the library has filled in the number.
        let qpn = unsafe { (*qp.as_ptr()).qp_num };
        Ok(Self { qp, domain, _send_cq: init.send_cq, _recv_cq: init.recv_cq, qpn })
    }

    pub(crate) fn no_attributes() -> ibv_qp_attr {
        // SAFETY: zeros are a value of this structure of numbers.
        unsafe { mem::zeroed() }
    }

    pub(crate) fn modify(&self, mut attr: ibv_qp_attr, mask: c_uint) -> io::Result<()> {
        let modify = self.device().library.functions.ibv_modify_qp;
        // SAFETY: the queue pair is alive; the call reads the attributes.
        check(unsafe { modify(self.raw(), &raw mut attr, mask as c_int) })
    }

    pub(crate) fn set_state(&self, state: c_uint) -> io::Result<()> {
        self.modify(ibv_qp_attr { qp_state: state, ..Self::no_attributes() }, IBV_QP_STATE)
    }

    /// Returns the kernel's state of it.
    pub(crate) fn query_state(&self) -> io::Result<c_uint> {
        Ok(self.query()?.qp_state)
    }

    /// Returns whether it is in SQD with earlier requests not done yet.
    pub(crate) fn is_draining(&self) -> io::Result<bool> {
        Ok(self.query()?.sq_draining != 0)
    }

    fn query(&self) -> io::Result<ibv_qp_attr> {
        let mut attr = Self::no_attributes();
        // SAFETY: zeros are a value of this structure of numbers and pointers.
        let mut init: ibv_qp_init_attr = unsafe { mem::zeroed() };
        let query = self.device().library.functions.ibv_query_qp;
        let mask = IBV_QP_STATE as c_int;
        // SAFETY: the queue pair is alive; the call fills both structures.
        check(unsafe { query(self.raw(), &raw mut attr, mask, &raw mut init) })?;
        Ok(attr)
    }

    /// Returns whether the bytes of an arriving operation become visible in order.
    pub(crate) fn data_in_order(&self, opcode: c_uint) -> bool {
        match self.device().library.functions.ibv_query_qp_data_in_order {
            // SAFETY: the queue pair is alive.
            Some(query) => unsafe { query(self.raw(), opcode, 0) == 1 },
            None => false,
        }
    }

    pub(super) fn raw(&self) -> *mut ibv_qp {
        self.qp.as_ptr()
    }

    pub(super) fn device(&self) -> &Device {
        &self.domain.device
    }

    pub(super) fn handle(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.raw()).handle }
    }

    pub(super) fn command_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open, and its descriptor with it.
        let fd: RawFd = unsafe { (*self.device().raw()).cmd_fd };
        // SAFETY: as above.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}
