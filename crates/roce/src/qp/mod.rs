//! A queue pair: one input and three outputs.
//!
//! In: [`Qp::handle`] with a packet, the end of a batch of packets, or a timeout.
//! Out: [`Qp::poll_transmit`] until it returns 0, [`Qp::poll_completion`] until it returns `None`,
//! then [`Qp::next_timeout`] for the next timeout. Call all three after every input and every post.
//!
//! A device demultiplexes packets by `dest_qpn` and checks the sender's address, so a queue pair
//! gets only its own packets. Times are nanoseconds since an origin that the caller chooses, and
//! never go back.
mod halves;
mod modify;
mod post;

use crate::Psn;
use crate::completion::Completion;
use crate::config::{Config, InitAttr};
use crate::counters::Counters;
use crate::input::{Arrival, Env, Input};
use crate::memory::Memory;
use crate::pacing::{Notifier, Pacer, PacingConfig};
use crate::timers::{earliest, nanos};
use crate::transmit::TransmitBatch;
use crate::wire::{Headers, Opcode, Transport, pkey_matches};
use catchment_verbs_types::{Delivery, Flow, Limits, QpState, RateLimit, Service, WcStatus};
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
    /// Creates a queue pair in RESET. Limits are clamped to their ranges.
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

    /// Returns its counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns what became of its request packets, each counted as a full one: on UC and UD nothing is acknowledged.
    pub fn delivery(&self) -> Delivery {
        let Halves::Rc { requester, .. } = &self.halves else { return Delivery::default() };
        let Counters { acknowledged, retransmitted, spurious, .. } = self.counters;
        let bytes = |packets: u64| packets.saturating_mul(requester.mtu());
        Delivery {
            acknowledged_bytes: bytes(acknowledged),
            resent_bytes: bytes(retransmitted.saturating_sub(spurious)),
        }
    }

    /// Returns why it went to the error state by itself: the status of our request that failed; or,
    /// when a request of the peer failed, the status with which it completes there, or that of the
    /// receive that the message did not fit.
    pub fn error_cause(&self) -> Option<WcStatus> {
        self.error
    }

    /// Returns the bytes of heap that it uses, for accounting.
    pub fn heap_bytes(&self) -> usize {
        let completions = self.completions.capacity() * size_of::<Completion>();
        completions + self.halves.heap_bytes()
    }

    /// Sets the rate limit, of what goes on the wire; `None` sends as fast as the driver takes
    /// packets. It persists through all states until the next call. What congestion took stays taken.
    pub fn set_rate(&mut self, limit: Option<RateLimit>) {
        let fresh = PacingConfig::default();
        let (burst, backlog) =
            limit.map(Flow::new).map_or((fresh.burst_bytes, fresh.backlog_bytes), |flow| {
                (u32::try_from(flow.burst_bytes).unwrap_or(u32::MAX), flow.backlog_bytes)
            });
        let pacing = &mut self.config.pacing;
        pacing.rate_bps = limit.map(|limit| limit.rate_bps);
        pacing.burst_bytes = burst;
        pacing.backlog_bytes = backlog;
        self.pacer.configure(*pacing);
    }

    /// Returns the current rate, reduced by congestion; `None` if unpaced.
    pub fn rate_bps(&mut self, now_ns: u64) -> Option<u64> {
        self.pacer.rate_bps(now_ns)
    }

    /// Returns the smoothed round-trip time in nanoseconds; `None` before the first measurement.
    pub fn srtt_ns(&self) -> Option<u64> {
        match &self.halves {
            Halves::Rc { requester, .. } => requester.srtt_ns(),
            Halves::Uc { .. } | Halves::Ud { .. } => None,
        }
    }

    /// Returns the first PSN that it never sent; 0 on UC and UD, which nobody answers.
    pub fn next_psn(&self) -> Psn {
        match &self.halves {
            Halves::Rc { requester, .. } => requester.next_psn(),
            Halves::Uc { .. } | Halves::Ud { .. } => Psn::default(),
        }
    }

    /// Handles an input. Nothing that a peer sends causes a panic, and the work per packet is
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

    /// Returns the next completion. Requests without acknowledgement (UC, UD) complete as soon as
    /// their last packet is in a batch: send the batch first.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Returns whether [`Qp::poll_completion`] has one.
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Adds packets that may leave now to the batch, in order, until it is full or none is left,
    /// and returns their number. All go to one peer; on UD to [`TransmitBatch::destination`]. The
    /// batch must be empty or hold packets of the same call sequence to the same peer.
    ///
    /// `memory` checks again that the peer may read what it reads.
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
    /// the same clock; `None` without a timer. Valid until the next call that changes the queue
    /// pair. After the timeout there may be packets to send.
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

    /// Returns whether every request that was started has completed; used in SQD.
    pub fn is_drained(&self) -> bool {
        match &self.halves {
            Halves::Rc { requester, .. } => requester.is_drained(),
            Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => sender.is_drained(),
        }
    }

    /// Returns the number of send requests posted and not completed.
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
            self.counters.dropped += u64::from(!self.on_late(arrival));
            return;
        }
        self.counters.packets_received += 1;
        if bth.opcode == Opcode::Cnp {
            return self.on_cnp(now_ns);
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
                    // Before RTS it has sent no request.
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

    /// Handles a packet that is not received; returns whether it is answered all the same: a connection that
    /// ended with a NAK of ours says so again.
    #[cold]
    fn on_late(&mut self, arrival: &Arrival<'_>) -> bool {
        let bth = &arrival.headers.bth;
        let is_late =
            self.state == QpState::Err && pkey_matches(bth.pkey) && self.takes(bth.opcode);
        match &mut self.halves {
            Halves::Rc { responder, .. } => is_late && responder.on_late(arrival),
            Halves::Uc { .. } | Halves::Ud { .. } => false,
        }
    }

    /// Handles a congestion notification.
    fn on_cnp(&mut self, now_ns: u64) {
        let (is_awaited, round_trip_ns) = match &self.halves {
            Halves::Rc { requester, .. } => (requester.expects(), requester.srtt_ns()),
            Halves::Uc { .. } | Halves::Ud { .. } => (false, None),
        };
        let counts = self.pacer.on_cnp(now_ns, is_awaited, round_trip_ns.unwrap_or(0));
        self.counters.cnps_received += 1;
        self.counters.cnps_ignored += u64::from(!counts);
    }

    fn takes(&self, opcode: Opcode) -> bool {
        match (opcode.transport(), self.config.service) {
            (Transport::Rc, Service::Rc)
            | (Transport::Uc, Service::Uc)
            | (Transport::Ud, Service::Ud)
            | (Transport::Cnp, _) => true,
            (Transport::Extension, Service::Rc) => self.has_agreed_to(opcode),
            _ => false,
        }
    }

    fn has_agreed_to(&self, extension: Opcode) -> bool {
        match &self.halves {
            Halves::Rc { responder, .. } if extension == Opcode::Sack => responder.selective,
            Halves::Rc { responder, .. } => responder.challenges,
            Halves::Uc { .. } | Halves::Ud { .. } => false,
        }
    }

    fn on_timeout(&mut self, now_ns: u64) {
        if self.pacer.opens_ns <= now_ns {
            // The pacer is open: the driver polls for packets when it has room.
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

    /// Goes to ERR: the oldest send request fails with `first`, everything else is flushed.
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
