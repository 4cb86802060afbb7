//! Open devices, and their asynchronous events.
use super::answer::{Object, check, made, non_blocking};
use super::library::Library;
use super::types::*;
use std::ffi::{CStr, c_int};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{io, mem};

/// The functions of a device that the header calls through its context.
#[derive(Clone, Copy)]
pub(super) struct Operations {
    pub(super) poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    pub(super) post_send:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    pub(super) post_recv:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
}

pub(crate) struct Device {
    context: Object<ibv_context>,
    pub(super) library: Arc<Library>,
    pub(super) operations: Operations,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsyncEvent {
    /// To a queue pair, identified by the tag it was created with: which of `IBV_EVENT_QP_...`.
    Qp(usize, u32),
    /// A completion queue overran, identified by the tag it was created with.
    Cq(usize),
    /// To a port: which of `IBV_EVENT_...`, and the port.
    Port(u32, c_int),
    /// To the device: which of `IBV_EVENT_...`.
    Device(u32),
}

impl Device {
    /// Opens the device of this name; `None` if the library has none.
    pub(crate) fn open(library: Arc<Library>, name: &str) -> io::Result<Option<Self>> {
        let functions = &library.functions;
        let mut count = 0;
        // SAFETY: the call fills the count and returns a list, or null.
        let list = made(unsafe { (functions.ibv_get_device_list)(&raw mut count) })?;
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the list has that many entries and lives until it is given back below.
        let devices: &[*mut ibv_device] =
            unsafe { std::slice::from_raw_parts(list.as_ptr(), count) };
        let found = devices.iter().find(|device| {
            // SAFETY: an entry of the list is a device, whose name lives as long as it.
            let seen = unsafe { CStr::from_ptr((functions.ibv_get_device_name)(**device)) };
            seen.to_bytes() == name.as_bytes()
        });
        let opened = found.map(|device| {
            // SAFETY: as above. An open device stays alive without the list.
            made(unsafe { (functions.ibv_open_device)(*device) })
        });
        // SAFETY: the list is that of above and is not used again.
        unsafe { (functions.ibv_free_device_list)(list.as_ptr()) };
        let Some(context) = opened.transpose()? else { return Ok(None) };
        Self::new(library, context).map(Some)
    }

    fn new(library: Arc<Library>, context: NonNull<ibv_context>) -> io::Result<Self> {
        // SAFETY: what is made of the device keeps it alive.
        let context = unsafe {
            Object::new(context, library.functions.ibv_close_device, "closing an RDMA device")
        };
        // SAFETY: an open context has its operations filled in, and they stay.
        let ops = unsafe { &(*context.as_ptr()).ops };
        let operations = match (ops.poll_cq, ops.req_notify_cq, ops.post_send, ops.post_recv) {
            (Some(poll_cq), Some(req_notify_cq), Some(post_send), Some(post_recv)) => {
                Operations { poll_cq, req_notify_cq, post_send, post_recv }
            }
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let device = Self { context, library, operations };
        non_blocking(device.async_fd())?;
        Ok(device)
    }

    pub(super) fn raw(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    pub(crate) fn query(&self) -> io::Result<ibv_device_attr> {
        // SAFETY: zeros are a value of this structure of numbers.
        let mut attr: ibv_device_attr = unsafe { mem::zeroed() };
        // SAFETY: the call fills the structure.
        check(unsafe { (self.library.functions.ibv_query_device)(self.raw(), &raw mut attr) })?;
        Ok(attr)
    }

    pub(crate) fn query_port(&self, port: u8) -> io::Result<ibv_port_attr> {
        // SAFETY: zeros are a value of this structure of numbers.
        let mut attr: ibv_port_attr = unsafe { mem::zeroed() };
        // SAFETY: the call fills the structure, or, in older versions, its beginning.
        check(unsafe { (self.library.functions.ibv_query_port)(self.raw(), port, &raw mut attr) })?;
        Ok(attr)
    }

    /// Returns the used entries of the GID tables of all ports; `None` where the library or the
    /// kernel cannot list them in one call. `most` is the length of the tables together.
    pub(crate) fn gid_table(&self, most: usize) -> Option<Vec<ibv_gid_entry>> {
        let query = self.library.functions._ibv_query_gid_table?;
        // SAFETY: zeros are a value of this structure of numbers.
        let mut entries = vec![unsafe { mem::zeroed::<ibv_gid_entry>() }; most];
        let bytes = size_of::<ibv_gid_entry>();
        // SAFETY: there is room for as many entries of this size as the call may write.
        let found = unsafe { query(self.raw(), entries.as_mut_ptr(), most, 0, bytes) };
        entries.truncate(usize::try_from(found).ok()?);
        Some(entries)
    }

    pub(crate) fn completion_vectors(&self) -> u32 {
        // SAFETY: the context is open.
        let vectors = unsafe { (*self.raw()).num_comp_vectors };
        u32::try_from(vectors).unwrap_or(1).max(1)
    }

    /// Returns a descriptor that is readable while there is an event. Never blocks.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw((*self.raw()).async_fd) }
    }

    /// Returns the next event. `WouldBlock` if there is none; another error once it is gone.
    pub(crate) fn next_event(&self) -> io::Result<AsyncEvent> {
        let mut event =
            ibv_async_event { element: async_event_element { qp: ptr::null_mut() }, event_type: 0 };
        let functions = &self.library.functions;
        // SAFETY: the call fills the structure.
        check(unsafe { (functions.ibv_get_async_event)(self.raw(), &raw mut event) })?;
        let kind = event.event_type;
        let seen = match kind {
            IBV_EVENT_CQ_ERR => {
                // SAFETY: this kind names a completion queue, whose destruction waits until the
                // event is acknowledged.
                AsyncEvent::Cq(unsafe { (*event.element.cq).cq_context } as usize)
            }
            IBV_EVENT_QP_FATAL..=IBV_EVENT_PATH_MIG_ERR | IBV_EVENT_QP_LAST_WQE_REACHED => {
                // SAFETY: these kinds name a queue pair, whose destruction waits likewise.
                AsyncEvent::Qp(unsafe { (*event.element.qp).qp_context } as usize, kind)
            }
            IBV_EVENT_PORT_ACTIVE | IBV_EVENT_PORT_ERR => {
                // SAFETY: these kinds name a port.
                AsyncEvent::Port(kind, unsafe { event.element.port_num })
            }
            kind => AsyncEvent::Device(kind),
        };
        // SAFETY: every event is acknowledged once; its object is not used afterwards.
        unsafe { (functions.ibv_ack_async_event)(&raw mut event) };
        Ok(seen)
    }
}
