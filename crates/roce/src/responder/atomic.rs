//! Compare-and-swap and fetch-and-add.
use super::{Answer, Executed, INVALID, NO_ACCESS, Outcome, Responder};
use crate::input::Env;
use crate::memory::{AtomicOp, RemoteAccess};
use crate::wire::{Headers, Operation};

impl Responder {
    pub(super) fn execute_atomic(&mut self, headers: &Headers, env: &mut Env<'_>) -> Outcome {
        let Some(atomic) = headers.atomic else { return INVALID };
        let is_full = self.replies.answers >= self.max_rd_atomic;
        if !self.access.remote_atomic || is_full {
            return INVALID;
        }
        if env.memory.check_remote(RemoteAccess::Atomic, atomic.rkey, atomic.va, 8).is_err() {
            return NO_ACCESS;
        }
        if !atomic.va.is_multiple_of(8) {
            return INVALID;
        }
        let is_add = headers.bth.opcode.operation() == Operation::FetchAdd;
        let op = if is_add {
            AtomicOp::FetchAdd(atomic.swap_or_add)
        } else {
            AtomicOp::CompareSwap { compare: atomic.compare, swap: atomic.swap_or_add }
        };
        let Ok(before) = env.memory.atomic(atomic.rkey, atomic.va, op) else { return NO_ACCESS };
        self.flush_ack();
        self.count_message();
        let psn = headers.bth.psn;
        self.keep_result(Executed { first: psn, packets: 1, what: Answer::Atomic { before } });
        self.replies.atomic(psn, before, self.msn);
        Outcome::Done(1)
    }
}
