//! Requests after a gap: refused with a NAK, or kept until it is filled (IBTA volume 1, 9.7.4.1.1).
use super::Responder;
use crate::input::{Arrival, Env};
use crate::recovery::reorder::Reorder;
use crate::wire::{NakCode, Syndrome};
use catchment_verbs_types::WcStatus;

/// Most packets kept after a gap without a SACK.
const SACK_INTERVAL: u32 = 16;

impl Responder {
    pub(super) fn on_early(&mut self, distance: u32, arrival: &Arrival<'_>, env: &mut Env<'_>) {
        env.counters.out_of_order += 1;
        if self.selective {
            self.keep(distance, arrival, env);
        } else if !self.nak_sent {
            self.nak_sent = true;
            self.ack_due = false;
            self.replies.acknowledge(self.expected, Syndrome::Nak(NakCode::PsnSequence), self.msn);
            env.counters.sequence_naks_sent += 1;
        }
    }

    /// Executes the packets kept after a filled gap, up to the next gap.
    pub(super) fn feed(&mut self, env: &mut Env<'_>) -> Option<WcStatus> {
        let mut reorder = self.reorder.take()?;
        let mut failed = None;
        while let Some(kept) = reorder.take_expected() {
            let before = self.expected;
            let taken = self.take(&kept.headers, reorder.payload(&kept), env);
            reorder.release(&kept);
            reorder.advance(self.expected.distance_from(before).max(0).cast_unsigned());
            match taken {
                Ok(true) => {}
                Ok(false) => break,
                Err(status) => {
                    failed = Some(status);
                    break;
                }
            }
        }
        // The requester waits for the gap to close.
        self.ack_due = true;
        if !reorder.is_empty() {
            self.reorder = Some(reorder);
        }
        failed
    }

    /// Keeps a packet until the gap before it is filled, and reports it: at once for a new gap,
    /// then for several packets together.
    fn keep(&mut self, distance: u32, arrival: &Arrival<'_>, env: &mut Env<'_>) {
        if distance >= self.window_packets {
            env.counters.dropped += 1;
            return;
        }
        let mtu = self.mtu;
        let is_new_gap = self.reorder.is_none();
        let reorder = self.reorder.get_or_insert_with(|| Box::new(Reorder::new(mtu)));
        let is_new = reorder.keep(distance, arrival.headers, arrival.payload);
        if reorder.is_empty() {
            self.reorder = None;
        }
        env.counters.reordered += u64::from(is_new);
        env.counters.duplicates += u64::from(!is_new);
        self.kept_since_sack += 1;
        let is_due = is_new_gap || arrival.headers.bth.ack_req || !is_new;
        if is_due || self.kept_since_sack >= SACK_INTERVAL {
            self.kept_since_sack = 0;
            self.ack_due = true;
        }
    }
}
