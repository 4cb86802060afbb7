//! The responder of a reliable connection: executes requests in PSN order, answers them in order.
//!
//! One event, one file: [`order`] decides whether a packet is expected, early or a duplicate;
//! [`message`] checks the sequence of opcodes and executes SEND and WRITE; [`read`] and [`atomic`]
//! execute requests that are answered with data; [`duplicate`] handles duplicates; [`reply`] queues
//! the answers in order; [`transmit`] sends them; [`refusal`] says again why the connection ended.
//!
//! Checks are in the order of the standard (IBTA volume 1, 9.7.4): PSN, opcode sequence, rights of
//! the queue pair, receive, length, key and range, alignment.
mod atomic;
mod duplicate;
mod gap;
pub(crate) mod message;
mod order;
mod read;
pub(crate) mod receives;
mod refusal;
mod reply;
mod transmit;

use crate::Psn;
use crate::config::{Config, InitAttr, Recovery, RtrAttr};
use crate::input::Env;
use crate::recovery::reorder::Reorder;
use crate::wire::{NakCode, Syndrome};
use catchment_verbs_types::{MAX_24_BITS, WcStatus};
use message::Message;
use receives::Receives;
use refusal::Refusal;
use reply::Replies;
use std::collections::VecDeque;

/// Minimum of results of READs and atomics kept for duplicates.
const LEAST_RESULTS: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    mtu: usize,
    dest_qpn: u32,
    access: InitAttr,
    rnr_timer: u8,
    max_rd_atomic: usize,
    /// PSNs from the expected one on that are kept after a gap: those that the peer may have in flight.
    window_packets: u32,
    pub(crate) selective: bool,
    /// The peer may challenge NAKs.
    pub(crate) challenges: bool,
    refusal: Refusal,
    /// The PSN expected next.
    expected: Psn,
    /// Messages completed.
    msn: u32,
    /// A NAK or RNR NAK for `expected` was sent: send no other.
    nak_sent: bool,
    message: Message,
    pub(crate) receives: Receives,
    results: VecDeque<Executed>,
    replies: Replies,
    reorder: Option<Box<Reorder>>,
    /// An acknowledgement is due at the end of the batch.
    ack_due: bool,
    /// Packets kept since the last SACK.
    kept_since_sack: u32,
    sack_due: bool,
    pub(crate) paced: bool,
}

/// An executed READ or atomic, kept for duplicates of it.
#[derive(Clone, Copy, Debug)]
struct Executed {
    first: Psn,
    packets: u32,
    what: Answer,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Read { va: u64, rkey: u32, bytes: u32 },
    Atomic { before: u64 },
}

/// The request is invalid for this queue pair.
const INVALID: Outcome = Outcome::Fatal(NakCode::InvalidRequest, WcStatus::RemoteInvalidRequest);
/// Key, range or rights do not allow the access.
const NO_ACCESS: Outcome = Outcome::Fatal(NakCode::RemoteAccess, WcStatus::RemoteAccess);

/// The outcome of a request packet in order.
enum Outcome {
    /// Executed; it took this many PSNs.
    Done(u32),
    /// No receive is posted.
    NotReady,
    /// The connection ends: the code for the peer, and the status for our application.
    Fatal(NakCode, WcStatus),
}

impl Responder {
    pub(crate) fn new(config: &Config) -> Self {
        Self { window_packets: config.window_packets, ..Self::default() }
    }

    /// Sets the attributes of RTR.
    pub(crate) fn connect(&mut self, attr: &RtrAttr, access: &InitAttr) {
        self.mtu = attr.path_mtu.bytes();
        self.dest_qpn = attr.dest_qpn;
        self.access = *access;
        self.rnr_timer = attr.min_rnr_timer;
        self.max_rd_atomic = usize::from(attr.max_dest_rd_atomic);
        self.selective = attr.recovery == Recovery::SelectiveRepeat;
        self.challenges = attr.challenges.is_some();
        self.window_packets = self.window_packets.min(attr.window_packets).max(1);
        self.expected = attr.rq_psn;
    }

    /// Acknowledges the packets that arrived together, if due.
    pub(crate) fn end_of_batch(&mut self) {
        if std::mem::take(&mut self.ack_due) {
            self.acknowledge();
        }
    }

    /// Acknowledges the latest executed PSN; with a SACK when packets are kept after a gap.
    fn acknowledge(&mut self) {
        if self.reorder.is_some() {
            self.sack_due = true;
            return;
        }
        self.reply(Syndrome::ACK, self.expected.sub(1));
    }

    fn reply(&mut self, syndrome: Syndrome, psn: Psn) {
        self.replies.acknowledge(psn, syndrome, self.msn);
    }

    /// Queues a due acknowledgement before an answer of another kind.
    fn flush_ack(&mut self) {
        if self.reorder.is_none() && std::mem::take(&mut self.ack_due) {
            self.reply(Syndrome::ACK, self.expected.sub(1));
        }
    }

    fn count_message(&mut self) {
        self.msn = (self.msn + 1) & MAX_24_BITS;
    }

    /// Ends the connection: the NAK is the last packet to the peer.
    fn refuse(&mut self, psn: Psn, code: NakCode, status: WcStatus, env: &mut Env<'_>) -> WcStatus {
        self.flush_ack();
        self.reply(Syndrome::Nak(code), psn);
        self.refusal.nak = Some((psn, code));
        env.counters.fatal_naks_sent += 1;
        status
    }

    fn keep_result(&mut self, executed: Executed) {
        if self.results.len() >= self.max_rd_atomic.max(LEAST_RESULTS) {
            self.results.pop_front();
        }
        self.results.push_back(executed);
    }

    /// Drops what is kept, for the error state. A NAK still goes out.
    pub(crate) fn flush(&mut self) {
        self.replies.keep_acknowledgements();
        self.reorder = None;
        self.sack_due = false;
        self.ack_due = false;
        self.paced = false;
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let reorder = self.reorder.as_ref().map_or(0, |reorder| reorder.heap_bytes());
        self.results.capacity() * size_of::<Executed>() + self.replies.heap_bytes() + reorder
    }
}
