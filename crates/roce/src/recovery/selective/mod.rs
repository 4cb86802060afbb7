//! Selective repeat: retransmits only lost packets.
//!
//! The peer reports in SACKs what it keeps. Losses are detected in the order of transmissions, not
//! of PSNs, so lost retransmissions are detected alike (as in QUIC, RFC 9002, 6.1): a transmission
//! is lost when a later one arrived and either [`PACKET_THRESHOLD`] were sent in between or 9/8 of
//! a round trip has passed. A spurious loss raises both thresholds, so that reordering does not
//! cause a flood of copies.
//!
//! Two queues hold the state. `slots` has an entry for each PSN from `una` to `next`, `log` one for
//! each transmission still undecided, oldest first. Every entry is pushed and popped once, so the
//! work for an acknowledgement is its words of 64 bits plus the entries that it resolves.
use super::Clock;
use super::bits::{Bits, ones};
use super::sack::Sack;
use crate::Psn;
use crate::pacing::Progress;
use std::collections::VecDeque;

/// Later transmissions that may arrive before an earlier one counts as lost.
const PACKET_THRESHOLD: i32 = 3;
const PACKET_THRESHOLD_MOST: i32 = 96;
/// Time threshold, in eighths of the round trip.
const TIME_EIGHTHS: u64 = 9;
const TIME_EIGHTHS_MOST: u64 = 16;
/// Lower bound of the round trip for the time threshold.
const LEAST_RTT_NS: u64 = 50_000;
/// Capacity that an empty queue keeps.
const KEPT_CAPACITY: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Sent and undecided.
    InFlight,
    /// In the queue `lost`.
    Lost,
    /// Kept by the peer.
    Kept,
    /// A PSN of READ responses, without a request packet.
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
    pub(crate) una: Psn,
    slots: VecDeque<Slot>,
    /// Which slots are [`State::Kept`]: a SACK repeats what those before it said.
    kept: Bits,
    log: VecDeque<Transmission>,
    /// Number of the first transmission in `log`.
    log_first: u32,
    /// The latest transmission known to have arrived, if any did.
    arrived: Option<u32>,
    /// The latest retransmission that the peer has answered, if it has any. What was sent before it may have arrived long
    /// ago, and the acknowledgement have been lost (Karn).
    answered: Option<u32>,
    lost: VecDeque<Psn>,
    /// Payload of the packets in `slots` that are not in flight: kept by the peer, or lost.
    pub(crate) settled_bytes: u64,
    /// What arrived and what was lost.
    pub(crate) progress: Progress,
    pub(crate) loss_time_ns: Option<u64>,
    /// When the first packet left: a bound for the first round trip, if what arrives was sent twice and nobody
    /// knows which it was.
    first_sent_ns: Option<u64>,
    packet_threshold: i32,
    time_eighths: u64,
}

/// What one acknowledgement reported.
#[derive(Default)]
struct News {
    any: bool,
    /// The packet of the latest transmission.
    latest: Option<Slot>,
}

impl Selective {
    pub(crate) fn new(first: Psn) -> Self {
        Self {
            una: first,
            slots: VecDeque::new(),
            kept: Bits::default(),
            log: VecDeque::new(),
            log_first: 0,
            arrived: None,
            answered: None,
            lost: VecDeque::new(),
            settled_bytes: 0,
            progress: Progress::default(),
            loss_time_ns: None,
            first_sent_ns: None,
            packet_threshold: PACKET_THRESHOLD,
            time_eighths: TIME_EIGHTHS,
        }
    }

    pub(crate) fn next(&self) -> Psn {
        self.una.add(self.slots.len() as u32)
    }

    /// Notes a transmission; `bytes` matters for a new packet only.
    pub(crate) fn on_sent(&mut self, psn: Psn, span: u32, bytes: u16, now_ns: u64) {
        self.first_sent_ns.get_or_insert(now_ns);
        let tx = self.next_transmission();
        self.log.push_back(Transmission { psn, sent_ns: now_ns });
        if psn == self.next() {
            self.push_new(tx, span, bytes);
        } else if let Some(index) = self.index(psn) {
            self.set(index, State::InFlight);
            self.slots[index].tx = tx;
            self.slots[index].resent = true;
        }
    }

    pub(crate) fn next_transmission(&self) -> u32 {
        self.log_first.wrapping_add(self.log.len() as u32)
    }

    pub(crate) fn has_arrived(&self, transmission: u32) -> bool {
        self.arrived.is_some_and(|arrived| !later(transmission, arrived))
    }

    fn push_new(&mut self, tx: u32, span: u32, bytes: u16) {
        for index in 0..span {
            let state = if index == 0 { State::InFlight } else { State::Covered };
            self.slots.push_back(Slot { tx, bytes, state, resent: false });
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
            self.kept.advance(1);
            self.una = self.una.next();
        }
        self.settle(&news, clock);
        self.give_back();
    }

    pub(crate) fn on_sack(&mut self, sack: &Sack<'_>, clock: &mut Clock<'_>) -> bool {
        let base = sack.cumulative.distance_from(self.una);
        let mut news = News::default();
        self.each_new(sack, |engine, index| engine.arrive(index, &mut news, clock));
        // The PSN after the cumulative one is missing, whatever an earlier SACK reported.
        if base == -1 && self.slots.front().is_some_and(|slot| slot.state == State::Kept) {
            self.mark_lost(0);
        }
        self.settle(&news, clock);
        news.any
    }

    /// Notes that the peer has answered what is kept.
    pub(crate) fn on_kept(&mut self, sack: &Sack<'_>) {
        self.each_new(sack, |engine, index| engine.note_answer(engine.slots[index]));
    }

    /// Calls `act` with the slots that a SACK says are kept and that were not known to be, ascending.
    fn each_new(&mut self, sack: &Sack<'_>, mut act: impl FnMut(&mut Self, usize)) {
        let base = i64::from(sack.cumulative.distance_from(self.una));
        for (distance, bits) in sack.words() {
            let first = base + i64::from(distance);
            // An old one may begin before the window.
            let before = u32::try_from(-first).unwrap_or(0);
            let (first, bits) = (first.max(0) as usize, bits.checked_shr(before).unwrap_or(0));
            for bit in ones(bits & !self.kept.word_at(first)) {
                let index = first + bit as usize;
                if index >= self.slots.len() {
                    return;
                }
                act(self, index);
            }
        }
    }

    /// Notes that the packet in a slot has arrived.
    fn arrive(&mut self, index: usize, news: &mut News, clock: &mut Clock<'_>) {
        let slot = self.slots[index];
        if !matches!(slot.state, State::InFlight | State::Lost) {
            return;
        }
        news.any = true;
        clock.counters.acknowledged += 1;
        self.progress.packets += 1;
        self.progress.bytes += u64::from(slot.bytes);
        self.set(index, State::Kept);
        let sent_ns = self.sent_ns(slot.tx);
        let age_ns = sent_ns.map_or(u64::MAX, |sent| clock.now_ns.saturating_sub(sent));
        let too_soon = slot.resent && age_ns < clock.rto.min_ns / 4 * 3;
        if slot.state == State::Lost || too_soon {
            self.was_spurious(clock);
            return;
        }
        if self.arrived.is_none_or(|arrived| later(slot.tx, arrived)) {
            self.arrived = Some(slot.tx);
        }
        self.note_answer(slot);
        if news.latest.is_none_or(|latest| later(slot.tx, latest.tx)) {
            news.latest = Some(slot);
        }
    }

    fn note_answer(&mut self, slot: Slot) {
        let is_latest = self.answered.is_none_or(|answered| later(slot.tx, answered));
        if slot.resent && slot.state == State::InFlight && is_latest {
            self.answered = Some(slot.tx);
        }
    }

    /// Notes that the peer has answered this packet, whether or not it took it.
    pub(crate) fn on_answered(&mut self, psn: Psn) {
        if let Some(&slot) = self.slot(psn) {
            self.note_answer(slot);
        }
    }

    fn was_spurious(&mut self, clock: &mut Clock<'_>) {
        clock.counters.spurious += 1;
        self.packet_threshold = (self.packet_threshold * 2).min(PACKET_THRESHOLD_MOST);
        self.time_eighths = (self.time_eighths + 1).min(TIME_EIGHTHS_MOST);
    }

    /// Learns of the round trip from the latest transmission that an acknowledgement reported.
    fn measure(&self, latest: Slot, clock: &mut Clock<'_>) {
        let age_ns = |sent_ns| clock.now_ns.saturating_sub(sent_ns);
        if latest.resent {
            // Nobody knows which of several arrived.
            if let Some(bound_ns) = self.first_sent_ns.map(age_ns) {
                clock.rto.bound(bound_ns);
            }
        } else if self.answered.is_none_or(|answered| later(latest.tx, answered))
            && let Some(rtt_ns) = self.sent_ns(latest.tx).map(age_ns)
        {
            clock.rto.sample(rtt_ns);
        }
    }

    fn settle(&mut self, news: &News, clock: &mut Clock<'_>) {
        if let Some(latest) = news.latest {
            self.measure(latest, clock);
        }
        if news.any {
            self.detect(clock);
        }
        // All before it is decided; numbers come round.
        self.answered = self.answered.filter(|answered| !later(self.log_first, *answered));
    }

    /// Decides about transmissions from the oldest on, as far as possible now.
    pub(crate) fn detect(&mut self, clock: &mut Clock<'_>) {
        self.loss_time_ns = None;
        let Some(arrived) = self.arrived else { return };
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
                self.progress.lost += 1;
                self.mark_lost(oldest.psn.distance_from(self.una).cast_unsigned() as usize);
            }
            self.log.pop_front();
            self.log_first = tx.wrapping_add(1);
        }
    }

    /// Returns whether this transmission is the last one of an undecided packet.
    fn is_in_flight(&self, psn: Psn, tx: u32) -> bool {
        self.slot(psn).is_some_and(|slot| slot.state == State::InFlight && slot.tx == tx)
    }

    /// Notes that the peer does not have this packet.
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
        let last = self.slots.iter().rposition(|slot| slot.state == State::InFlight);
        if let Some(index) = last {
            self.mark_lost(index);
        }
        self.next_lost().is_some()
    }

    pub(crate) fn on_timeout(&mut self) {
        self.lost.clear();
        if self.slots.front().is_some_and(|slot| slot.state == State::Kept) {
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
        self.kept.set(index, state == State::Kept);
    }

    fn slot(&self, psn: Psn) -> Option<&Slot> {
        self.index(psn).map(|index| &self.slots[index])
    }

    fn index(&self, psn: Psn) -> Option<usize> {
        let index = usize::try_from(psn.distance_from(self.una)).ok()?;
        (index < self.slots.len()).then_some(index)
    }

    /// Shrinks empty queues, so that an idle queue pair stays small.
    fn give_back(&mut self) {
        if self.slots.is_empty() && self.slots.capacity() > 2 * KEPT_CAPACITY {
            self.slots.shrink_to(KEPT_CAPACITY);
            self.log.shrink_to(KEPT_CAPACITY);
            self.lost.shrink_to(KEPT_CAPACITY);
            self.kept.give_back(KEPT_CAPACITY);
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + self.slots.capacity() * size_of::<Slot>()
            + self.kept.heap_bytes()
            + self.log.capacity() * size_of::<Transmission>()
            + self.lost.capacity() * size_of::<Psn>()
    }
}

/// Returns whether transmission `a` came after `b`.
fn later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

#[cfg(test)]
mod tests;
