//! Completion queues and channels.
use super::Device;
use super::answer::{Object, check, made, non_blocking};
use super::types::{ibv_comp_channel, ibv_cq, ibv_wc};
use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::{io, mem, ptr};

pub(crate) struct Channel {
    channel: Object<ibv_comp_channel>,
    device: Arc<Device>,
}

impl Channel {
    /// Creates a channel whose descriptor never blocks.
    pub(crate) fn new(device: Arc<Device>) -> io::Result<Self> {
        let functions = &device.library.functions;
        // SAFETY: the context is open.
        let channel = made(unsafe { (functions.ibv_create_comp_channel)(device.raw()) })?;
        let (give_back, what) =
            (functions.ibv_destroy_comp_channel, "giving back a completion channel");
        // SAFETY: the queues of the channel keep it alive.
        let channel = Self { channel: unsafe { Object::new(channel, give_back, what) }, device };
        non_blocking(channel.fd())?;
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel has this descriptor as long as it lives.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Takes one event; returns false if there is none.
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

pub(crate) struct CompletionQueue {
    pub(super) cq: Object<ibv_cq>,
    device: Arc<Device>,
    _channel: Option<Arc<Channel>>,
}

impl CompletionQueue {
    /// Creates a queue of at least `capacity` entries. The tag is returned in events.
    pub(crate) fn new(
        device: Arc<Device>,
        channel: Option<Arc<Channel>>,
        (capacity, vector, tag): (u32, u32, usize),
    ) -> io::Result<Self> {
        let raw_channel =
            channel.as_ref().map_or(ptr::null_mut(), |channel| channel.channel.as_ptr());
        let functions = &device.library.functions;
        // SAFETY: context and channel are alive, and are kept so by this object.
        let cq = made(unsafe {
            (functions.ibv_create_cq)(
                device.raw(),
                c_int::try_from(capacity).unwrap_or(c_int::MAX),
                tag as *mut c_void,
                raw_channel,
                c_int::try_from(vector).unwrap_or(0),
            )
        })?;
        // SAFETY: the queue pairs keep the queue alive.
        let cq =
            unsafe { Object::new(cq, functions.ibv_destroy_cq, "giving back a completion queue") };
        Ok(Self { cq, device, _channel: channel })
    }

    pub(crate) fn capacity(&self) -> u32 {
        // SAFETY: the queue is alive.
        let entries = unsafe { (*self.cq.as_ptr()).cqe };
        u32::try_from(entries).unwrap_or(1)
    }

    /// Moves completions to the beginning of `out`, and returns how many.
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

    pub(crate) fn req_notify(&self, solicited_only: bool) {
        let request = self.device.operations.req_notify_cq;
        // SAFETY: the queue is alive.
        let code = unsafe { request(self.cq.as_ptr(), c_int::from(solicited_only)) };
        if code != 0 {
            tracing::debug!(code, "asking for a completion event");
        }
    }
}
