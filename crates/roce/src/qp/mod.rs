//! A queue pair: the one door in, and the three ways out.
//!
//! In: [`Qp::handle`] with a packet, the end of a batch of packets, or a timeout that has come.
//! Out: [`Qp::poll_transmit`] until it gives 0, [`Qp::poll_completion`] until it gives none, then
//! [`Qp::next_timeout`] says when to come back at the latest. Do all three after every input and
//! every post.
//!
//! A device demultiplexes packets by `dest_qpn` and checks the sender's address; the queue pair
//! gets packets that are its own. Times are nanoseconds since an origin that the caller chooses and
//! never go back.
mod halves;
mod modify;
mod post;

use crate::completion::Completion;
use crate::config::{Config, InitAttr};
use crate::counters::Counters;
use crate::input::{Arrival, Env, Input};
use crate::memory::Memory;
use crate::pacing::{Notifier, Pacer, PacingConfig};
use crate::timers::{earliest, nanos};
use crate::transmit::TransmitBatch;
use crate::wire::{Headers, Opcode, Transport, pkey_matches};
use catchment_verbs_types::{Flow, Limits, QpState, Service, WcStatus};
use halves::Halves;
use std::collections::VecDeque;

/// A queue pair: requester, responder, their queues and timers. See the module.
#[derive(Debug)]
pub struct Qp {
    config: Config,
    limits: Limits,
    state: QpState,
    init: InitAttr,
    dest_qpn: u32,
    halves: Halves,
    completions: VecDeque<Completion>,
    pacer: Pacer,
    notifier: Notifier,
    counters: Counters,
    error: Option<WcStatus>,
}

impl Qp {
    /// Creates a queue pair in RESET. Limits beyond what is possible are lowered to it.
    pub fn new(config: Config) -> Self {
        let config = config.clamped();
        Self {
            config,
            limits: post::limits(&config),
            state: QpState::Reset,
            init: InitAttr::default(),
            dest_qpn: 0,
            halves: Halves::new(&config),
            completions: VecDeque::new(),
            pacer: Pacer::new(config.pacing),
            notifier: Notifier::new(config.pacing.cnp_interval.map(nanos)),
            counters: Counters::default(),
            error: None,
        }
    }

    /// Returns its number.
    pub fn qpn(&self) -> u32 {
        self.config.qpn
    }

    /// Returns the number of the peer's queue pair; 0 before RTR.
    pub fn dest_qpn(&self) -> u32 {
        self.dest_qpn
    }

    /// Returns its state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Returns its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns what it counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns why it went to the error state by itself: the status of the own request that failed;
    /// or, when a request of the peer failed, the status that the peer's request completes with, or
    /// that of the receive which the message did not fit.
    pub fn error_cause(&self) -> Option<WcStatus> {
        self.error
    }

    /// Returns the number of bytes of heap that it holds now, for accounting.
    pub fn heap_bytes(&self) -> usize {
        let completions = self.completions.capacity() * size_of::<Completion>();
        completions + self.halves.heap_bytes()
    }

    /// Sets the rate limit, bits a second on the wire; none sends as fast as the driver takes packets.
    /// It holds through all states, until the next call.
    pub fn set_rate_bps(&mut self, rate_bps: Option<u64>) {
        let fresh = PacingConfig::default();
        let (burst, backlog) =
            rate_bps.map(Flow::of_rate).map_or((fresh.burst_bytes, fresh.backlog_bytes), |flow| {
                (u32::try_from(flow.burst_bytes).unwrap_or(u32::MAX), flow.backlog_bytes)
            });
        let pacing = &mut self.config.pacing;
        pacing.rate_bps = rate_bps;
        pacing.burst_bytes = burst;
        pacing.backlog_bytes = backlog;
        self.pacer.configure(*pacing);
    }

    /// Returns the rate now, after congestion took its part; none is unpaced.
    pub fn rate_bps(&mut self, now_ns: u64) -> Option<u64> {
        self.pacer.rate_bps(now_ns)
    }

    /// Measured round trip: smoothed, in nanoseconds; none before the first one.
    pub fn srtt_ns(&self) -> Option<u64> {
        match &self.halves {
            Halves::Rc { requester, .. } => requester.srtt_ns(),
            Halves::Uc { .. } | Halves::Ud { .. } => None,
        }
    }

    /// Takes what happened. Nothing that a peer sends makes it panic, and the work for a packet is
    /// bounded.
    pub fn handle(&mut self, now_ns: u64, input: Input<'_>, memory: &mut dyn Memory) {
        match input {
            Input::Packet(arrival) => self.on_packet(now_ns, &arrival, memory),
            Input::EndOfBatch => {
                if let Halves::Rc { responder, .. } = &mut self.halves {
                    responder.end_of_batch();
                }
            }
            Input::Timeout => self.on_timeout(now_ns),
        }
    }

    /// Returns the next completion. Those of requests that stay unacknowledged (UC, UD) are there
    /// as soon as their last packet is in a batch: send the batch first.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Returns whether [`Qp::poll_completion`] has one.
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Adds packets that may leave now to the batch, in order, until it is full or nothing is left,
    /// and gives their number. All of them go to one peer; on UD to
    /// [`TransmitBatch::destination`]. The batch must be empty or hold packets of this same call
    /// sequence to this same peer.
    ///
    /// `memory` is asked whether the peer may still read what it reads.
    pub fn poll_transmit(
        &mut self,
        now_ns: u64,
        memory: &dyn Memory,
        batch: &mut TransmitBatch,
    ) -> usize {
        let before = batch.packets().len();
        if self.state == QpState::Reset || self.state == QpState::Init {
            return 0;
        }
        self.transmit_cnp(batch);
        let sends = matches!(self.state, QpState::Rts | QpState::Sqd);
        let draining = self.state == QpState::Sqd;
        let failed = match &mut self.halves {
            Halves::Rc { requester, responder } => {
                let counters = &mut self.counters;
                let failed = responder.transmit(now_ns, memory, &mut self.pacer, batch, counters);
                if sends && failed.is_none() {
                    requester.transmit(now_ns, draining, &mut self.pacer, batch, counters);
                }
                failed
            }
            Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => {
                if sends {
                    let counters = &mut self.counters;
                    sender
                        .transmit(now_ns, &mut self.pacer, batch, &mut self.completions, counters);
                }
                None
            }
        };
        if let Some(status) = failed {
            self.fail(Some(status), None);
        }
        batch.packets().len() - before
    }

    /// Returns when to call [`Qp::handle`] with [`Input::Timeout`] at the latest, in nanoseconds of
    /// the same clock; none when nothing is waited for. Holds until the next call that changes
    /// anything. After the timeout there may be packets to send.
    pub fn next_timeout(&self) -> Option<u64> {
        match &self.halves {
            Halves::Rc { requester, responder } => {
                if !self.state.receives() {
                    return None;
                }
                let paced = requester.paced || responder.paced;
                earliest(requester.next_timeout(), paced.then_some(self.pacer.opens_ns))
            }
            Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => {
                sender.paced.then_some(self.pacer.opens_ns)
            }
        }
    }

    /// Returns whether every request that was begun has completed; of interest in SQD.
    pub fn is_drained(&self) -> bool {
        match &self.halves {
            Halves::Rc { requester, .. } => requester.is_drained(),
            Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => sender.is_drained(),
        }
    }

    /// Send requests posted and not completed.
    pub fn send_queue_len(&self) -> usize {
        match &self.halves {
            Halves::Rc { requester, .. } => requester.len(),
            Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => sender.len(),
        }
    }

    /// Returns the number of receives posted and not completed.
    pub fn recv_queue_len(&self) -> usize {
        self.halves.receives().len()
    }

    fn transmit_cnp(&mut self, batch: &mut TransmitBatch) {
        if self.notifier.due && !batch.is_full() && self.notifier.take() {
            batch.push(&Headers::cnp(self.dest_qpn), |_| {});
            self.counters.cnps_sent += 1;
        }
    }

    fn on_packet(&mut self, now_ns: u64, arrival: &Arrival<'_>, memory: &mut dyn Memory) {
        let bth = &arrival.headers.bth;
        if !self.state.receives() || !pkey_matches(bth.pkey) || !self.takes(bth.opcode) {
            self.counters.dropped += 1;
            return;
        }
        self.counters.packets_received += 1;
        if bth.opcode == Opcode::Cnp {
            self.counters.cnps_received += 1;
            self.pacer.on_cnp(now_ns);
            return;
        }
        if arrival.ecn_marked && self.config.service != Service::Ud {
            self.notifier.on_marked(now_ns);
        }
        let mut env = Env {
            now_ns,
            memory,
            completions: &mut self.completions,
            counters: &mut self.counters,
        };
        let failed = match &mut self.halves {
            Halves::Rc { requester, responder } => {
                if bth.opcode.is_response() {
                    // A responder that may not send yet has asked for nothing.
                    if self.state == QpState::Rtr {
                        env.counters.dropped += 1;
                        return;
                    }
                    requester.handle(arrival, &mut env).map(Failed::Request)
                } else {
                    responder.handle(arrival, &mut env).map(Failed::Response)
                }
            }
            Halves::Uc { receiver, .. } => {
                receiver.handle(arrival, &mut env);
                None
            }
            Halves::Ud { receiver, .. } => {
                receiver.handle(arrival, &mut env);
                None
            }
        };
        match failed {
            Some(Failed::Request(status)) => self.fail(Some(status), Some(status)),
            Some(Failed::Response(status)) => self.fail(Some(status), None),
            None => {}
        }
    }

    fn takes(&self, opcode: Opcode) -> bool {
        match (opcode.transport(), self.config.service) {
            (Transport::Rc, Service::Rc)
            | (Transport::Uc, Service::Uc)
            | (Transport::Ud, Service::Ud)
            | (Transport::Cnp, _) => true,
            (Transport::Extension, Service::Rc) => self.repeats_selectively(),
            _ => false,
        }
    }

    fn repeats_selectively(&self) -> bool {
        match &self.halves {
            Halves::Rc { responder, .. } => responder.selective,
            Halves::Uc { .. } | Halves::Ud { .. } => false,
        }
    }

    fn on_timeout(&mut self, now_ns: u64) {
        if self.pacer.opens_ns <= now_ns {
            // It does not wait any more: the driver knows, and asks for packets when it has room.
            self.halves.stop_waiting_for_pacer();
        }
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        let Halves::Rc { requester, .. } = &mut self.halves else { return };
        if let Some(status) = requester.on_timeout(now_ns, &mut self.counters) {
            self.fail(Some(status), Some(status));
        }
    }

    /// To ERR: the oldest send request fails with `first`, everything else is flushed.
    fn fail(&mut self, cause: Option<WcStatus>, first: Option<WcStatus>) {
        self.state = QpState::Err;
        self.error = self.error.or(cause);
        match &mut self.halves {
            Halves::Rc { requester, responder } => {
                requester.flush(first, &mut self.completions);
                responder.flush();
            }
            Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => {
                sender.flush(&mut self.completions);
            }
        }
        self.halves.receives_mut().flush(&mut self.completions);
    }
}

/// Which half failed.
enum Failed {
    Request(WcStatus),
    Response(WcStatus),
}
