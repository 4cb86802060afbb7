//! Receives for notices, reposted in lists.
use super::notice::NoticeBytes;
use super::{NOTICE_BYTES, receive_list, receives};
use crate::shared::all_slots;
use crate::{EndError, PeerFault, Port, SetupError};
use catchment_verbs::{Completion, Cq, Mr, PostError, Qp, RecvWr, Sge, WcOpcode};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;

/// Receives posted with one call at most.
const CHUNK: usize = 16;
const EMPTY: Sge = Sge { addr: 0, bytes: 0, lkey: 0 };

/// Buffers for notices. One thread takes notices, and one at a time, possibly another, posts.
pub(super) struct Receives {
    cq: Arc<dyn Cq>,
    buffers: Arc<dyn Mr>,
    /// Buffers whose notices were read.
    read: ArrayQueue<u32>,
    list: usize,
}

impl Receives {
    /// Posts the first receives of an end with so many slots.
    pub(super) fn new(port: &mut Port, blocks: u32) -> Result<Self, SetupError> {
        let receives = Self {
            cq: Arc::clone(&port.recv_cq),
            buffers: port.mr(0, "notices", 0)?,
            read: all_slots(receives(blocks)),
            list: receive_list(blocks) as usize,
        };
        receives.post(&mut *port.qp)?;
        Ok(receives)
    }

    /// Returns whether a list of them should be reposted.
    #[inline]
    pub(super) fn are_due(&self) -> bool {
        self.read.len() >= self.list
    }

    pub(super) fn post(&self, qp: &mut dyn Qp) -> Result<(), PostError> {
        while !self.read.is_empty() {
            self.post_chunk(qp)?;
        }
        Ok(())
    }

    fn post_chunk(&self, qp: &mut dyn Qp) -> Result<(), PostError> {
        let mut sges = [EMPTY; CHUNK];
        let mut count = 0;
        while count < CHUNK
            && let Some(buffer) = self.read.pop()
        {
            sges[count] = Sge {
                addr: self.buffers.addr() + u64::from(buffer * NOTICE_BYTES),
                bytes: NOTICE_BYTES,
                lkey: self.buffers.lkey(),
            };
            count += 1;
        }
        let mut list = [RecvWr { wr_id: 0, sges: &[] }; CHUNK];
        for (receive, sge) in list.iter_mut().zip(&sges[..count]) {
            *receive = RecvWr {
                wr_id: (sge.addr - self.buffers.addr()) / u64::from(NOTICE_BYTES),
                sges: std::slice::from_ref(sge),
            };
        }
        qp.post_recv(&list[..count])
    }

    #[inline]
    pub(super) fn take(&self) -> Result<Option<NoticeBytes>, EndError> {
        let mut out = [Completion::EMPTY];
        if self.cq.poll(&mut out)? == 0 {
            return Ok(None);
        }
        let [completion] = out;
        let success = completion.result.map_err(EndError::from)?;
        let is_notice =
            success.opcode == WcOpcode::Recv && success.bytes == u64::from(NOTICE_BYTES);
        if !is_notice {
            return Err(PeerFault::Message(success.bytes).into());
        }
        let buffer = completion.wr_id as u32;
        let mut notice = [0; NOTICE_BYTES as usize];
        let offset = (buffer * NOTICE_BYTES) as usize;
        let memory = self.buffers.region().whole();
        memory.read_at(offset, &mut notice).expect("a buffer that was posted");
        let _ = self.read.push(buffer);
        Ok(Some(notice))
    }
}
