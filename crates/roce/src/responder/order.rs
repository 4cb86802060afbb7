//! PSN order: a request is expected, early, or a duplicate (IBTA volume 1, 9.7.4.1.1).
use super::{Outcome, Responder};
use crate::input::{Arrival, Env};
use crate::wire::{Headers, Opcode, Syndrome};
use catchment_verbs_types::WcStatus;
use std::cmp::Ordering;

impl Responder {
    /// Handles a request packet. Returns a status if the connection ends.
    pub(crate) fn handle(&mut self, arrival: &Arrival<'_>, env: &mut Env<'_>) -> Option<WcStatus> {
        if arrival.headers.bth.opcode == Opcode::Challenge {
            env.counters.dropped += u64::from(!self.on_challenge(arrival.payload));
            return None;
        }
        let distance = arrival.headers.bth.psn.distance_from(self.expected);
        match distance.cmp(&0) {
            Ordering::Equal => self.on_expected(arrival.headers, arrival.payload, env),
            Ordering::Greater => {
                self.on_early(distance.cast_unsigned(), arrival, env);
                None
            }
            Ordering::Less => {
                self.on_duplicate(arrival.headers, env);
                None
            }
        }
    }

    fn on_expected(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        env: &mut Env<'_>,
    ) -> Option<WcStatus> {
        match self.take(headers, payload, env) {
            Ok(true) => self.feed(env),
            Ok(false) => None,
            Err(status) => Some(status),
        }
    }

    /// Executes the expected packet; returns false if no receive is posted.
    pub(super) fn take(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        env: &mut Env<'_>,
    ) -> Result<bool, WcStatus> {
        let psn = headers.bth.psn;
        match self.execute(headers, payload, env) {
            Outcome::Done(psns) => {
                self.nak_sent = false;
                self.expected = psn.add(psns);
                if let Some(reorder) = &mut self.reorder {
                    reorder.advance(psns);
                }
                // The answer of a READ or atomic is its acknowledgement.
                let opcode = headers.bth.opcode;
                let is_acknowledged = opcode.is_send() || opcode.is_write();
                self.ack_due |= headers.bth.ack_req && is_acknowledged;
                Ok(true)
            }
            Outcome::NotReady => {
                self.flush_ack();
                self.reply(Syndrome::Rnr { timer: self.rnr_timer }, psn);
                self.nak_sent = true;
                env.counters.rnr_naks_sent += 1;
                Ok(false)
            }
            Outcome::Fatal(code, status) => Err(self.refuse(psn, code, status, env)),
        }
    }
}
