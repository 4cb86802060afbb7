//! Sent packets: some of each queue pair in turn, gathered from registered memory.
use super::entry::QpEntry;
use super::{Engine, tuning};
use crate::device_core::DeviceCore;
use crate::io::{self, Full, Route, SendBatch};
use crate::keys::KeyTable;
use crate::memory::{PdMemory, local};
use catchment_roce::{Counters, OutPacket, Piece, QpState, TransmitBatch};
use catchment_verbs::QpState as PublicState;

/// Timeouts, NAKs and repeated requests of the peer before trains are suspected.
const COMPLAINTS: u64 = 8;

impl Engine {
    /// Sends what may be sent; returns whether anything was, and whether the socket is full.
    pub(super) fn transmit(&mut self, device: &DeviceCore, keys: &KeyTable) -> (bool, bool) {
        if self.faults.is_some() {
            let sent = self.transmit_with_faults(device, keys);
            self.complete_sent();
            return (sent, false);
        }
        let mut packets = 0;
        while packets < tuning::PACKETS_PER_TURN && !self.ready.is_empty() {
            if self.batch.room_packets() < tuning::PACKETS_PER_QP && self.flush(device) {
                return (packets > 0, true);
            }
            packets += self.transmit_next(device.now_ns(), keys, |engine, index| {
                engine.gather(index, device, keys);
            });
        }
        let waiting = self.batch.waiting_packets() > 0;
        let blocked = waiting && self.flush(device);
        if !blocked {
            self.complete_sent();
        }
        (packets > 0, blocked)
    }

    #[cold]
    fn sent_last(&mut self, index: usize, failed: bool) {
        if failed {
            self.touch(index);
        } else {
            self.sent.push(index);
        }
    }

    /// Settles requests without acknowledgement: all packets are with the kernel.
    fn complete_sent(&mut self) {
        while let Some(index) = self.sent.pop() {
            self.touch(index);
        }
    }

    /// Lets the queue pair whose turn it is fill the batch of packets, and calls `each` if it did;
    /// how many there are.
    pub(super) fn transmit_next(
        &mut self,
        now_ns: u64,
        keys: &KeyTable,
        each: impl FnOnce(&mut Self, usize),
    ) -> usize {
        let Some(index) = self.ready.pop_front() else { return 0 };
        let Some(entry) = self.qps.get(index) else { return 0 };
        entry.is_ready = false;
        self.first_new = entry.qp.next_psn();
        self.packets.clear();
        let count = poll(entry, now_ns, keys, &mut self.packets);
        // What a READ of the peer reads may have gone away, or requests of UC and UD are sent.
        let failed = entry.qp.state() == QpState::Err && entry.shared.state() != PublicState::Err;
        if entry.qp.has_completions() | failed {
            self.sent_last(index, failed);
        }
        if count > 0 {
            each(self, index);
            // Only a queue pair without packets has none: answers to READs fill half of a batch.
            self.make_ready(index);
        }
        self.set_timer(index);
        count
    }

    /// Puts the packets of a queue pair into the send batch.
    fn gather(&mut self, index: usize, device: &DeviceCore, keys: &KeyTable) {
        let route = self.qps.get(index).and_then(|qp| qp.route(&self.packets));
        let Some(route) = route else { return };
        let to = (index, &route);
        let packets = std::mem::take(&mut self.packets);
        for packet in tuning::send_order(packets.packets()) {
            self.gather_one(to, &packets, packet, device, keys);
        }
        self.packets = packets;
        self.held.add(index, self.first_new, &self.batch);
    }

    fn gather_one(
        &mut self,
        to: (usize, &Route),
        packets: &TransmitBatch,
        packet: &OutPacket,
        device: &DeviceCore,
        keys: &KeyTable,
    ) {
        let mut pushed = self.push(to, packets, packet, keys);
        if matches!(pushed, Err(Full::NoRoom(_))) {
            self.flush(device);
            pushed = self.push(to, packets, packet, keys);
        }
        if let Err(error) = pushed {
            // As if the network had lost it.
            tracing::debug!(%error, "packet not sent");
        }
    }

    fn push(
        &mut self,
        (index, route): (usize, &Route),
        packets: &TransmitBatch,
        packet: &OutPacket,
        keys: &KeyTable,
    ) -> Result<(), Full> {
        let Some(entry) = self.qps.get(index) else { return Ok(()) };
        let sealer = entry.sealer.as_ref();
        match packets.pieces(packet) {
            [] => self.batch.push_sealed(route, sealer, packet.header(), &[]),
            [Piece::Batch { start, bytes }] => {
                self.head.clear();
                self.head.extend_from_slice(packet.header());
                self.head.extend_from_slice(packets.bytes(*start, *bytes));
                self.batch.push_sealed(route, sealer, &self.head, &[])
            }
            [piece] => match resolve(entry, keys, piece) {
                Some(piece) => self.batch.push_sealed(route, sealer, packet.header(), &[piece]),
                None => Ok(()),
            },
            many => push_many(&mut self.batch, route, packet.header(), entry, keys, many),
        }
    }

    /// An RNIC drops packets of trains over IPv4 that the path numbers differently from the ICRC:
    /// hardly one arrives at the first attempt. Such a peer gets single packets.
    #[inline]
    pub(super) fn suspect_gso(&mut self, index: usize) {
        let Some(entry) = self.qps.get(index).filter(|entry| entry.trusts_gso) else { return };
        if !lose_most(entry.qp.counters()) {
            return;
        }
        entry.trusts_gso = false;
        if let Some(peer) = entry.peer {
            tracing::warn!(
                peer = %peer.address,
                "most packets are lost; sending them one by one, in case the path renumbers the \
                 packets of trains"
            );
            self.batch.refuse_gso(peer.address);
        }
    }

    /// Hands packets to the kernel; true if some must wait.
    fn flush(&mut self, device: &DeviceCore) -> bool {
        let done = self.batch.flush(&*device.datagrams);
        for fault in self.batch.take_faults() {
            tracing::debug!(%fault, "packets not sent");
        }
        if done.blocked.is_none() {
            self.held.clear();
        }
        done.blocked.is_some()
    }
}

/// Returns whether most packets of a queue pair had to be sent again, requests of ours or answers
/// to READs.
fn lose_most(counters: &Counters) -> bool {
    let complaints = counters.timeouts + counters.sequence_naks_received + counters.duplicates;
    let again = counters.retransmitted + counters.responses_repeated;
    complaints >= COMPLAINTS && again > 0 && again * 2 >= counters.packets_sent
}

/// Asks a queue pair for packets.
fn poll(entry: &mut QpEntry, now_ns: u64, keys: &KeyTable, packets: &mut TransmitBatch) -> usize {
    let memory = PdMemory {
        keys,
        pd: entry.pd,
        sends: &entry.sends,
        recvs: &entry.recvs,
        written: &mut Vec::new(),
    };
    entry.qp.poll_transmit(now_ns, &memory, packets)
}

/// Payload from several pieces of memory.
#[cold]
fn push_many(
    batch: &mut SendBatch,
    route: &Route,
    head: &[u8],
    entry: &QpEntry,
    keys: &KeyTable,
    pieces: &[Piece],
) -> Result<(), Full> {
    let found: Option<Vec<_>> = pieces.iter().map(|piece| resolve(entry, keys, piece)).collect();
    match found {
        Some(found) => batch.push_sealed(route, entry.sealer.as_ref(), head, &found),
        None => Ok(()),
    }
}

/// Returns where a piece of a payload lies; `None` for revoked memory, which the protocol excludes,
/// and for bytes of the batch.
pub(super) fn resolve<'a>(
    entry: &'a QpEntry,
    keys: &'a KeyTable,
    piece: &Piece,
) -> Option<io::Piece<'a>> {
    let (mr, addr, bytes) = match *piece {
        Piece::Local { lkey, addr, bytes } => {
            let mr = local(keys, &entry.sends, &entry.recvs, lkey)?;
            (mr, addr, bytes)
        }
        Piece::Remote { rkey, va, bytes } => (keys.lookup(rkey)?, va, bytes),
        Piece::Batch { .. } => return None,
    };
    let region = &mr.region;
    Some(io::Piece {
        region,
        offset: usize::try_from(addr.checked_sub(region.addr())?).ok()?,
        bytes: bytes as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losing_most_of_requests_or_answers_is_told_from_losing_some() {
        let requests = |complaints, again, sent| {
            let mut counters = Counters::default();
            counters.timeouts = complaints / 2;
            counters.sequence_naks_received = complaints - complaints / 2;
            (counters.retransmitted, counters.packets_sent) = (again, sent);
            counters
        };
        let answers = |complaints, again, sent| {
            let mut counters = Counters::default();
            counters.duplicates = complaints;
            (counters.responses_repeated, counters.packets_sent) = (again, sent);
            counters
        };
        for made in [requests, answers] {
            assert!(lose_most(&made(8, 50, 100)));
            assert!(!lose_most(&made(7, 50, 100)), "too few to decide");
            assert!(!lose_most(&made(100, 49, 100)), "most got through");
        }
        // Duplicate requests of the peer do not count: they are no loss of ours.
        assert!(!lose_most(&answers(100, 0, 0)));
    }
}
