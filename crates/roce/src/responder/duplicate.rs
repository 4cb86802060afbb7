//! Duplicate requests (IBTA volume 1, 9.7.4.5.1): only READs are executed twice.
use super::{Answer, Executed, Responder};
use crate::Psn;
use crate::input::Env;
use crate::wire::{Headers, Operation, Reth, Syndrome};

impl Responder {
    pub(super) fn on_duplicate(&mut self, headers: &Headers, env: &mut Env<'_>) {
        env.counters.duplicates += 1;
        let psn = headers.bth.psn;
        match headers.bth.opcode.operation() {
            Operation::ReadRequest => {
                if let Some(reth) = headers.reth {
                    self.read_again(psn, reth);
                }
            }
            Operation::CompareSwap | Operation::FetchAdd => self.answer_again(psn),
            Operation::Send
            | Operation::Write
            | Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::Cnp
            | Operation::Sack
            | Operation::Challenge
            | Operation::ChallengeAnswer => self.acknowledge_again(psn),
        }
    }

    /// Acknowledges what was executed, but no READ or atomic after the duplicate: its answer may be
    /// lost, and Linux's rdma_rxe takes an ACK with its PSN for that answer, without data.
    fn acknowledge_again(&mut self, psn: Psn) {
        let mut answers = self.results.iter().map(|executed| executed.first);
        let is_later =
            |first: &Psn| first.distance_from(psn) > 0 && self.expected.distance_from(*first) > 0;
        match answers.find(is_later) {
            Some(first) => self.reply(Syndrome::ACK, first.sub(1)),
            None => self.ack_due = true,
        }
    }

    fn executed(&self, psn: Psn) -> Option<&Executed> {
        let mut results = self.results.iter().rev();
        results.find(|executed| {
            let index = psn.distance_from(executed.first);
            index >= 0 && index.cast_unsigned() < executed.packets
        })
    }

    /// Executes a READ again, all or a part of it. The range must be in that of the original
    /// request, at the offset of its PSN. Otherwise there is no answer: the request contradicts the
    /// original, or is forged.
    fn read_again(&mut self, psn: Psn, reth: Reth) {
        let Some(&Executed { first, packets, what: Answer::Read { va, rkey, bytes } }) =
            self.executed(psn)
        else {
            return;
        };
        let index = psn.distance_from(first).cast_unsigned();
        let offset = u64::from(index) * self.mtu as u64;
        let fits = reth.rkey == rkey
            && reth.va == va.wrapping_add(offset)
            && offset + u64::from(reth.dma_bytes) <= u64::from(bytes)
            && index + self.packets_of(reth.dma_bytes) <= packets;
        if !fits {
            return;
        }
        self.flush_ack();
        self.replies.read_again(self.read_job(psn, reth));
    }

    /// Sends the saved result of an atomic again. One that is too old is not answered.
    fn answer_again(&mut self, psn: Psn) {
        if let Some(&Executed { what: Answer::Atomic { before }, .. }) = self.executed(psn) {
            self.flush_ack();
            self.replies.atomic_again(psn, before, self.msn);
        }
    }
}
