//! READ requests. A job keeps what is left to send; its packets are made when there is room for
//! them.
use super::reply::ReadJob;
use super::{Answer, Executed, INVALID, NO_ACCESS, Outcome, Responder};
use crate::Psn;
use crate::input::Env;
use crate::memory::RemoteAccess;
use crate::wire::{Headers, Reth};

/// Most PSNs of one READ: half of the largest distance of two PSNs.
pub(super) const MOST_PACKETS: u32 = 1 << 22;

impl Responder {
    pub(super) fn execute_read(&mut self, headers: &Headers, env: &mut Env<'_>) -> Outcome {
        let Some(reth) = headers.reth else { return INVALID };
        let packets = self.packets_of(reth.dma_bytes);
        let is_full = self.replies.answers >= self.max_rd_atomic;
        if !self.access.remote_read || is_full || packets > MOST_PACKETS {
            return INVALID;
        }
        let bytes = u64::from(reth.dma_bytes);
        let allowed = bytes == 0
            || env.memory.check_remote(RemoteAccess::Read, reth.rkey, reth.va, bytes).is_ok();
        if !allowed {
            return NO_ACCESS;
        }
        self.flush_ack();
        self.count_message();
        let psn = headers.bth.psn;
        self.keep_result(Executed {
            first: psn,
            packets,
            what: Answer::Read { va: reth.va, rkey: reth.rkey, bytes: reth.dma_bytes },
        });
        self.replies.read(self.read_job(psn, reth));
        Outcome::Done(packets)
    }

    /// Returns the job for a READ with this PSN.
    pub(super) fn read_job(&self, psn: Psn, Reth { va, rkey, dma_bytes: left }: Reth) -> ReadJob {
        ReadJob { psn, va, rkey, left, begun: false, msn: self.msn }
    }

    /// Returns the number of responses to a READ of this length.
    pub(super) fn packets_of(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.mtu as u32).max(1)
    }
}
