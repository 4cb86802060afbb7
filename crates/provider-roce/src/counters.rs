//! What a device counts.
use crate::FaultCounters;
use crate::io::{RecvCounters, SendCounters};
use catchment_roce::Counters;
use catchment_roce::wire::DropReason;

/// What a device has counted since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCounters {
    /// Queue pairs now.
    pub queue_pairs: u64,
    /// Bytes of memory that they take now.
    pub queue_pair_bytes: u64,
    /// What all queue pairs counted, those that are gone too: data packets and bytes, what was sent
    /// again, NAKs, RNR NAKs, CNPs.
    pub protocol: Counters,
    /// What went out, acknowledgements too. Packets by messages is the ratio of GSO.
    pub sent: SendCounters,
    /// What came in. Packets by messages is the ratio of GRO.
    pub received: RecvCounters,
    /// Receive calls that failed.
    pub receive_errors: u64,
    /// Packets dropped before any queue pair saw them, by [`DropReason`] as index.
    pub dropped: [u64; DropReason::COUNT],
    /// Faults that were injected; `None` without [`crate::RoceOptions::fault`].
    pub faults: Option<FaultCounters>,
    /// The kernel cuts trains for this device.
    pub gso: bool,
    /// The kernel merges packets for this device.
    pub gro: bool,
    /// Peers that get packets one by one all the same, because trains did not get through.
    pub gso_refused_peers: u64,
}

impl DeviceCounters {
    /// Packets dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets in one message to the kernel, on average.
    pub fn gso_ratio(&self) -> f64 {
        self.sent.packets as f64 / self.sent.messages.max(1) as f64
    }
}

/// Adds what a queue pair counted.
pub(crate) fn add(sum: &mut Counters, one: &Counters) {
    let fields: [(&mut u64, u64); 23] = [
        (&mut sum.packets_sent, one.packets_sent),
        (&mut sum.bytes_sent, one.bytes_sent),
        (&mut sum.retransmitted, one.retransmitted),
        (&mut sum.responses_repeated, one.responses_repeated),
        (&mut sum.lost, one.lost),
        (&mut sum.spurious, one.spurious),
        (&mut sum.timeouts, one.timeouts),
        (&mut sum.probes, one.probes),
        (&mut sum.reads_repeated, one.reads_repeated),
        (&mut sum.sequence_naks_received, one.sequence_naks_received),
        (&mut sum.rnr_naks_received, one.rnr_naks_received),
        (&mut sum.cnps_received, one.cnps_received),
        (&mut sum.cnps_sent, one.cnps_sent),
        (&mut sum.packets_received, one.packets_received),
        (&mut sum.bytes_received, one.bytes_received),
        (&mut sum.duplicates, one.duplicates),
        (&mut sum.out_of_order, one.out_of_order),
        (&mut sum.reordered, one.reordered),
        (&mut sum.sequence_naks_sent, one.sequence_naks_sent),
        (&mut sum.rnr_naks_sent, one.rnr_naks_sent),
        (&mut sum.fatal_naks_sent, one.fatal_naks_sent),
        (&mut sum.dropped, one.dropped),
        (&mut sum.messages_dropped, one.messages_dropped),
    ];
    for (total, part) in fields {
        *total += part;
    }
}
