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
    /// Returns the number of packets dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets in one message to the kernel, on average.
    pub fn gso_ratio(&self) -> f64 {
        self.sent.packets as f64 / self.sent.messages.max(1) as f64
    }
}
