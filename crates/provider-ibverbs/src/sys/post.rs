//! Posting: requests of the verbs vocabulary, a few at a time, as linked lists of the library.
use super::types::*;
use super::{AddressHandle, QueuePair};
use catchment_verbs::{Payload, RecvWr, RemoteAddr, SendOp, SendWr, Sge};
use std::ffi::{c_int, c_uint};
use std::mem::{MaybeUninit, offset_of, size_of};
use std::{io, ptr};

const BATCH: usize = 16;

// A scatter-gather element of the vocabulary is one of the library.
const _: () = {
    assert!(size_of::<Sge>() == size_of::<ibv_sge>());
    assert!(offset_of!(Sge, addr) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Sge, bytes) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
};

/// The device refused a request: which one, and the error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) index: usize,
    pub(crate) errno: i32,
}

impl QueuePair {
    /// Posts requests to the device, under numbers that count up from `first_id` in steps of
    /// `step`, wrapping.
    ///
    /// The device checks keys, bounds and rights of the memory that the elements name; inline data
    /// it copies before this returns.
    pub(crate) fn post_send(
        &self,
        requests: &[SendWr<'_>],
        ids: (u64, u64),
    ) -> Result<(), Refused> {
        in_batches(requests, ids, |batch, ids, _| self.post_sends(batch, ids, |_, _| {}))
    }

    /// Like [`QueuePair::post_send`], for datagrams: `handle` returns the address handle of a
    /// request by its index. It must live until the request is done.
    pub(crate) fn post_datagrams<'a>(
        &self,
        requests: &[SendWr<'_>],
        ids: (u64, u64),
        handle: impl Fn(usize) -> &'a AddressHandle,
    ) -> Result<(), Refused> {
        in_batches(requests, ids, |batch, ids, start| {
            self.post_sends(batch, ids, |n, place| {
                if let Some(to) = batch[n].op.destination() {
                    place.wr.ud = send_wr_ud {
                        ah: handle(start + n).raw(),
                        remote_qpn: to.qpn,
                        remote_qkey: to.qkey,
                    };
                }
            })
        })
    }

    #[inline]
    fn post_sends(
        &self,
        requests: &[SendWr<'_>],
        (first_id, step): (u64, u64),
        complete: impl Fn(usize, &mut ibv_send_wr),
    ) -> Result<(), Refused> {
        let mut inline = [const { MaybeUninit::uninit() }; BATCH];
        let mut list = [const { MaybeUninit::uninit() }; BATCH];
        let last = requests.len() - 1;
        let start = list.as_mut_ptr().cast::<ibv_send_wr>();
        let places = list.iter_mut().zip(&mut inline);
        for (n, (request, (place, sge))) in requests.iter().zip(places).enumerate() {
            let written = place.write(ibv_send_wr {
                wr_id: first_id.wrapping_add(step.wrapping_mul(n as u64)),
                next: next(start, n, last),
                ..send(request, sge)
            });
            complete(n, written);
        }
        let mut bad: *mut ibv_send_wr = ptr::null_mut();
        let post = self.device().operations.post_send;
        // SAFETY: as many requests as the list has links are written; they, their elements and the
        // inline data live until the call has returned, and the library keeps no pointer to them.
        let errno = unsafe { post(self.raw(), start, &raw mut bad) };
        refused(errno, (bad as usize).wrapping_sub(start as usize) / size_of::<ibv_send_wr>(), last)
    }

    /// Posts receives to the device, under numbers that count up from `first_id` in steps of
    /// `step`, wrapping.
    pub(crate) fn post_recv(
        &self,
        requests: &[RecvWr<'_>],
        ids: (u64, u64),
    ) -> Result<(), Refused> {
        in_batches(requests, ids, |batch, ids, _| self.post_recvs(batch, ids))
    }

    fn post_recvs(
        &self,
        requests: &[RecvWr<'_>],
        (first_id, step): (u64, u64),
    ) -> Result<(), Refused> {
        let mut list = [const { MaybeUninit::uninit() }; BATCH];
        let last = requests.len() - 1;
        let start = list.as_mut_ptr().cast::<ibv_recv_wr>();
        for (n, (request, place)) in requests.iter().zip(&mut list).enumerate() {
            let (sg_list, num_sge) = elements(request.sges);
            place.write(ibv_recv_wr {
                wr_id: first_id.wrapping_add(step.wrapping_mul(n as u64)),
                next: next(start, n, last),
                sg_list,
                num_sge,
            });
        }
        let mut bad: *mut ibv_recv_wr = ptr::null_mut();
        let post = self.device().operations.post_recv;
        // SAFETY: as for sends.
        let errno = unsafe { post(self.raw(), start, &raw mut bad) };
        refused(errno, (bad as usize).wrapping_sub(start as usize) / size_of::<ibv_recv_wr>(), last)
    }

    /// Makes the kernel's Soft-RoCE process the send queue again: the command that its posting ends
    /// with, without a new request (`rdma/ib_user_verbs.h`).
    pub(crate) fn ring_soft_doorbell(&self) -> io::Result<()> {
        const POST_SEND: u32 = 28;
        let mut response = [0u32; 1];
        let command = PostSendCommand {
            command: POST_SEND,
            in_words: (size_of::<PostSendCommand>() / 4) as u16,
            out_words: 1,
            response: (&raw mut response) as u64,
            qp_handle: self.handle(),
            wr_count: 0,
            sge_count: 0,
            wqe_bytes: size_of::<ibv_send_wr>() as u32,
        };
        // SAFETY: the structure consists of numbers without gaps between them.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                (&raw const command).cast::<u8>(),
                size_of::<PostSendCommand>(),
            )
        };
        // The response outlives the call, which writes at most one word.
        let written = rustix::io::write(self.command_fd(), bytes)?;
        std::hint::black_box(&mut response);
        if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// `ib_uverbs_cmd_hdr` and `ib_uverbs_post_send`.
#[repr(C)]
struct PostSendCommand {
    command: u32,
    in_words: u16,
    out_words: u16,
    response: u64,
    qp_handle: u32,
    wr_count: u32,
    sge_count: u32,
    wqe_bytes: u32,
}

const _: () = assert!(size_of::<PostSendCommand>() == 32);

/// Posts requests a list at a time, each under the numbers that follow those of the list before;
/// with the index of its first.
#[inline]
fn in_batches<T>(
    requests: &[T],
    (first_id, step): (u64, u64),
    post: impl Fn(&[T], (u64, u64), usize) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let mut id = first_id;
    for (n, batch) in requests.chunks(BATCH).enumerate() {
        post(batch, (id, step), n * BATCH)
            .map_err(|refused| Refused { index: n * BATCH + refused.index, ..refused })?;
        id = id.wrapping_add(step.wrapping_mul(batch.len() as u64));
    }
    Ok(())
}

/// Converts the result of posting: an error number, and a pointer to the request at `index`.
fn refused(errno: c_int, index: usize, last: usize) -> Result<(), Refused> {
    if errno == 0 {
        return Ok(());
    }
    let errno =
        if errno < 0 { io::Error::last_os_error().raw_os_error().unwrap_or(-errno) } else { errno };
    // A driver that returns no pointer to the request has presumably refused the first.
    Err(Refused { index: if index <= last { index } else { 0 }, errno })
}

fn next<T>(start: *mut T, n: usize, last: usize) -> *mut T {
    if n == last { ptr::null_mut() } else { start.wrapping_add(n + 1) }
}

/// Returns the elements of a request. The library only reads them, whatever its header declares.
fn elements(sges: &[Sge]) -> (*mut ibv_sge, c_int) {
    (sges.as_ptr().cast_mut().cast(), c_int::try_from(sges.len()).unwrap_or(c_int::MAX))
}

/// Returns one request, not linked yet. Inline data is named by `inline`.
#[inline]
fn send(request: &SendWr<'_>, inline: &mut MaybeUninit<ibv_sge>) -> ibv_send_wr {
    let (sg_list, num_sge, is_inline) = match request.payload {
        Payload::Sges(sges) => {
            let (sg_list, num_sge) = elements(sges);
            (sg_list, num_sge, 0)
        }
        Payload::Inline([]) => (ptr::null_mut(), 0, 0),
        Payload::Inline(data) => {
            let sge = inline.write(ibv_sge {
                addr: data.as_ptr() as u64,
                length: data.len() as u32,
                lkey: 0,
            });
            (ptr::from_mut(sge), 1, IBV_SEND_INLINE)
        }
    };
    let (opcode, imm_data, wr) = operation(&request.op);
    ibv_send_wr {
        sg_list,
        num_sge,
        opcode,
        send_flags: is_inline
            | flag(request.signaled, IBV_SEND_SIGNALED)
            | flag(request.fence, IBV_SEND_FENCE)
            | flag(request.solicited, IBV_SEND_SOLICITED),
        imm_data,
        wr,
        ..ibv_send_wr::EMPTY
    }
}

#[inline]
fn flag(set: bool, flag: c_uint) -> c_uint {
    if set { flag } else { 0 }
}

#[inline]
fn operation(op: &SendOp) -> (c_uint, u32, send_wr_op) {
    let at = |remote: RemoteAddr| send_wr_op {
        rdma: send_wr_rdma { remote_addr: remote.addr, rkey: remote.rkey },
    };
    let atomic = |remote: RemoteAddr, compare_add, swap| send_wr_op {
        atomic: send_wr_atomic { remote_addr: remote.addr, compare_add, swap, rkey: remote.rkey },
    };
    match *op {
        SendOp::Write(remote) => (IBV_WR_RDMA_WRITE, 0, at(remote)),
        SendOp::WriteImm(remote, imm) => (IBV_WR_RDMA_WRITE_WITH_IMM, imm.to_be(), at(remote)),
        SendOp::Read(remote) => (IBV_WR_RDMA_READ, 0, at(remote)),
        // The caller, which has the address handle, fills in the destination of a datagram.
        SendOp::Send | SendOp::SendTo(_) => (IBV_WR_SEND, 0, ibv_send_wr::EMPTY.wr),
        SendOp::SendImm(imm) | SendOp::SendImmTo(_, imm) => {
            (IBV_WR_SEND_WITH_IMM, imm.to_be(), ibv_send_wr::EMPTY.wr)
        }
        SendOp::SendInvalidate(rkey) => (IBV_WR_SEND_WITH_INV, rkey, ibv_send_wr::EMPTY.wr),
        SendOp::CompareSwap { remote, compare, swap } => {
            (IBV_WR_ATOMIC_CMP_AND_SWP, 0, atomic(remote, compare, swap))
        }
        SendOp::FetchAdd { remote, add } => {
            (IBV_WR_ATOMIC_FETCH_AND_ADD, 0, atomic(remote, add, 0))
        }
    }
}
