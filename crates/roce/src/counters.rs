//! What a queue pair counts. All grow only.

/// Counters of one queue pair since it was made; a reset to RESET keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Data packets sent: requests and READ responses, with those sent again.
    pub packets_sent: u64,
    /// Payload bytes of them.
    pub bytes_sent: u64,
    /// Request packets sent again.
    pub retransmitted: u64,
    /// Packets found lost by later ones that arrived.
    pub lost: u64,
    /// Sent again although they had arrived: acknowledged before the second one could be.
    pub spurious: u64,
    /// READ response packets sent again, because the peer asked again.
    pub responses_repeated: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Probes of a silent tail.
    pub probes: u64,
    /// Parts of READs and atomics asked for again.
    pub reads_repeated: u64,
    /// NAK PSN sequence error received.
    pub sequence_naks_received: u64,
    /// RNR NAKs received.
    pub rnr_naks_received: u64,
    /// CNPs received.
    pub cnps_received: u64,
    /// CNPs sent.
    pub cnps_sent: u64,
    /// Packets received, after the driver's checks.
    pub packets_received: u64,
    /// Payload bytes of requests and READ responses that were put in place.
    pub bytes_received: u64,
    /// Duplicate requests received.
    pub duplicates: u64,
    /// Requests that came before an earlier one.
    pub out_of_order: u64,
    /// Of these, those kept until the gap was filled (selective repeat).
    pub reordered: u64,
    /// NAK PSN sequence error sent.
    pub sequence_naks_sent: u64,
    /// RNR NAKs sent.
    pub rnr_naks_sent: u64,
    /// NAKs sent that end the connection.
    pub fatal_naks_sent: u64,
    /// Packets dropped: they do not belong to this service type or partition, to this state, carry
    /// the wrong Q_Key, or answer nothing that was asked.
    pub dropped: u64,
    /// Messages dropped on UC and UD: incomplete, no receive, or no right.
    pub messages_dropped: u64,
}
