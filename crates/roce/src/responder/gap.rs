//! Requests after a gap: refused with a NAK, or kept until it is filled (IBTA volume 1, 9.7.4.1.1).
//!
//! A packet after a gap may be forged: whoever guesses a number in the window need not see the stream.
//! So one that cannot be legal is dropped and not kept, and one that turns out to be illegal once the gap
//! is filled is dropped too: the requester sends its own again, which is then judged in order.
use super::Responder;
use super::message::{Write, length_fits};
use super::read::MOST_PACKETS;
use crate::input::{Arrival, Env};
use crate::memory::RemoteAccess;
use crate::recovery::reorder::Reorder;
use crate::wire::{Headers, NakCode, Operation, Reth, Syndrome};
use catchment_verbs_types::WcStatus;

/// Packets kept after a gap without a SACK, at most,
const SACK_INTERVAL: u32 = 16;
/// or, where what is kept reaches far, a part of that: a SACK has a bit for all of it.
const SACKS_IN_REACH: u32 = 128;

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
            if !self.continues(&kept.headers, reorder.payload(&kept).len(), env) {
                env.counters.dropped += 1;
                reorder.release(&kept);
                break;
            }
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
        let mtu = self.mtu;
        let has_room = distance < self.window_packets;
        if !has_room || !self.is_legal(arrival.headers, arrival.payload.len(), env) {
            env.counters.dropped += 1;
            return;
        }
        let is_new_gap = self.reorder.is_none();
        let reorder = self.reorder.get_or_insert_with(|| Box::new(Reorder::new(mtu)));
        let is_new = reorder.keep(distance, arrival.headers, arrival.payload);
        let interval = (reorder.reach() / SACKS_IN_REACH).max(SACK_INTERVAL);
        if reorder.is_empty() {
            self.reorder = None;
        }
        env.counters.reordered += u64::from(is_new);
        env.counters.duplicates += u64::from(!is_new);
        self.kept_since_sack += 1;
        let is_due = is_new_gap || arrival.headers.bth.ack_req || !is_new;
        if is_due || self.kept_since_sack >= interval {
            self.kept_since_sack = 0;
            self.ack_due = true;
        }
    }

    /// Returns whether a packet can be legal, whatever comes before it: rights, length, key and range.
    fn is_legal(&self, headers: &Headers, payload: usize, env: &Env<'_>) -> bool {
        let opcode = headers.bth.opcode;
        let reaches = |access, rkey, va, bytes| {
            bytes == 0 || env.memory.check_remote(access, rkey, va, bytes).is_ok()
        };
        let reaches_all =
            |access, reth: Reth| reaches(access, reth.rkey, reth.va, reth.dma_bytes.into());
        match opcode.operation() {
            Operation::Send => length_fits(opcode, payload, self.mtu),
            Operation::Write => {
                self.access.remote_write
                    && length_fits(opcode, payload, self.mtu)
                    && headers.reth.is_none_or(|reth| reaches_all(RemoteAccess::Write, reth))
            }
            Operation::ReadRequest => headers.reth.is_some_and(|reth| {
                self.access.remote_read
                    && self.packets_of(reth.dma_bytes) <= MOST_PACKETS
                    && reaches_all(RemoteAccess::Read, reth)
            }),
            Operation::CompareSwap | Operation::FetchAdd => headers.atomic.is_some_and(|atomic| {
                self.access.remote_atomic
                    && atomic.va.is_multiple_of(8)
                    && reaches(RemoteAccess::Atomic, atomic.rkey, atomic.va, 8)
            }),
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::Cnp
            | Operation::Sack
            | Operation::Challenge
            | Operation::ChallengeAnswer => false,
        }
    }

    /// Returns whether a kept packet that is now expected continues what was executed.
    fn continues(&self, headers: &Headers, payload: usize, env: &Env<'_>) -> bool {
        let opcode = headers.bth.opcode;
        let fits = if opcode.is_write() {
            Write::of(&self.message, headers, payload).is_some()
        } else if opcode.is_send() {
            self.receives.is_empty() || self.receives.has_room(payload as u64)
        } else {
            self.replies.answers < self.max_rd_atomic
        };
        fits && self.message.admits(opcode) && self.is_legal(headers, payload, env)
    }
}
