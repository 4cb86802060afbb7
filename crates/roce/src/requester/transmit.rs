//! Sending: which packet is next, and what delays it.
//!
//! First repeated READ requests, then retransmissions, then new packets. New ones wait for the
//! window, a fence, and the limit of READs and atomics. All wait for the RNR timer and the pacer.
use super::wqe::Cut;
use super::{Requester, Wqe};
use crate::Psn;
use crate::counters::Counters;
use crate::pacing::Pacer;
use crate::transmit::TransmitBatch;

/// Most PSNs from the oldest request to the next packet: distances must stay below half the number
/// space.
const HORIZON: i32 = 3 << 21;

/// Packets in flight on a path that is not long: small ones take more of the peer's receive buffer than their
/// bytes.
const SHORT_WINDOW_PACKETS: u32 = 16 << 10;

/// On a long path, whose rate is learnt from them, at least so many acknowledgements are on the way,
const ACKS_IN_FLIGHT: u32 = 128;
/// but not one for fewer packets than this.
const LONG_ACK_INTERVAL: u32 = 32;

/// What to send next.
enum Next {
    /// The request of `count` answers from `psn` on, again.
    Ask { psn: Psn, count: u32 },
    /// A retransmission of a request packet.
    Again(Psn),
    /// The next packet of the first unsent request.
    New,
}

impl Requester {
    /// Fills the batch with request packets.
    pub(crate) fn transmit(
        &mut self,
        now_ns: u64,
        draining: bool,
        pacer: &mut Pacer,
        batch: &mut TransmitBatch,
        counters: &mut Counters,
    ) {
        self.paced = false;
        pacer.set_path_bps(self.path.rate_bps());
        self.transmit_challenge(batch);
        if !self.rnr_is_over(now_ns) {
            return;
        }
        while !batch.is_full() {
            let Some(next) = self.pick(draining) else {
                return self.path.on_pause(!self.fits(1, self.shape.mtu));
            };
            if !pacer.may_request(now_ns) {
                self.paced = true;
                return;
            }
            let before = batch.packets().len();
            match next {
                Next::Ask { psn, count } => self.ask_again(psn, count, now_ns, batch, counters),
                Next::Again(psn) => self.send_again(psn, now_ns, batch, counters),
                Next::New => self.send_new(now_ns, batch),
            }
            self.rto.expect(now_ns);
            if let Some(packet) = batch.packets().get(before) {
                pacer.on_requested(now_ns, packet.udp_bytes());
                counters.packets_sent += 1;
                counters.bytes_sent += packet.payload_bytes() as u64;
                self.path.count(packet.payload_bytes() as u64);
            }
        }
    }

    fn rnr_is_over(&mut self, now_ns: u64) -> bool {
        if self.rnr.is_some_and(|rnr| now_ns < rnr.until_ns) {
            return false;
        }
        self.rnr = None;
        true
    }

    fn pick(&mut self, draining: bool) -> Option<Next> {
        if let Some((psn, count)) = self.reads.next_ask() {
            return Some(Next::Ask { psn, count });
        }
        if let Some(psn) = self.engine.next_lost() {
            return Some(Next::Again(psn));
        }
        self.may_send_new(draining).then_some(Next::New)
    }

    fn may_send_new(&self, draining: bool) -> bool {
        let Some(wqe) = self.sq.get(self.unsent) else { return false };
        let fresh = wqe.sent == 0;
        if fresh && (draining || (wqe.request.fence && !self.reads.is_empty())) {
            return false;
        }
        let is_full = self.reads.len() >= self.limits.max_rd_atomic.max(1);
        if wqe.request.op.is_read_or_atomic() && is_full {
            return false;
        }
        let (span, bytes) = self.next_size(wqe);
        self.fits(span, bytes) && self.is_near(span)
    }

    /// Returns PSNs and payload bytes of the next new packet, or of its answer.
    fn next_size(&self, wqe: &Wqe) -> (u32, u64) {
        let span = if wqe.request.op.is_read() {
            (wqe.packets - wqe.sent).min(self.limits.read_chunk_packets)
        } else {
            1
        };
        (span, wqe.bytes_of(wqe.sent, span, self.shape.mtu))
    }

    /// Returns whether the window has room. An empty window has room for anything.
    fn fits(&self, span: u32, bytes: u64) -> bool {
        let packets = self.engine.in_flight();
        let most = match self.path.is_long() {
            true => self.limits.window_packets,
            false => self.limits.window_packets.min(SHORT_WINDOW_PACKETS),
        };
        let packets_fit = packets == 0 || packets + span <= most;
        let in_flight = self.bytes_in_flight.saturating_sub(self.engine.settled_bytes());
        packets_fit && (in_flight == 0 || in_flight + bytes <= self.path.window_bytes())
    }

    fn is_near(&self, span: u32) -> bool {
        let Some(oldest) = self.sq.front().filter(|wqe| wqe.sent > 0) else { return true };
        let end = self.engine.next().add(span);
        (0..HORIZON).contains(&end.distance_from(oldest.first))
    }

    fn send_new(&mut self, now_ns: u64, batch: &mut TransmitBatch) {
        let at = self.unsent;
        let psn = self.engine.next();
        let last_posted = self.unsent + 1 == self.sq.len();
        let (span, bytes) = match self.sq.get(self.unsent) {
            Some(wqe) => self.next_size(wqe),
            None => return,
        };
        let is_answered = self.sq[self.unsent].request.op.is_read_or_atomic();
        let own_bytes = if is_answered { 0 } else { bytes as u16 };
        if self.path.mark().is_none()
            && let Some(mark) = self.engine.next_transmission()
        {
            let was_idle = self.engine.in_flight() == 0;
            self.path.begin_round(mark, self.engine.progress(), was_idle, now_ns);
        }
        self.engine.on_sent(psn, span, own_bytes, now_ns);
        self.bytes_in_flight += bytes;
        let full = !self.fits(1, self.shape.mtu);
        let wqe = &mut self.sq[self.unsent];
        if wqe.sent == 0 {
            wqe.first = psn;
        }
        let index = wqe.sent;
        wqe.sent += span;
        let ends = wqe.is_sent() && (wqe.request.signaled || last_posted);
        let mut cut = wqe.cut_span(index, span, &self.shape);
        self.unsent += usize::from(wqe.is_sent());
        if is_answered {
            self.reads.open(psn, span, bytes, now_ns);
        }
        cut.headers.bth.ack_req = self.ack_req(ends || full || is_answered, now_ns);
        push(self.sq.get(at), &cut, batch);
    }

    fn send_again(
        &mut self,
        psn: Psn,
        now_ns: u64,
        batch: &mut TransmitBatch,
        counters: &mut Counters,
    ) {
        let Some((index, packet)) = self.find(psn) else {
            // Nothing was sent with this PSN: a broken invariant; do not loop.
            debug_assert!(false, "PSN {psn} belongs to no request");
            self.engine.on_sent(psn, 1, 0, now_ns);
            return;
        };
        let wqe = &self.sq[index];
        let span = if wqe.request.op.is_read_or_atomic() {
            self.reads.asked_again(psn, now_ns)
        } else {
            1
        };
        let mut cut = wqe.cut_span(packet, span, &self.shape);
        let is_answered = wqe.request.op.is_read_or_atomic();
        self.engine.on_sent(psn, span, 0, now_ns);
        // Where new packets follow, one of them asks soon: an answer names all that the peer keeps, and on a long
        // path that is much.
        let is_last =
            self.engine.next_lost().is_none() && !(self.path.is_long() && self.may_send_new(false));
        cut.headers.bth.ack_req = self.ack_req(is_last || is_answered, now_ns);
        counters.retransmitted += 1;
        push(self.sq.get(index), &cut, batch);
    }

    fn ask_again(
        &mut self,
        psn: Psn,
        count: u32,
        now_ns: u64,
        batch: &mut TransmitBatch,
        counters: &mut Counters,
    ) {
        self.reads.on_asked(psn, count, now_ns);
        counters.reads_repeated += 1;
        if let Some((index, packet)) = self.find(psn) {
            let cut = self.sq[index].ask(packet, count, &self.shape);
            push(self.sq.get(index), &cut, batch);
        }
    }

    /// Returns whether this packet requests an acknowledgement: if `wanted`, if none of the last
    /// packets did, or if the last one that did left long ago.
    fn ack_req(&mut self, wanted: bool, now_ns: u64) -> bool {
        self.since_ack_req += 1;
        let is_late = now_ns.saturating_sub(self.last_ack_req_ns) >= self.rto.ask_after_ns();
        let interval = match self.path.is_long() {
            true => (self.engine.in_flight() / ACKS_IN_FLIGHT)
                .clamp(LONG_ACK_INTERVAL, self.limits.ack_interval.max(LONG_ACK_INTERVAL)),
            false => self.limits.ack_interval,
        };
        let asks = wanted || is_late || self.since_ack_req >= interval;
        if asks {
            self.since_ack_req = 0;
            self.last_ack_req_ns = now_ns;
        }
        asks
    }
}

/// Adds a packet with its payload.
fn push(wqe: Option<&Wqe>, cut: &Cut, batch: &mut TransmitBatch) {
    batch.push(&cut.headers, |out| {
        if let Some(wqe) = wqe {
            wqe.request.payload.gather(cut.offset, cut.bytes, out);
        }
    });
}
