//! Devices, protection domains, registrations, completion queues and channels, queue pairs.
use super::{
    library::Library,
    types::{
        IBV_EVENT_CQ_ERR, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
        IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_QP_STATE, IBV_QPT_RC,
        async_event_element, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
        ibv_device_attr, ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr,
        ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_wc,
    },
};
use catchment_verbs::mem::Region;
use std::{
    ffi::{CStr, c_int, c_uint, c_void},
    io, mem,
    os::fd::{AsFd, BorrowedFd, RawFd},
    ptr::{self, NonNull},
    sync::Arc,
};

/// What functions answer that give an error number, or -1 and leave it in `errno`.
fn check(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        ..0 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// What functions answer that give an object, or null and leave the error in `errno`.
fn object<T>(made: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(made).ok_or_else(io::Error::last_os_error)
}

/// Logs an object that the library did not take back. Nothing else can be done about it.
fn destroyed(what: &str, code: c_int) {
    if let Err(error) = check(code) {
        tracing::warn!(%error, "{what}");
    }
}

fn non_blocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok(())
}

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

/// An open device.
pub(crate) struct Device {
    pub(super) library: Arc<Library>,
    context: NonNull<ibv_context>,
    pub(super) operations: Operations,
}

// SAFETY: libibverbs and its drivers lock what threads share (ibv_open_device(3) and the verbs
// specification, 10.2.8: all verbs are thread-safe).
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Something that happened outside of any request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsyncEvent {
    /// To a queue pair, known by the tag it was made with: which of `IBV_EVENT_QP_...`.
    Qp(usize, u32),
    /// A completion queue overran, known by the tag it was made with.
    Cq(usize),
    /// To a port: which of `IBV_EVENT_...`, and the port.
    Port(u32, c_int),
    /// To the device: which of `IBV_EVENT_...`.
    Device(u32),
}

impl Device {
    /// Opens the device of this name; `None` if the library has none.
    pub(crate) fn open(library: Arc<Library>, name: &str) -> io::Result<Option<Device>> {
        let functions = &library.functions;
        let mut count = 0;
        // SAFETY: the call fills the count and gives a list, or null.
        let list = object(unsafe { (functions.ibv_get_device_list)(&raw mut count) })?;
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
            object(unsafe { (functions.ibv_open_device)(*device) })
        });
        // SAFETY: the list is that of above and is not used any more.
        unsafe { (functions.ibv_free_device_list)(list.as_ptr()) };
        let Some(context) = opened.transpose()? else {
            return Ok(None);
        };
        Device::new(library, context).map(Some)
    }

    fn new(library: Arc<Library>, context: NonNull<ibv_context>) -> io::Result<Device> {
        // SAFETY: an open context has its operations filled in, and they stay.
        let ops = unsafe { &(*context.as_ptr()).ops };
        let operations = match (ops.poll_cq, ops.req_notify_cq, ops.post_send, ops.post_recv) {
            (Some(poll_cq), Some(req_notify_cq), Some(post_send), Some(post_recv)) => Operations {
                poll_cq,
                req_notify_cq,
                post_send,
                post_recv,
            },
            _ => {
                // SAFETY: the context was just opened and nothing uses it.
                unsafe { (library.functions.ibv_close_device)(context.as_ptr()) };
                return Err(io::ErrorKind::Unsupported.into());
            }
        };
        let device = Device {
            library,
            context,
            operations,
        };
        non_blocking(device.async_fd())?;
        Ok(device)
    }

    fn raw(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// What the device can do.
    pub(crate) fn query(&self) -> io::Result<ibv_device_attr> {
        // SAFETY: zeros are a value of this structure of numbers.
        let mut attr: ibv_device_attr = unsafe { mem::zeroed() };
        // SAFETY: the call fills the structure.
        check(unsafe { (self.library.functions.ibv_query_device)(self.raw(), &raw mut attr) })?;
        Ok(attr)
    }

    /// What a port is like.
    pub(crate) fn query_port(&self, port: u8) -> io::Result<ibv_port_attr> {
        // SAFETY: zeros are a value of this structure of numbers.
        let mut attr: ibv_port_attr = unsafe { mem::zeroed() };
        // SAFETY: the call fills the structure, or, in older versions, its beginning.
        check(unsafe { (self.library.functions.ibv_query_port)(self.raw(), port, &raw mut attr) })?;
        Ok(attr)
    }

    /// The entries in use of the GID tables of all ports; none where the library or the kernel
    /// cannot tell them at once. `most` is the length of the tables together.
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

    /// Interrupts that completion queues can be spread over.
    pub(crate) fn completion_vectors(&self) -> u32 {
        // SAFETY: the context is open.
        let vectors = unsafe { (*self.raw()).num_comp_vectors };
        u32::try_from(vectors).unwrap_or(1).max(1)
    }

    /// Readable while an event is there. Never blocks.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw((*self.raw()).async_fd) }
    }

    /// The next event. `WouldBlock` if there is none; another error when the device is gone.
    pub(crate) fn next_event(&self) -> io::Result<AsyncEvent> {
        let mut event = ibv_async_event {
            element: async_event_element {
                qp: ptr::null_mut(),
            },
            event_type: 0,
        };
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

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: what was made of the device kept it alive, so nothing is left.
        let code = unsafe { (self.library.functions.ibv_close_device)(self.raw()) };
        destroyed("closing an RDMA device", code);
    }
}

/// A protection domain.
pub(crate) struct Domain {
    device: Arc<Device>,
    pd: NonNull<ibv_pd>,
}

// SAFETY: as for `Device`.
unsafe impl Send for Domain {}
// SAFETY: as for `Device`.
unsafe impl Sync for Domain {}

impl Domain {
    /// A new one.
    pub(crate) fn new(device: Arc<Device>) -> io::Result<Domain> {
        // SAFETY: the context is open.
        let pd = object(unsafe { (device.library.functions.ibv_alloc_pd)(device.raw()) })?;
        Ok(Domain { device, pd })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: what was made of the domain kept it alive, so nothing is left.
        let code = unsafe { (self.device.library.functions.ibv_dealloc_pd)(self.pd.as_ptr()) };
        destroyed("giving back a protection domain", code);
    }
}

/// Registered memory. Dropping it takes the keys back; afterwards the device does not reach it.
pub(crate) struct Registration {
    domain: Arc<Domain>,
    region: Arc<Region>,
    mr: NonNull<ibv_mr>,
    lkey: u32,
    rkey: u32,
}

// SAFETY: as for `Device`.
unsafe impl Send for Registration {}
// SAFETY: as for `Device`.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers a region with rights as bits of `ibv_access_flags`, and optional ones that are left
    /// out where the library does not know them.
    pub(crate) fn new(
        domain: Arc<Domain>,
        region: Arc<Region>,
        access: c_uint,
        optional: c_uint,
    ) -> io::Result<Registration> {
        let functions = &domain.device.library.functions;
        let (pd, at, bytes) = (domain.pd.as_ptr(), region.addr(), region.bytes());
        let start = at as *mut c_void;
        let made = match functions.ibv_reg_mr_iova2 {
            Some(register) if optional != 0 => {
                // SAFETY: the region stays mapped as long as this object, which holds it.
                unsafe { register(pd, start, bytes, at, access | optional) }
            }
            _ => {
                // SAFETY: as above.
                unsafe { (functions.ibv_reg_mr)(pd, start, bytes, access as c_int) }
            }
        };
        let mr = object(made)?;
        // SAFETY: the library has filled in the keys.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
        Ok(Registration {
            domain,
            region,
            mr,
            lkey,
            rkey,
        })
    }

    /// The memory.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Key for requests of this side.
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Key for requests of peers.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let functions = &self.domain.device.library.functions;
        // SAFETY: the registration is given back once.
        let code = unsafe { (functions.ibv_dereg_mr)(self.mr.as_ptr()) };
        if let Err(error) = check(code) {
            // The device may still reach the memory: it must stay mapped.
            tracing::warn!(%error, "taking back a memory region; its memory stays mapped");
            mem::forget(Arc::clone(&self.region));
        }
    }
}

/// A completion channel.
pub(crate) struct Channel {
    device: Arc<Device>,
    channel: NonNull<ibv_comp_channel>,
}

// SAFETY: as for `Device`.
unsafe impl Send for Channel {}
// SAFETY: as for `Device`.
unsafe impl Sync for Channel {}

impl Channel {
    /// A new one, whose descriptor never blocks.
    pub(crate) fn new(device: Arc<Device>) -> io::Result<Channel> {
        let functions = &device.library.functions;
        // SAFETY: the context is open.
        let channel = object(unsafe { (functions.ibv_create_comp_channel)(device.raw()) })?;
        let channel = Channel { device, channel };
        non_blocking(channel.fd())?;
        Ok(channel)
    }

    /// Readable while an event is there.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel has this descriptor as long as it lives.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Takes one event; false if there is none.
    pub(crate) fn take_event(&self) -> io::Result<bool> {
        let functions = &self.device.library.functions;
        let (mut cq, mut tag) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the call fills both.
        let code = unsafe {
            (functions.ibv_get_cq_event)(self.channel.as_ptr(), &raw mut cq, &raw mut tag)
        };
        match check(code) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        // SAFETY: the destruction of the queue waits until its events are acknowledged.
        unsafe { (functions.ibv_ack_cq_events)(cq, 1) };
        Ok(true)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let functions = &self.device.library.functions;
        // SAFETY: the queues of the channel kept it alive, so none is left.
        let code = unsafe { (functions.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
        destroyed("giving back a completion channel", code);
    }
}

/// A completion queue.
pub(crate) struct CompletionQueue {
    device: Arc<Device>,
    _channel: Option<Arc<Channel>>,
    cq: NonNull<ibv_cq>,
}

// SAFETY: as for `Device`.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for `Device`.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// At least `capacity` entries. The tag comes back in events.
    pub(crate) fn new(
        device: Arc<Device>,
        channel: Option<Arc<Channel>>,
        (capacity, vector, tag): (u32, u32, usize),
    ) -> io::Result<CompletionQueue> {
        let raw_channel = channel
            .as_ref()
            .map_or(ptr::null_mut(), |channel| channel.channel.as_ptr());
        // SAFETY: context and channel are alive, and are kept so by this object.
        let cq = object(unsafe {
            (device.library.functions.ibv_create_cq)(
                device.raw(),
                c_int::try_from(capacity).unwrap_or(c_int::MAX),
                tag as *mut c_void,
                raw_channel,
                c_int::try_from(vector).unwrap_or(0),
            )
        })?;
        Ok(CompletionQueue {
            device,
            _channel: channel,
            cq,
        })
    }

    /// Entries that it can hold.
    pub(crate) fn capacity(&self) -> u32 {
        // SAFETY: the queue is alive.
        let entries = unsafe { (*self.cq.as_ptr()).cqe };
        u32::try_from(entries).unwrap_or(1)
    }

    /// Takes completions into the beginning of `out`, and says how many.
    #[inline]
    pub(crate) fn poll<'a>(
        &self,
        out: &'a mut [mem::MaybeUninit<ibv_wc>],
    ) -> io::Result<&'a [ibv_wc]> {
        let room = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        let start = out.as_mut_ptr().cast::<ibv_wc>();
        // SAFETY: there is room for as many as the call may write.
        let taken = unsafe { (self.device.operations.poll_cq)(self.cq.as_ptr(), room, start) };
        match usize::try_from(taken) {
            // SAFETY: the call has written that many.
            Ok(taken) => Ok(unsafe { std::slice::from_raw_parts(start, taken.min(out.len())) }),
            Err(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }

    /// Asks for an event.
    pub(crate) fn req_notify(&self, solicited_only: bool) {
        let request = self.device.operations.req_notify_cq;
        // SAFETY: the queue is alive.
        let code = unsafe { request(self.cq.as_ptr(), c_int::from(solicited_only)) };
        if code != 0 {
            tracing::debug!(code, "asking for a completion event");
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let functions = &self.device.library.functions;
        // SAFETY: the queue pairs kept the queue alive, so none is left.
        let code = unsafe { (functions.ibv_destroy_cq)(self.cq.as_ptr()) };
        destroyed("giving back a completion queue", code);
    }
}

/// What a queue pair is made with.
pub(crate) struct QueuePairInit {
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    pub(crate) cap: ibv_qp_cap,
    /// Comes back in events.
    pub(crate) tag: usize,
}

/// A queue pair of the reliable connection service.
pub(crate) struct QueuePair {
    domain: Arc<Domain>,
    _send_cq: Arc<CompletionQueue>,
    _recv_cq: Arc<CompletionQueue>,
    qp: NonNull<ibv_qp>,
    qpn: u32,
}

// SAFETY: as for `Device`.
unsafe impl Send for QueuePair {}
// SAFETY: as for `Device`.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A new one in RESET, with at least these capacities.
    pub(crate) fn new(domain: Arc<Domain>, init: QueuePairInit) -> io::Result<QueuePair> {
        let mut attr = ibv_qp_init_attr {
            qp_context: init.tag as *mut c_void,
            send_cq: init.send_cq.cq.as_ptr(),
            recv_cq: init.recv_cq.cq.as_ptr(),
            srq: ptr::null_mut(),
            cap: init.cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        let create = domain.device.library.functions.ibv_create_qp;
        // SAFETY: domain and queues are alive, and are kept so by this object.
        let qp = object(unsafe { create(domain.pd.as_ptr(), &raw mut attr) })?;
        // SAFETY: the library has filled in the number.
        let qpn = unsafe { (*qp.as_ptr()).qp_num };
        Ok(QueuePair {
            domain,
            _send_cq: init.send_cq,
            _recv_cq: init.recv_cq,
            qp,
            qpn,
        })
    }

    /// Its number.
    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Attributes with nothing set.
    pub(crate) fn no_attributes() -> ibv_qp_attr {
        // SAFETY: zeros are a value of this structure of numbers.
        unsafe { mem::zeroed() }
    }

    /// Changes the attributes that the mask names.
    pub(crate) fn modify(&self, mut attr: ibv_qp_attr, mask: c_uint) -> io::Result<()> {
        let modify = self.device().library.functions.ibv_modify_qp;
        // SAFETY: the queue pair is alive; the call reads the attributes.
        check(unsafe { modify(self.raw(), &raw mut attr, mask as c_int) })
    }

    /// Changes the state only.
    pub(crate) fn set_state(&self, state: c_uint) -> io::Result<()> {
        let attr = ibv_qp_attr {
            qp_state: state,
            ..QueuePair::no_attributes()
        };
        self.modify(attr, IBV_QP_STATE)
    }

    /// The state, as the kernel knows it.
    pub(crate) fn query_state(&self) -> io::Result<c_uint> {
        let mut attr = QueuePair::no_attributes();
        // SAFETY: zeros are a value of this structure of numbers and pointers.
        let mut init: ibv_qp_init_attr = unsafe { mem::zeroed() };
        let query = self.device().library.functions.ibv_query_qp;
        let mask = IBV_QP_STATE as c_int;
        // SAFETY: the queue pair is alive; the call fills both structures.
        check(unsafe { query(self.raw(), &raw mut attr, mask, &raw mut init) })?;
        Ok(attr.qp_state)
    }

    /// Whether the bytes of one operation that arrives here become visible in order.
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

    /// The number by which the kernel knows it.
    pub(super) fn handle(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.raw()).handle }
    }

    /// The descriptor for commands to the kernel.
    pub(super) fn command_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open, and its descriptor with it.
        let fd: RawFd = unsafe { (*self.device().raw()).cmd_fd };
        // SAFETY: as above.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let destroy = self.device().library.functions.ibv_destroy_qp;
        // SAFETY: the queue pair is given back once.
        destroyed("giving back a queue pair", unsafe { destroy(self.raw()) });
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}
