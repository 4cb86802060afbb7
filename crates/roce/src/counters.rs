//! Counters of a queue pair. They only grow.
use std::ops::AddAssign;

/// Defines counters, and their sum over queue pairs.
macro_rules! counters {
    ($(#[$of:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident,)* }) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name { $($(#[$doc])* pub $field: u64,)* }

        impl AddAssign<&$name> for $name {
            fn add_assign(&mut self, one: &$name) {
                $(self.$field += one.$field;)*
            }
        }
    };
}

counters! {
    /// Counters of one queue pair since it was made; a reset to RESET keeps them.
    pub struct Counters {
        /// Data packets sent: requests and READ responses, with retransmissions.
        pub packets_sent,
        /// Payload bytes of them.
        pub bytes_sent,
        /// Request packets that the peer said it has.
        pub acknowledged,
        /// Request packets retransmitted.
        pub retransmitted,
        /// Packets detected as lost because later ones arrived.
        pub lost,
        /// Retransmitted although they had arrived: acknowledged too soon for the second one.
        pub spurious,
        /// READ response packets sent again, because the peer repeated its request.
        pub responses_repeated,
        /// Retransmission timeouts.
        pub timeouts,
        /// Tail loss probes.
        pub probes,
        /// Requests of READ parts and atomics repeated.
        pub reads_repeated,
        /// NAK PSN sequence error received.
        pub sequence_naks_received,
        /// RNR NAKs received.
        pub rnr_naks_received,
        /// NAKs that would have ended the connection, and that the peer did not send: it said so when
        /// asked.
        pub forged_naks,
        /// CNPs received.
        pub cnps_received,
        /// Of these, those that did not count: no packet was in flight that a switch could mark, or one had
        /// counted in this round trip.
        pub cnps_ignored,
        /// CNPs sent.
        pub cnps_sent,
        /// Packets received, after the driver's checks.
        pub packets_received,
        /// Payload bytes of requests and READ responses that were put in place.
        pub bytes_received,
        /// Duplicate requests received.
        pub duplicates,
        /// Requests that arrived before an earlier one.
        pub out_of_order,
        /// Of these, those kept until the gap was filled (selective repeat).
        pub reordered,
        /// NAK PSN sequence error sent.
        pub sequence_naks_sent,
        /// RNR NAKs sent.
        pub rnr_naks_sent,
        /// NAKs sent that end the connection.
        pub fatal_naks_sent,
        /// Packets dropped: of another service type or partition, not valid in this state, with the
        /// wrong Q_Key, or responses to no request.
        pub dropped,
        /// Messages dropped on UC and UD: incomplete, no receive, or no right.
        pub messages_dropped,
    }
}
