//! The engine of a device: it drives all queue pairs, by one thread at a time.
//!
//! # Inputs and outputs
//!
//! ```text
//! packets ── receive ─► queue pairs ─► transmit ── packets ─► io::Datagrams
//! requests ─ posting ─►  (roce::Qp) ─► completions ─► completion queues, doorbells
//! timers ─── timers ──►
//! ```
//!
//! A *turn* ([`Engine::turn`]) receives what has arrived, takes what programs have posted, passes
//! the packets to their queue pairs, fires timers, lets each queue pair that may send fill the send
//! batch in turn, and delivers completions. A turn is taken under the engine's lock, by its own
//! thread ([`thread`]), or with inline polling a thread of the application. Programs never wait for
//! that lock to post or to poll: requests come through a lock-free ring of each queue pair
//! ([`entry`]).
//!
//! # Guarantees
//!
//! - A turn never blocks, and ends after a bounded amount of work.
//! - A request whose checks passed completes exactly once, in order, or is flushed; a completion is
//!   delivered only after the bytes that it reports are in place.
//! - After a region was deregistered and the turn at that time has ended, no peer reaches its memory.
//! - A packet that no queue pair takes is dropped and counted, by reason.
//! - An idle device costs no processor time, whatever the number of its queue pairs.
//!
//! # Files
//!
//! | | |
//! |---|---|
//! | [`thread`] | the thread: turns, polling, sleep |
//! | [`receive`] | packets in: fetched, checked, passed to their queue pair |
//! | [`posting`] | requests in: from the ring of a queue pair to the protocol |
//! | [`timers`] | the next timer of all queue pairs |
//! | [`transmit`] | packets out: gathered from registered memory into the send batch |
//! | [`completions`] | completions, states and doorbells out |
//! | [`entry`], [`table`] | one queue pair; all of them, by number |
//! | [`lifecycle`] | queue pairs are added, change their state, and are removed |
//! | [`faulty`] | packets out while faults are injected |
//! | [`held`] | packets that the kernel has not taken yet |
//! | [`tuning`] | measures for speed alone, with the gain of each |
mod completions;
mod entry;
mod faulty;
mod held;
mod lifecycle;
mod posting;
mod receive;
mod table;
pub(crate) mod thread;
mod timers;
mod transmit;
pub(crate) mod tuning;

pub(crate) use entry::{Parts, Peer, QpShared};

use crate::device_core::DeviceCore;
use crate::fault::FaultInjector;
use crate::io::{Datagrams, IcrcCheck, RecvRing, SendBatch};
use crate::region::MrCore;
use crate::{DeviceCounters, RoceOptions};
use catchment_roce::wire::DropReason;
use catchment_roce::{self as roce, Psn};
use held::Held;
use std::collections::VecDeque;
use std::sync::Arc;
use table::QpTable;
use timers::Timers;

/// The inputs of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnKind {
    /// Packets that have arrived, and posted requests.
    Full,
    /// Posted requests only: the caller has just posted.
    PostedOnly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Turn {
    /// There was something to do, so there may be more.
    pub(crate) busy: bool,
    /// Answers wait for the next turn, which is due at once.
    pub(crate) held_back: bool,
    /// Packets wait until the socket takes them.
    pub(crate) blocked: bool,
    /// A queue pair may have more to send.
    pub(crate) unsent: bool,
    /// When to come back at the latest.
    pub(crate) next_ns: Option<u64>,
}

impl Turn {
    /// Returns whether another turn must follow soon in any case.
    pub(crate) fn is_unfinished(self) -> bool {
        self.held_back || self.blocked || self.unsent
    }
}

/// See the module documentation.
pub(crate) struct Engine {
    qps: QpTable,
    ring: RecvRing,
    check: IcrcCheck,
    batch: SendBatch,
    held: Held,
    /// Packets of one queue pair, before they enter the batch.
    packets: roce::TransmitBatch,
    /// The first PSN of the queue pair that filled them which was never sent before.
    first_new: Psn,
    /// Headers and inline payload of one packet.
    head: Vec<u8>,
    faults: Option<FaultInjector>,
    /// Queue pairs to which something happened in this turn.
    touched: Vec<usize>,
    /// Queue pairs with completions from sending: delivered once the kernel has the packets.
    sent: Vec<usize>,
    /// Queue pairs that may have something to send.
    ready: VecDeque<usize>,
    /// The last turn held answers back.
    held_back: bool,
    /// Regions that peers wrote to, and that may have a watcher.
    written: Vec<Arc<MrCore>>,
    timers: Timers,
    /// Queue pairs have keys of their packets.
    authenticates: bool,
    drops: [u64; DropReason::COUNT],
    receive_errors: u64,
    /// Counters of queue pairs that were removed.
    retired: roce::Counters,
}

impl Engine {
    pub(crate) fn new(datagrams: &dyn Datagrams, options: &RoceOptions) -> Self {
        Self {
            qps: QpTable::default(),
            ring: RecvRing::new(options.receive_buffers),
            check: IcrcCheck::new(),
            batch: SendBatch::new(datagrams, tuning::BATCH_PACKETS),
            held: Held::default(),
            packets: roce::TransmitBatch::new(tuning::PACKETS_PER_QP),
            first_new: Psn::default(),
            head: Vec::new(),
            faults: options.fault.as_ref().map(FaultInjector::new),
            touched: Vec::new(),
            sent: Vec::new(),
            ready: VecDeque::new(),
            held_back: false,
            written: Vec::new(),
            timers: Timers::default(),
            authenticates: options.authenticate,
            drops: [0; DropReason::COUNT],
            receive_errors: 0,
            retired: roce::Counters::default(),
        }
    }

    /// Does what there is to do now. Never blocks, and ends after a bounded amount of work.
    ///
    /// If a few packets arrived and nothing else is to be done, their acknowledgements wait for one
    /// turn: if the program replies, they leave together with its reply.
    pub(crate) fn turn(&mut self, device: &DeviceCore, now_ns: u64, kind: TurnKind) -> Turn {
        let keys = device.keys();
        // First fetch packets, then take posted requests, then process the packets: a receive that
        // was posted before its message was sent is then found.
        let received = match kind {
            TurnKind::Full => self.fetch(device),
            TurnKind::PostedOnly => 0,
        };
        let posted = self.take_posted(device);
        let idle = !posted && self.ready.is_empty() && !self.held_back;
        if received > 0 {
            self.dispatch(now_ns, &keys);
        }
        let fired = self.fire_timers(now_ns, &keys);
        self.settle(device, now_ns, &keys);
        self.held_back = tuning::holds_answers_back(received, idle && !fired);
        if self.held_back {
            return Turn {
                busy: true,
                held_back: true,
                blocked: false,
                unsent: false,
                next_ns: self.next_timer(),
            };
        }
        let (sent, blocked) = self.transmit(device, &keys);
        self.settle(device, now_ns, &keys);
        Turn {
            busy: received > 0 || posted || fired || sent || !self.ready.is_empty() && !blocked,
            held_back: false,
            blocked,
            unsent: !self.ready.is_empty(),
            next_ns: self.next_timer(),
        }
    }

    /// Marks a queue pair to be settled before the turn ends.
    #[inline]
    fn touch(&mut self, index: usize) {
        if let Some(entry) = self.qps.get(index)
            && !entry.is_touched
        {
            entry.is_touched = true;
            self.touched.push(index);
        }
    }

    /// Queues a queue pair that may have something to send.
    #[inline]
    fn make_ready(&mut self, index: usize) {
        if let Some(entry) = self.qps.get(index)
            && !entry.is_ready
        {
            entry.is_ready = true;
            self.ready.push_back(index);
        }
    }

    /// Returns when a timer of a queue pair, or an injected delay, is over.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        let delayed = self.faults.as_ref().and_then(FaultInjector::next_ns);
        match (self.timers.next_ns(), delayed) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub(crate) fn counters(&self, device: &DeviceCore) -> DeviceCounters {
        let capabilities = device.datagrams.capabilities();
        let mut protocol = self.retired;
        let mut queue_pairs = 0;
        let mut queue_pair_bytes = 0;
        for (_, entry) in self.qps.iter() {
            protocol += entry.qp.counters();
            queue_pairs += 1;
            queue_pair_bytes += entry.heap_bytes() as u64;
        }
        DeviceCounters {
            queue_pairs,
            queue_pair_bytes,
            protocol,
            sent: self.batch.counters(),
            received: self.ring.counters(),
            receive_errors: self.receive_errors,
            dropped: self.drops,
            faults: self.faults.as_ref().map(|faults| faults.counters),
            gso: capabilities.segmentation,
            gro: capabilities.coalescing,
            gso_refused_peers: self.batch.gso_refused().len() as u64,
        }
    }
}
