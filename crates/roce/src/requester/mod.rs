//! The requester of a reliable connection: sends requests, handles responses, completes requests.
//!
//! One event, one file: [`transmit`] sends, [`acknowledge`] handles ACK, NAK, RNR NAK and SACK,
//! [`challenge`] doubts NAKs that end the connection, [`read`] tracks outstanding READs and atomics,
//! [`timeout`] handles a silent peer, [`complete`] completes requests in order, [`wqe`] segments messages. [`crate::recovery`] decides which PSN to
//! retransmit.
//!
//! A request packet is delivered when an acknowledgement covers it; that moves the window. A READ
//! or atomic is also answered, by packets with the same PSNs; that completes it.
mod acknowledge;
mod challenge;
mod complete;
pub(crate) use complete::succeeded;
mod read;
mod timeout;
mod transmit;
pub(crate) mod wqe;

use crate::Psn;
use crate::config::{Config, Recovery, RtrAttr, RtsAttr};
use crate::input::{Arrival, Env};
use crate::pacing::Path;
use crate::recovery::Engine;
use crate::recovery::rto::Rto;
use crate::timers::{earliest, nanos};
use crate::wire::Operation;
use crate::wqe::SendWqe;
use catchment_verbs_types::WcStatus;
use challenge::Challenges;
use read::Reads;
use std::collections::VecDeque;
use wqe::{Shape, Wqe};

/// Packets of one READ request under selective repeat: the bits of one word.
const SELECTIVE_READ_PACKETS: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Requester {
    shape: Shape,
    limits: Limits,
    /// Requests posted and not completed, oldest first.
    sq: VecDeque<Wqe>,
    /// Index in `sq` of the first request not fully sent.
    unsent: usize,
    /// Index in `sq` of the first request not fully acknowledged.
    unacked: usize,
    engine: Engine,
    rto: Rto,
    path: Path,
    reads: Reads,
    /// Payload bytes sent and not acknowledged, or requested and not answered.
    bytes_in_flight: u64,
    since_ack_req: u32,
    last_ack_req_ns: u64,
    rnr: Option<RnrWait>,
    tries: u8,
    rnr_tries: u8,
    /// A packet of the request that failed.
    blamed: Option<Psn>,
    /// `None` if the peer answers none.
    challenges: Option<Challenges>,
    pub(crate) paced: bool,
}

/// The peer asked to wait before `psn` is sent again.
#[derive(Clone, Copy, Debug)]
struct RnrWait {
    psn: Psn,
    until_ns: u64,
}

/// What was configured.
#[derive(Debug)]
struct Limits {
    window_packets: u32,
    ack_interval: u32,
    ack_bytes: u32,
    read_chunk_bytes: u32,
    read_chunk_packets: u32,
    max_rd_atomic: usize,
    retry_cnt: u8,
    rnr_retry: u8,
    least_rto_ns: Option<u64>,
    recovery: Recovery,
}

impl Requester {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            shape: Shape::new(config),
            limits: Limits::new(config),
            sq: VecDeque::new(),
            unsent: 0,
            unacked: 0,
            engine: Engine::new(Recovery::GoBackN, Psn::default()),
            rto: Rto::default(),
            path: Path::new(
                config.window_bytes,
                config.long_window_bytes,
                config.pacing.overhead_bytes,
            ),
            reads: Reads::default(),
            bytes_in_flight: 0,
            since_ack_req: 0,
            last_ack_req_ns: 0,
            rnr: None,
            tries: 0,
            rnr_tries: 0,
            blamed: None,
            challenges: None,
            paced: false,
        }
    }

    /// Sets the attributes of RTR.
    pub(crate) fn connect(&mut self, attr: &RtrAttr) {
        self.shape.connect(attr);
        self.limits.connect(attr);
        self.challenges = attr.challenges.map(Challenges::new);
    }

    /// Allows sending, with the attributes of RTS.
    pub(crate) fn start(&mut self, attr: &RtsAttr) {
        self.engine = Engine::new(self.limits.recovery, attr.sq_psn);
        self.rto = Rto::new(attr.timeout.map(nanos), self.limits.least_rto_ns);
        self.path.restart();
        self.limits.max_rd_atomic = usize::from(attr.max_rd_atomic);
        self.limits.retry_cnt = attr.retry_cnt;
        self.limits.rnr_retry = attr.rnr_retry;
        self.reads.start(self.engine.is_selective());
    }

    /// Forgets everything that is outstanding.
    fn stop(&mut self) {
        self.unsent = 0;
        self.unacked = 0;
        self.engine = Engine::new(Recovery::GoBackN, self.engine.next());
        self.reads = Reads::default();
        self.bytes_in_flight = 0;
        self.rnr = None;
        self.paced = false;
    }

    pub(crate) fn post(&mut self, request: SendWqe) {
        self.sq.push_back(Wqe::new(request, self.shape.mtu));
    }

    /// Handles a response. Returns a status if its request failed, and with it the queue pair.
    pub(crate) fn handle(&mut self, arrival: &Arrival<'_>, env: &mut Env<'_>) -> Option<WcStatus> {
        let failed = match arrival.headers.bth.opcode.operation() {
            Operation::Acknowledge => self.on_acknowledge(arrival, env),
            Operation::ChallengeAnswer => self.on_challenge_answer(arrival, env),
            Operation::Sack => self.on_sack(arrival, env),
            Operation::ReadResponse => self.on_read_response(arrival, env),
            Operation::AtomicAcknowledge => self.on_atomic_acknowledge(arrival.headers, env),
            Operation::Send
            | Operation::Write
            | Operation::ReadRequest
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::Cnp
            | Operation::Challenge => None,
        };
        self.complete(env.completions);
        failed
    }

    /// Returns the request of a sent `psn`, with the packet's index in it.
    fn find(&self, psn: Psn) -> Option<(usize, u32)> {
        let begun = self.begun();
        let after = self.sq.range(..begun);
        let front = after.clone().next()?.first;
        let distance = psn.distance_from(front);
        let index = self
            .sq
            .partition_point(|wqe| wqe.sent > 0 && wqe.first.distance_from(front) <= distance)
            .checked_sub(1)?;
        let wqe = self.sq.get(index)?;
        let packet = u32::try_from(psn.distance_from(wqe.first)).ok()?;
        (packet < wqe.sent).then_some((index, packet))
    }

    /// Returns the number of requests with a packet sent.
    fn begun(&self) -> usize {
        self.unsent + usize::from(self.sq.get(self.unsent).is_some_and(|wqe| wqe.sent > 0))
    }

    /// Returns whether an acknowledgement or answer of the peer is outstanding.
    pub(crate) fn expects(&self) -> bool {
        self.engine.in_flight() > 0 || !self.reads.is_empty()
    }

    /// Restarts the timer after progress of the peer.
    fn on_progress(&mut self, now_ns: u64) {
        self.tries = 0;
        let more = self.expects();
        self.rto.on_progress(now_ns, more);
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        if let Some(rnr) = self.rnr {
            return Some(rnr.until_ns);
        }
        let waiting = earliest(self.rto.deadline_ns(), self.engine.loss_time_ns());
        earliest(waiting, self.reads.loss_time_ns)
    }

    pub(crate) fn next_psn(&self) -> Psn {
        self.engine.next()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.begun() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.sq.len()
    }

    /// Returns the payload of a full packet.
    pub(crate) const fn mtu(&self) -> u64 {
        self.shape.mtu
    }

    pub(crate) fn srtt_ns(&self) -> Option<u64> {
        self.rto.srtt_ns()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.sq.capacity() * size_of::<Wqe>() + self.engine.heap_bytes() + self.reads.heap_bytes()
    }
}

impl Limits {
    fn new(config: &Config) -> Self {
        Self {
            window_packets: config.window_packets,
            ack_interval: config.ack_interval,
            ack_bytes: config.ack_bytes,
            read_chunk_bytes: config.read_chunk_bytes,
            read_chunk_packets: 1,
            max_rd_atomic: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            least_rto_ns: config.adaptive_timeout.then(|| nanos(config.rto_min)),
            recovery: Recovery::GoBackN,
        }
    }

    fn connect(&mut self, attr: &RtrAttr) {
        self.recovery = attr.recovery;
        self.window_packets = self.window_packets.min(attr.window_packets).max(1);
        let packets = (self.read_chunk_bytes / attr.path_mtu.bytes() as u32).max(1);
        self.read_chunk_packets = match attr.recovery {
            Recovery::GoBackN => packets.min(self.window_packets),
            Recovery::SelectiveRepeat => packets.min(SELECTIVE_READ_PACKETS),
        };
        let packets = self.ack_bytes / attr.path_mtu.bytes() as u32;
        // A window smaller than the interval would stall until the timeout.
        self.ack_interval = self.ack_interval.min(packets.min(self.window_packets / 2).max(1));
    }
}
