//! Completion queues, and the channels to sleep on for them.
use crate::cores::CqCore;
use crate::device::Device;
use crate::handles::IbverbsContext;
use crate::slots::RequestId;
use crate::sys::types::*;
use crate::sys::{self, CompletionQueue};
use catchment_verbs::event::{self, deadline, wait_readable};
use catchment_verbs::{
    Completion, CompletionChannel, Cq, CqError, Failure, Success, WcOpcode, WcStatus,
};
use rustix::event::epoll;
use std::any::Any;
use std::ffi::c_uint;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Completions that one call takes from the device.
const BATCH: usize = 32;

/// The application's completion queue.
pub(crate) struct IbCq {
    pub(crate) core: Arc<CqCore>,
    /// A queue keeps the device open.
    pub(crate) context: IbverbsContext,
}

impl IbCq {
    pub(crate) fn new(
        context: IbverbsContext,
        capacity: u32,
        channel: Option<Arc<sys::Channel>>,
    ) -> io::Result<Self> {
        let device = context.device();
        let (tag, vector) = (device.next_cq(), device.next_vector());
        let handle = Arc::clone(&device.handle);
        let queue = CompletionQueue::new(handle, channel, (capacity, vector, tag))?;
        let core = CqCore::new(queue, tag);
        device.register_cq(&core);
        Ok(Self { core, context })
    }

    fn device(&self) -> &Device {
        self.context.device()
    }

    /// Translates a completion of the device; returns `None` if the request was forgotten.
    #[inline]
    fn translate(&self, wc: &ibv_wc) -> Option<Completion> {
        let id = RequestId(wc.wr_id);
        let slot = self.device().slots.of(id)?;
        let (wr_id, bytes) = slot.queue(id.is_recv()).complete(id);
        let result = if wc.status == IBV_WC_SUCCESS {
            Ok(success(wc, (id.is_recv(), slot.is_datagram()), bytes))
        } else {
            let failure = Failure { status: status(wc.status), vendor_err: wc.vendor_err };
            self.device().request_failed(slot, &failure, id.is_recv());
            Err(failure)
        };
        Some(Completion { wr_id, qpn: wc.qp_num, result })
    }

    /// Once the device is gone: reports what is outstanding as flushed.
    #[cold]
    fn flush(&self, out: &mut [Completion]) -> usize {
        let device = self.device();
        let mut taken = 0;
        for slot in self.core.queue_pairs().into_iter().filter_map(|at| device.slots.get(at)) {
            let cqs = slot.control.lock().cqs;
            for is_recv in [false, true] {
                if cqs[usize::from(is_recv)] != self.core.tag {
                    continue;
                }
                while taken < out.len()
                    && let Some(wr_id) = slot.queue(is_recv).flush_one()
                {
                    out[taken] = Completion {
                        wr_id,
                        qpn: slot.qpn(),
                        result: Err(WcStatus::Flushed.into()),
                    };
                    taken += 1;
                }
            }
        }
        taken
    }
}

impl Drop for IbCq {
    fn drop(&mut self) {
        self.device().forget_cq(self.core.tag);
    }
}

impl Cq for IbCq {
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        if self.core.is_overrun() {
            return Err(CqError::Overrun(self.capacity()));
        }
        if self.device().is_gone() {
            return Ok(self.flush(out));
        }
        let mut taken = 0;
        while taken < out.len() {
            let mut batch = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            let asked = (out.len() - taken).min(BATCH);
            let polled = self.core.queue.poll(&mut batch[..asked]);
            let Ok(polled) = polled else {
                self.device().overrun(self.core.tag);
                return Err(CqError::Broken);
            };
            for completion in polled.iter().filter_map(|wc| self.translate(wc)) {
                out[taken] = completion;
                taken += 1;
            }
            if polled.len() < asked {
                break;
            }
        }
        Ok(taken)
    }

    fn req_notify(&self, solicited_only: bool) {
        self.core.queue.req_notify(solicited_only);
    }

    fn capacity(&self) -> u32 {
        self.core.queue.capacity()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns what a successful request did. Most sends have no length, so `sent` is what was posted.
#[inline]
fn success(wc: &ibv_wc, (is_recv, is_datagram): (bool, bool), sent: u64) -> Success {
    if is_recv {
        let opcode = if wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM {
            WcOpcode::RecvWriteImm
        } else {
            WcOpcode::Recv
        };
        let plain = Success::plain(opcode, wc.byte_len.into());
        return if wc.wc_flags == 0 { plain } else { with_flags(plain, wc, is_datagram) };
    }
    let opcode = match wc.opcode {
        IBV_WC_RDMA_WRITE => WcOpcode::Write,
        IBV_WC_RDMA_READ => WcOpcode::Read,
        IBV_WC_COMP_SWAP => WcOpcode::CompareSwap,
        IBV_WC_FETCH_ADD => WcOpcode::FetchAdd,
        // IBV_WC_SEND: no other request is ever posted.
        _ => WcOpcode::Send,
    };
    Success::plain(opcode, sent)
}

/// Returns what a message carried besides its bytes, and the sender of a datagram. A datagram over
/// RoCE always has a network header, so its flags are never empty.
#[inline]
fn with_flags(plain: Success, wc: &ibv_wc, is_datagram: bool) -> Success {
    let with_imm = wc.wc_flags & IBV_WC_WITH_IMM != 0;
    let success = plain.with_imm(with_imm.then(|| u32::from_be(wc.imm_data)));
    if wc.wc_flags & IBV_WC_WITH_INV != 0 {
        success.invalidating(wc.imm_data)
    } else if is_datagram {
        success.from_qpn(wc.src_qp)
    } else {
        success
    }
}

fn status(status: c_uint) -> WcStatus {
    match status {
        IBV_WC_LOC_LEN_ERR => WcStatus::LocalLength,
        IBV_WC_LOC_QP_OP_ERR => WcStatus::LocalQpOperation,
        IBV_WC_LOC_PROT_ERR | IBV_WC_LOC_ACCESS_ERR => WcStatus::LocalProtection,
        IBV_WC_WR_FLUSH_ERR => WcStatus::Flushed,
        IBV_WC_BAD_RESP_ERR => WcStatus::BadResponse,
        IBV_WC_REM_INV_REQ_ERR => WcStatus::RemoteInvalidRequest,
        IBV_WC_REM_ACCESS_ERR => WcStatus::RemoteAccess,
        IBV_WC_REM_OP_ERR => WcStatus::RemoteOperation,
        IBV_WC_RETRY_EXC_ERR => WcStatus::TransportRetryExceeded,
        IBV_WC_RNR_RETRY_EXC_ERR => WcStatus::RnrRetryExceeded,
        IBV_WC_GENERAL_ERR => WcStatus::General,
        other => WcStatus::Other(other),
    }
}

/// A completion channel: the device's, the end of the device, and a counter to wake the sleeper,
/// behind one descriptor.
pub(crate) struct IbChannel {
    pub(crate) channel: Arc<sys::Channel>,
    all: OwnedFd,
    woken: OwnedFd,
    context: IbverbsContext,
}

impl IbChannel {
    pub(crate) fn new(context: IbverbsContext) -> io::Result<Self> {
        let device = context.device();
        let channel = Arc::new(sys::Channel::new(Arc::clone(&device.handle))?);
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let woken = event::event_fd()?;
        let (any, readable) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        for fd in [channel.fd().as_fd(), device.gone_bell.as_fd(), woken.as_fd()] {
            epoll::add(&all, fd, any, readable)?;
        }
        Ok(Self { channel, all, woken, context })
    }

    /// Returns whether it belongs to this device.
    pub(crate) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(self.context.device(), device)
    }

    fn take(&self) -> io::Result<bool> {
        if self.context.device().is_gone() {
            return Ok(true);
        }
        let mut any = event::take_rings(&self.woken);
        loop {
            match self.channel.take_event() {
                Ok(true) => any = true,
                Ok(false) => return Ok(any),
                Err(error) => {
                    self.context.device().lose(&format!("its completion channel failed: {error}"));
                    return Ok(true);
                }
            }
        }
    }
}

impl CompletionChannel for IbChannel {
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        if self.take()? {
            return Ok(true);
        }
        let deadline = deadline(timeout);
        while wait_readable(self.all.as_fd(), deadline)? {
            // Another thread that waits on the same channel may have been faster.
            if self.take()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn wake(&self) {
        event::ring(&self.woken);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
