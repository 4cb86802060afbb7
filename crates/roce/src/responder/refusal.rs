//! Between two of our stacks: a NAK that ended the connection is said again, for a requester that did not get
//! it, and for one that challenges it because anybody may have sent it.
use super::Responder;
use crate::Psn;
use crate::input::Arrival;
use crate::transmit::TransmitBatch;
use crate::wire::{NakCode, Opcode, Syndrome};

/// Bytes of the number of a challenge.
const NUMBER_BYTES: usize = 8;

/// What was refused, and the challenge that is not answered yet.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    pub(super) nak: Option<(Psn, NakCode)>,
    challenge: Option<[u8; NUMBER_BYTES]>,
}

impl Responder {
    /// Notes a challenge; returns whether it is one.
    pub(super) fn on_challenge(&mut self, payload: &[u8]) -> bool {
        let number = payload.try_into().ok();
        self.refusal.challenge = number.or(self.refusal.challenge);
        number.is_some()
    }

    /// Handles a packet after the connection has ended. Returns whether it is answered: a challenge, and
    /// the request that was refused.
    pub(crate) fn on_late(&mut self, arrival: &Arrival<'_>) -> bool {
        let Some((psn, code)) = self.refusal.nak.filter(|_| self.challenges) else { return false };
        let bth = &arrival.headers.bth;
        if bth.opcode == Opcode::Challenge {
            return self.on_challenge(arrival.payload);
        }
        let is_refused = bth.opcode.is_request() && bth.psn == psn;
        if is_refused {
            self.reply(Syndrome::Nak(code), psn);
        }
        is_refused
    }

    /// Adds the answer to a challenge: the refusal, or that there was none.
    pub(super) fn transmit_challenge_answer(&mut self, batch: &mut TransmitBatch) {
        if batch.is_full() {
            return;
        }
        let Some(number) = self.refusal.challenge.take() else { return };
        let (psn, syndrome) = match self.refusal.nak {
            Some((psn, code)) => (psn, Syndrome::Nak(code)),
            None => (self.expected.sub(1), Syndrome::ACK),
        };
        let headers = self.answer(Opcode::ChallengeAnswer, psn, syndrome, self.msn);
        batch.push(&headers, |out| out.copy(&number));
    }
}
