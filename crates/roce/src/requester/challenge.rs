//! NAKs that would end the connection, between two of our stacks: each is challenged before it is believed.
//!
//! Anyone who guesses addresses, ports, queue pair and a PSN in flight can forge a NAK. So the first one
//! makes the requester ask the peer, with a number that only those see who see the packets. A responder that
//! refused a request says so again, with that number; another one says that all is well. Meanwhile
//! everything goes on as if there had been no NAK, as after a challenge ACK of TCP (RFC 5961).
use super::Requester;
use crate::Psn;
use crate::input::{Arrival, Env};
use crate::transmit::TransmitBatch;
use crate::wire::{Aeth, Bth, Headers, NakCode, Opcode, Syndrome};
use catchment_verbs_types::WcStatus;

/// The challenges of a connection, one at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenges {
    secret: u64,
    asked: u64,
    open: Option<Challenge>,
}

/// A NAK that is in doubt.
#[derive(Clone, Copy, Debug)]
struct Challenge {
    psn: Psn,
    syndrome: Syndrome,
    number: u64,
    /// It is to be sent, for the first time or again.
    is_due: bool,
}

impl Challenges {
    pub(super) fn new(secret: u64) -> Self {
        Self { secret, asked: 0, open: None }
    }

    /// Opens a challenge, unless one is open.
    fn ask(&mut self, psn: Psn, syndrome: Syndrome) {
        if self.open.is_none() {
            self.asked += 1;
            let number = mix(self.secret.wrapping_add(mix(self.asked)));
            self.open = Some(Challenge { psn, syndrome, number, is_due: true });
        }
    }

    /// Sends the open challenge again: it or its answer may be lost.
    pub(super) fn ask_again(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_due = true;
        }
    }
}

/// Mixes a number so that whoever sees none of the results guesses none (the end of splitmix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Returns the status of the request that a NAK refuses; `None` if it only asks for packets again.
fn status_of(code: NakCode) -> Option<WcStatus> {
    match code {
        NakCode::PsnSequence => None,
        NakCode::RemoteAccess => Some(WcStatus::RemoteAccess),
        NakCode::RemoteOperation => Some(WcStatus::RemoteOperation),
        // Invalid RD is for reliable datagrams; here it also ends the connection.
        NakCode::InvalidRequest | NakCode::InvalidRd => Some(WcStatus::RemoteInvalidRequest),
    }
}

impl Requester {
    /// Returns whether the peer is one of ours, which forges nothing and answers challenges.
    pub(super) fn is_challenging(&self) -> bool {
        self.challenges.is_some()
    }

    /// Handles a NAK for `psn`, which is in flight.
    pub(super) fn on_nak(
        &mut self,
        psn: Psn,
        code: NakCode,
        env: &mut Env<'_>,
    ) -> Option<WcStatus> {
        let Some(status) = status_of(code) else {
            self.on_sequence_nak(psn, env);
            return None;
        };
        if let Some(challenges) = &mut self.challenges {
            challenges.ask(psn, Syndrome::Nak(code));
            return None;
        }
        self.deliver_before(psn, env);
        self.blame(psn, status)
    }

    /// Adds the challenge that is due.
    pub(super) fn transmit_challenge(&mut self, batch: &mut TransmitBatch) {
        let Some(open) = self.challenges.as_mut().and_then(|challenges| challenges.open.as_mut())
        else {
            return;
        };
        if !open.is_due || batch.is_full() {
            return;
        }
        open.is_due = false;
        let bth = Bth::new(Opcode::Challenge, self.shape.dest_qpn, open.psn);
        let headers =
            Headers { aeth: Some(Aeth { syndrome: open.syndrome, msn: 0 }), ..Headers::new(bth) };
        let number = open.number.to_be_bytes();
        batch.push(&headers, |out| out.copy(&number));
    }

    /// Handles the answer to a challenge: without its number it is none.
    pub(super) fn on_challenge_answer(
        &mut self,
        arrival: &Arrival<'_>,
        env: &mut Env<'_>,
    ) -> Option<WcStatus> {
        let open = self.challenges.as_ref().and_then(|challenges| challenges.open);
        if open.is_none_or(|open| arrival.payload != open.number.to_be_bytes()) {
            env.counters.dropped += 1;
            return None;
        }
        if let Some(challenges) = &mut self.challenges {
            challenges.open = None;
        }
        let psn = arrival.headers.bth.psn;
        let status = match arrival.headers.aeth?.syndrome {
            Syndrome::Nak(code) => status_of(code),
            Syndrome::Ack { .. } | Syndrome::Rnr { .. } | Syndrome::Other(_) => None,
        };
        let Some(status) = status else {
            env.counters.forged_naks += 1;
            return None;
        };
        if self.engine.covers(psn) {
            self.deliver_before(psn, env);
        }
        self.blame(psn, status)
    }
}
