//! Selective repeat: only what is lost is sent again.
//!
//! The peer tells in SACKs what it keeps. Losses are detected in the order of transmissions, not of
//! PSNs, so that a retransmission that is lost is found the same way (as QUIC does, RFC 9002, 6.1):
//! a transmission is lost when one sent later arrived, and either [`PACKET_THRESHOLD`] were sent in
//! between or 9/8 of a round trip has passed. When a loss turns out to be none, both thresholds
//! grow, so that a network that reorders is not flooded with copies.
//!
//! Two queues hold the state. `slots` has an entry for each PSN from `una` to `next`. `log` has one
//! for each transmission not yet judged, oldest first. Every entry is pushed and popped once, so the
//! work for an acknowledgement is its bits plus what it settles.

use super::Clock;
use super::sack::Sack;
use crate::Psn;
use std::collections::VecDeque;

/// Transmissions that may arrive before an earlier one without it being lost.
const PACKET_THRESHOLD: i32 = 3;
const PACKET_THRESHOLD_MOST: i32 = 96;
/// Time threshold, in eighths of the round trip.
const TIME_EIGHTHS: u64 = 9;
const TIME_EIGHTHS_MOST: u64 = 16;
/// The time threshold when the round trip is shorter than this, or not known.
const LEAST_RTT_NS: u64 = 50_000;
/// A queue with more room than this gives memory back when it is empty.
const KEPT_CAPACITY: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Sent, nothing known.
    InFlight,
    /// In the queue `lost`.
    Lost,
    /// The peer has it.
    Kept,
    /// A PSN of READ responses: no request packet has it.
    Covered,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Number of its last transmission.
    tx: u32,
    /// Payload of the packet; a path MTU is at most 4096 bytes.
    bytes: u16,
    state: State,
    resent: bool,
}

impl Slot {
    fn settled_bytes(&self) -> u64 {
        match self.state {
            State::Kept | State::Lost => u64::from(self.bytes),
            State::InFlight | State::Covered => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Transmission {
    psn: Psn,
    sent_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Selective {
    una: Psn,
    slots: VecDeque<Slot>,
    log: VecDeque<Transmission>,
    /// Number of the first transmission in `log`.
    log_first: u32,
    /// The latest transmission known to have arrived, if any did.
    arrived: Option<u32>,
    lost: VecDeque<Psn>,
    /// Payload of the packets in `slots` that are not on their way: kept by the peer, or lost.
    settled_bytes: u64,
    loss_time_ns: Option<u64>,
    packet_threshold: i32,
    time_eighths: u64,
}

/// What one acknowledgement brought.
#[derive(Default)]
struct News {
    any: bool,
    /// Latest transmission that was the only one of its PSN, and when it was sent.
    timed: Option<(u32, u64)>,
}

impl Selective {
    pub(crate) fn new(first: Psn) -> Selective {
        Selective {
            una: first,
            slots: VecDeque::new(),
            log: VecDeque::new(),
            log_first: 0,
            arrived: None,
            lost: VecDeque::new(),
            settled_bytes: 0,
            loss_time_ns: None,
            packet_threshold: PACKET_THRESHOLD,
            time_eighths: TIME_EIGHTHS,
        }
    }

    pub(crate) fn una(&self) -> Psn {
        self.una
    }

    pub(crate) fn next(&self) -> Psn {
        self.una.add(self.slots.len() as u32)
    }

    pub(crate) fn loss_time_ns(&self) -> Option<u64> {
        self.loss_time_ns
    }

    /// Payload bytes from `una` to `next` that are not on their way.
    pub(crate) fn settled_bytes(&self) -> u64 {
        self.settled_bytes
    }

    /// `bytes` counts for a packet that is new.
    pub(crate) fn on_sent(&mut self, psn: Psn, span: u32, bytes: u16, now_ns: u64) {
        let tx = self.log_first.wrapping_add(self.log.len() as u32);
        self.log.push_back(Transmission {
            psn,
            sent_ns: now_ns,
        });
        if psn == self.next() {
            self.push_new(tx, span, bytes);
        } else if let Some(index) = self.index(psn) {
            self.set(index, State::InFlight);
            self.slots[index].tx = tx;
            self.slots[index].resent = true;
        }
    }

    fn push_new(&mut self, tx: u32, span: u32, bytes: u16) {
        for index in 0..span {
            let state = if index == 0 {
                State::InFlight
            } else {
                State::Covered
            };
            self.slots.push_back(Slot {
                tx,
                bytes,
                state,
                resent: false,
            });
        }
    }

    pub(crate) fn next_lost(&mut self) -> Option<Psn> {
        while let Some(&psn) = self.lost.front() {
            if self.slot(psn).is_some_and(|slot| slot.state == State::Lost) {
                return Some(psn);
            }
            self.lost.pop_front();
        }
        None
    }

    pub(crate) fn on_ack(&mut self, psn: Psn, clock: &mut Clock<'_>) {
        let mut news = News::default();
        while psn.distance_from(self.una) >= 0 && !self.slots.is_empty() {
            self.arrive(0, &mut news, clock);
            if let Some(slot) = self.slots.pop_front() {
                self.settled_bytes -= slot.settled_bytes();
            }
            self.una = self.una.next();
        }
        self.settle(&news, clock);
        self.give_back();
    }

    pub(crate) fn on_sack(&mut self, sack: &Sack<'_>, clock: &mut Clock<'_>) -> bool {
        let base = sack.cumulative().distance_from(self.una);
        let mut news = News::default();
        for distance in sack.kept() {
            let index = i64::from(base) + i64::from(distance);
            let Ok(index) = usize::try_from(index) else {
                continue;
            };
            if index >= self.slots.len() {
                break;
            }
            self.arrive(index, &mut news, clock);
        }
        // What follows the cumulative PSN is missing, whatever an earlier SACK said.
        if base == -1
            && self
                .slots
                .front()
                .is_some_and(|slot| slot.state == State::Kept)
        {
            self.mark_lost(0);
        }
        self.settle(&news, clock);
        news.any
    }

    /// The packet in a slot has arrived.
    fn arrive(&mut self, index: usize, news: &mut News, clock: &mut Clock<'_>) {
        let slot = self.slots[index];
        if !matches!(slot.state, State::InFlight | State::Lost) {
            return;
        }
        news.any = true;
        self.set(index, State::Kept);
        let sent_ns = self.sent_ns(slot.tx);
        let age_ns = sent_ns.map_or(u64::MAX, |sent| clock.now_ns.saturating_sub(sent));
        let too_soon = slot.resent && age_ns < clock.rto.min_ns() / 4 * 3;
        if slot.state == State::Lost || too_soon {
            self.was_spurious(clock);
            return;
        }
        if self.arrived.is_none_or(|arrived| later(slot.tx, arrived)) {
            self.arrived = Some(slot.tx);
        }
        if let (false, Some(sent_ns)) = (slot.resent, sent_ns)
            && news.timed.is_none_or(|(tx, _)| later(slot.tx, tx))
        {
            news.timed = Some((slot.tx, sent_ns));
        }
    }

    fn was_spurious(&mut self, clock: &mut Clock<'_>) {
        clock.counters.spurious += 1;
        self.packet_threshold = (self.packet_threshold * 2).min(PACKET_THRESHOLD_MOST);
        self.time_eighths = (self.time_eighths + 1).min(TIME_EIGHTHS_MOST);
    }

    fn settle(&mut self, news: &News, clock: &mut Clock<'_>) {
        if let Some((_, sent_ns)) = news.timed {
            clock.rto.sample(clock.now_ns.saturating_sub(sent_ns));
        }
        if news.any {
            self.detect(clock);
        }
    }

    /// Judges transmissions from the oldest on, as far as is possible now.
    pub(crate) fn detect(&mut self, clock: &mut Clock<'_>) {
        self.loss_time_ns = None;
        let Some(arrived) = self.arrived else {
            return;
        };
        let rtt_ns = clock.rto.recent_ns().unwrap_or(0).max(LEAST_RTT_NS);
        let patience_ns = rtt_ns / 8 * self.time_eighths;
        while let Some(&oldest) = self.log.front() {
            let tx = self.log_first;
            if self.is_in_flight(oldest.psn, tx) {
                if !later(arrived, tx) {
                    return;
                }
                let overdue_ns = oldest.sent_ns.saturating_add(patience_ns);
                let overtaken = arrived.wrapping_sub(tx).cast_signed() >= self.packet_threshold;
                if !overtaken && clock.now_ns < overdue_ns {
                    self.loss_time_ns = Some(overdue_ns);
                    return;
                }
                clock.counters.lost += 1;
                let index = oldest.psn.distance_from(self.una);
                self.mark_lost(index.cast_unsigned() as usize);
            }
            self.log.pop_front();
            self.log_first = tx.wrapping_add(1);
        }
    }

    /// Whether this transmission is the last one of a packet of which nothing is known.
    fn is_in_flight(&self, psn: Psn, tx: u32) -> bool {
        self.slot(psn)
            .is_some_and(|slot| slot.state == State::InFlight && slot.tx == tx)
    }

    /// The peer says that it does not have this one.
    pub(crate) fn on_refused(&mut self, psn: Psn) {
        let index = psn.distance_from(self.una);
        if let Ok(index) = usize::try_from(index)
            && index < self.slots.len()
        {
            self.mark_lost(index);
        }
    }

    fn mark_lost(&mut self, index: usize) {
        if matches!(self.slots[index].state, State::InFlight | State::Kept) {
            self.set(index, State::Lost);
            self.lost.push_back(self.una.add(index as u32));
        }
    }

    pub(crate) fn probe(&mut self) -> bool {
        let last = self
            .slots
            .iter()
            .rposition(|slot| slot.state == State::InFlight);
        if let Some(index) = last {
            self.mark_lost(index);
        }
        self.next_lost().is_some()
    }

    pub(crate) fn on_timeout(&mut self) {
        self.lost.clear();
        if self
            .slots
            .front()
            .is_some_and(|slot| slot.state == State::Kept)
        {
            self.set(0, State::InFlight);
        }
        for index in 0..self.slots.len() {
            if matches!(self.slots[index].state, State::InFlight | State::Lost) {
                self.set(index, State::Lost);
                self.lost.push_back(self.una.add(index as u32));
            }
        }
        self.log_first = self.log_first.wrapping_add(self.log.len() as u32);
        self.log.clear();
        self.loss_time_ns = None;
    }

    fn sent_ns(&self, tx: u32) -> Option<u64> {
        let index = tx.wrapping_sub(self.log_first);
        self.log.get(index as usize).map(|entry| entry.sent_ns)
    }

    fn set(&mut self, index: usize, state: State) {
        let slot = &mut self.slots[index];
        self.settled_bytes -= slot.settled_bytes();
        slot.state = state;
        self.settled_bytes += slot.settled_bytes();
    }

    fn slot(&self, psn: Psn) -> Option<&Slot> {
        self.index(psn).map(|index| &self.slots[index])
    }

    fn index(&self, psn: Psn) -> Option<usize> {
        let index = usize::try_from(psn.distance_from(self.una)).ok()?;
        (index < self.slots.len()).then_some(index)
    }

    /// An idle queue pair stays small.
    fn give_back(&mut self) {
        if self.slots.is_empty() && self.slots.capacity() > 2 * KEPT_CAPACITY {
            self.slots.shrink_to(KEPT_CAPACITY);
            self.log.shrink_to(KEPT_CAPACITY);
            self.lost.shrink_to(KEPT_CAPACITY);
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Selective>()
            + self.slots.capacity() * size_of::<Slot>()
            + self.log.capacity() * size_of::<Transmission>()
            + self.lost.capacity() * size_of::<Psn>()
    }
}

/// Whether transmission `a` came after `b`.
fn later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::super::rto::Rto;
    use super::*;
    use crate::counters::Counters;

    /// Payload of every packet here.
    const BYTES: u16 = 1024;
    const RTT: u64 = 1_000_000;

    struct Bench {
        rto: Rto,
        counters: Counters,
        engine: Selective,
    }

    impl Bench {
        /// An engine that has sent PSNs 100 to 119, one each microsecond.
        fn new() -> Bench {
            let mut bench = Bench {
                rto: Rto::default(),
                counters: Counters::default(),
                engine: Selective::new(Psn::new(100)),
            };
            (0..20).for_each(|i| {
                bench
                    .engine
                    .on_sent(Psn::new(100 + i), 1, BYTES, u64::from(i) * 1000)
            });
            bench
        }

        fn with(&mut self, now_ns: u64, act: impl FnOnce(&mut Selective, &mut Clock<'_>)) {
            let mut clock = Clock {
                now_ns,
                rto: &mut self.rto,
                counters: &mut self.counters,
            };
            act(&mut self.engine, &mut clock);
        }

        /// A SACK that says: in order up to `cumulative`, and these are kept.
        fn sack(&mut self, now_ns: u64, cumulative: u32, kept: &[u32]) {
            let mut payload = vec![0; 12];
            for psn in kept {
                let bit = (psn - cumulative - 2) as usize;
                payload[4 + bit / 8] |= 1 << (bit % 8);
            }
            let cumulative = Psn::new(cumulative);
            let sack = Sack::decode(cumulative, &payload).unwrap();
            self.with(now_ns, |engine, clock| {
                if cumulative.distance_from(engine.una()) >= 0 {
                    engine.on_ack(cumulative, clock);
                }
                engine.on_sack(&sack, clock);
            });
        }

        /// Sends what is lost again and gives the PSNs.
        fn resend(&mut self, now_ns: u64) -> Vec<u32> {
            let mut sent = Vec::new();
            while let Some(psn) = self.engine.next_lost() {
                self.engine.on_sent(psn, 1, BYTES, now_ns);
                sent.push(psn.value());
            }
            sent
        }
    }

    #[test]
    fn what_arrived_or_is_lost_is_no_longer_on_its_way() {
        let mut bench = Bench::new();
        assert_eq!(bench.engine.settled_bytes(), 0);
        bench.sack(RTT, 101, &[103, 104, 105, 108]);
        // 102 is lost, 103, 104, 105 and 108 are kept.
        assert_eq!(bench.engine.settled_bytes(), 5 * u64::from(BYTES));
        assert_eq!(bench.resend(RTT), [102]);
        assert_eq!(bench.engine.settled_bytes(), 4 * u64::from(BYTES));
        bench.sack(2 * RTT, 119, &[]);
        assert_eq!(bench.engine.settled_bytes(), 0);
    }

    #[test]
    fn a_packet_is_lost_when_three_later_ones_arrived() {
        let mut bench = Bench::new();
        bench.sack(RTT, 101, &[103]);
        assert_eq!(bench.resend(RTT), []);
        bench.sack(RTT, 101, &[103, 104]);
        assert_eq!(bench.resend(RTT), []);
        bench.sack(RTT, 101, &[103, 104, 105, 108]);
        assert_eq!(bench.resend(RTT), [102]);
        bench.sack(RTT, 101, &[103, 104, 105, 108, 109]);
        assert_eq!(bench.resend(RTT), [106]);
        assert_eq!(bench.engine.una(), Psn::new(102));
    }

    #[test]
    fn a_packet_is_lost_when_one_later_arrived_and_time_went_by() {
        let mut bench = Bench::new();
        bench.sack(RTT, 117, &[119]);
        assert_eq!(bench.resend(RTT), []);
        let loss_ns = bench.engine.loss_time_ns().unwrap();
        assert!((RTT..RTT * 5 / 4).contains(&loss_ns), "{loss_ns}");
        bench.with(loss_ns, |engine, clock| engine.detect(clock));
        assert_eq!(bench.resend(loss_ns), [118]);
        assert_eq!(bench.engine.loss_time_ns(), None);
    }

    #[test]
    fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
        let mut bench = Bench::new();
        bench.sack(RTT, 99, &[101, 102, 103]);
        assert_eq!(bench.resend(RTT), [100]);
        bench.sack(RTT + 1, 99, &[101, 102, 103, 104, 105, 106, 107, 108]);
        assert_eq!(
            bench.resend(RTT + 1),
            [],
            "all of these were sent before it"
        );
        (120..124).for_each(|psn| bench.engine.on_sent(Psn::new(psn), 1, BYTES, RTT + 2));
        let kept: Vec<u32> = (101..123).collect();
        bench.sack(2 * RTT, 99, &kept);
        assert_eq!(bench.resend(2 * RTT), [100]);
        bench.with(3 * RTT, |engine, clock| engine.on_ack(Psn::new(123), clock));
        assert_eq!(bench.engine.next(), Psn::new(124));
        assert_eq!(bench.counters.spurious, 0);
    }

    #[test]
    fn a_loss_that_was_none_makes_it_more_patient() {
        let mut bench = Bench::new();
        bench.sack(RTT, 99, &[101, 102, 103]);
        assert_eq!(bench.resend(RTT), [100]);
        bench.sack(RTT + 1000, 107, &[]);
        assert_eq!(bench.counters.spurious, 1);
        bench.sack(RTT + 2000, 107, &[109, 110, 111, 112, 113]);
        assert_eq!(bench.resend(RTT + 2000), []);
        bench.sack(RTT + 2000, 107, &[109, 110, 111, 112, 113, 114]);
        assert_eq!(bench.resend(RTT + 2000), [108]);
    }

    #[test]
    fn what_follows_the_cumulative_psn_is_missing_whatever_was_said_before() {
        let mut bench = Bench::new();
        bench.sack(RTT, 99, &[101, 102]);
        bench.sack(RTT, 100, &[102]);
        assert_eq!(bench.resend(RTT), [101]);
    }

    #[test]
    fn a_probe_is_the_last_packet_and_a_timeout_all_that_is_not_kept() {
        let mut bench = Bench::new();
        bench.sack(RTT, 116, &[118]);
        assert_eq!(bench.resend(RTT), []);
        assert!(bench.engine.probe());
        assert_eq!(bench.resend(RTT), [119]);
        bench.engine.on_timeout();
        assert_eq!(bench.resend(RTT), [117, 119]);
    }

    #[test]
    fn answers_of_reads_are_no_packets() {
        let mut bench = Bench::new();
        bench.engine.on_sent(Psn::new(120), 50, BYTES, 1);
        assert_eq!(bench.engine.next(), Psn::new(170));
        bench.engine.on_timeout();
        assert_eq!(bench.resend(RTT).last(), Some(&120));
        bench.with(RTT, |engine, clock| engine.on_ack(Psn::new(169), clock));
        assert_eq!(bench.engine.una(), bench.engine.next());
    }

    #[test]
    fn acknowledged_packets_leave_nothing_behind() {
        let mut bench = Bench::new();
        for round in 0..1000u32 {
            let base = 120 + round * 100;
            (0..100).for_each(|i| bench.engine.on_sent(Psn::new(base + i), 1, BYTES, 1));
            bench.with(2, |engine, clock| engine.on_ack(Psn::new(base + 99), clock));
        }
        assert!(bench.engine.log.is_empty() && bench.engine.slots.is_empty());
        assert!(bench.engine.heap_bytes() < 16 << 10);
    }
}
