//! Completion queues and channels.
use super::Device;
use super::answer::{check, destroyed, non_blocking, object};
use super::types::{ibv_comp_channel, ibv_cq, ibv_wc};
use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{io, mem};

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

pub(crate) struct CompletionQueue {
    device: Arc<Device>,
    _channel: Option<Arc<Channel>>,
    pub(super) cq: NonNull<ibv_cq>,
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
        let raw_channel =
            channel.as_ref().map_or(ptr::null_mut(), |channel| channel.channel.as_ptr());
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
        Ok(CompletionQueue { device, _channel: channel, cq })
    }

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
