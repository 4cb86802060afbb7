//! Counters of a device.
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
    /// Bytes of memory that they use now.
    pub queue_pair_bytes: u64,
    /// Totals of all queue pairs, destroyed ones too: packets, bytes, retransmissions, NAKs, CNPs.
    pub protocol: Counters,
    /// What was sent, acknowledgements included. Packets per message is the ratio of GSO.
    pub sent: SendCounters,
    /// What was received. Packets per message is the ratio of GRO.
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
    /// Peers that get single packets all the same, because trains did not arrive.
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
