//! Sending answers: SACKs first, then the queue in order. READ data is sent packet by packet,
//! paced, in at most half of a batch, so that our requests are not starved.
use super::Responder;
use super::reply::{ReadJob, Reply};
use crate::Psn;
use crate::counters::Counters;
use crate::memory::{Memory, RemoteAccess};
use crate::pacing::Pacer;
use crate::transmit::{Piece, TransmitBatch};
use crate::wire::{Aeth, Bth, Headers, NakCode, Opcode, Syndrome, pad_bytes};
use catchment_verbs_types::WcStatus;

/// The outcome of one READ response.
enum Made {
    /// More responses follow.
    More,
    /// It was the last one.
    Last,
    /// The memory is gone.
    Gone,
}

impl Responder {
    /// Fills the batch with answers. Returns a status if the connection ends.
    pub(crate) fn transmit(
        &mut self,
        now_ns: u64,
        memory: &dyn Memory,
        pacer: &mut Pacer,
        batch: &mut TransmitBatch,
        counters: &mut Counters,
    ) -> Option<WcStatus> {
        self.paced = false;
        self.transmit_challenge_answer(batch);
        self.transmit_sack(batch);
        let mut data_left = (batch.max_packets() / 2).max(1);
        while !batch.is_full() {
            match self.replies.front_mut().copied()? {
                Reply::Acknowledge { psn, syndrome, msn } => {
                    batch.push(&self.answer(Opcode::RcAcknowledge, psn, syndrome, msn), |_| {});
                    self.replies.pop();
                }
                Reply::Atomic { psn, before, msn, .. } => {
                    let opcode = Opcode::RcAtomicAcknowledge;
                    let mut headers = self.answer(opcode, psn, Syndrome::ACK, msn);
                    headers.atomic_ack = Some(before);
                    batch.push(&headers, |_| {});
                    self.replies.pop();
                }
                Reply::Read { job, repeated } => {
                    if data_left == 0 {
                        return None;
                    }
                    if !pacer.may_send(now_ns) {
                        self.paced = true;
                        return None;
                    }
                    data_left -= 1;
                    match self.transmit_response(job, memory, batch) {
                        Made::More => {}
                        Made::Last => self.replies.pop(),
                        Made::Gone => return Some(self.memory_gone(job, counters)),
                    }
                    count_data(now_ns, pacer, batch, counters);
                    counters.responses_repeated += u64::from(repeated);
                }
            }
        }
        None
    }

    pub(super) fn answer(&self, opcode: Opcode, psn: Psn, syndrome: Syndrome, msn: u32) -> Headers {
        let mut headers = Headers::new(Bth::new(opcode, self.dest_qpn, psn));
        headers.aeth = Some(Aeth { syndrome, msn });
        headers
    }

    fn transmit_response(
        &mut self,
        job: ReadJob,
        memory: &dyn Memory,
        batch: &mut TransmitBatch,
    ) -> Made {
        let bytes = job.left.min(self.mtu as u32);
        let allowed = bytes == 0
            || memory.check_remote(RemoteAccess::Read, job.rkey, job.va, u64::from(bytes)).is_ok();
        if !allowed {
            return Made::Gone;
        }
        let is_last = bytes == job.left;
        let opcode = match (job.begun, is_last) {
            (false, true) => Opcode::RcReadResponseOnly,
            (false, false) => Opcode::RcReadResponseFirst,
            (true, false) => Opcode::RcReadResponseMiddle,
            (true, true) => Opcode::RcReadResponseLast,
        };
        let mut headers = self.answer(opcode, job.psn, Syndrome::ACK, job.msn);
        headers.bth.pad = pad_bytes(bytes as usize);
        let (rkey, va) = (job.rkey, job.va);
        batch.push(&headers, |out| out.piece(Piece::Remote { rkey, va, bytes }));
        if is_last {
            return Made::Last;
        }
        if let Some(Reply::Read { job, .. }) = self.replies.front_mut() {
            job.begun = true;
            job.psn = job.psn.next();
            job.va = job.va.wrapping_add(u64::from(bytes));
            job.left -= bytes;
        }
        Made::More
    }

    /// Refuses the rest of a READ whose region was deregistered meanwhile.
    fn memory_gone(&mut self, job: ReadJob, counters: &mut Counters) -> WcStatus {
        self.replies.keep_acknowledgements();
        self.replies.acknowledge(job.psn, Syndrome::Nak(NakCode::RemoteAccess), self.msn);
        self.refusal.nak = Some((job.psn, NakCode::RemoteAccess));
        counters.fatal_naks_sent += 1;
        WcStatus::RemoteAccess
    }

    fn transmit_sack(&mut self, batch: &mut TransmitBatch) {
        if !self.sack_due || batch.is_full() {
            return;
        }
        self.sack_due = false;
        let mut headers = self.answer(Opcode::Sack, self.expected.sub(1), Syndrome::ACK, self.msn);
        let Some(reorder) = &self.reorder else {
            // The gap closed meanwhile: an ACK is queued.
            return;
        };
        reorder.sacks(self.mtu, |payload| {
            if !batch.is_full() {
                headers.bth.pad = pad_bytes(payload.len());
                batch.push(&headers, |out| out.copy(payload));
            }
        });
    }
}

fn count_data(now_ns: u64, pacer: &mut Pacer, batch: &TransmitBatch, counters: &mut Counters) {
    if let Some(packet) = batch.packets().last() {
        pacer.on_sent(now_ns, packet.udp_bytes());
        counters.packets_sent += 1;
        counters.bytes_sent += packet.payload_bytes() as u64;
    }
}
