//! Why a packet was dropped without an answer: one counter each.

/// Defines the reasons, each with its name as a counter: lower case with underscores.
macro_rules! reasons {
    ($(#[$of:meta])* pub enum DropReason { $($(#[$doc:meta])* $reason:ident = $name:literal,)* }) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $reason,)* }

        impl DropReason {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$reason),*];

            /// How many there are.
            pub const COUNT: usize = [$($name),*].len();

            /// Returns the name as a counter.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// Why a packet was dropped without an answer (IBTA volume 1, 9.6).
    ///
    /// `reason as usize` is an index below [`DropReason::COUNT`].
    pub enum DropReason {
        /// Shorter than its headers.
        TooShort = "too_short",
        /// The length or the pad count is invalid.
        Misaligned = "misaligned",
        /// An unsupported opcode.
        UnknownOpcode = "unknown_opcode",
        /// Another version of the transport.
        TransportVersion = "transport_version",
        /// A payload with an opcode that has none.
        UnexpectedPayload = "unexpected_payload",
        /// The invariant CRC does not match.
        Icrc = "icrc",
        /// Not for the default partition.
        PartitionKey = "partition_key",
        /// No queue pair with this number, or not in a state to receive.
        UnknownQp = "unknown_qp",
        /// Not from the address that the queue pair is connected to.
        WrongPeer = "wrong_peer",
        /// Not from the UDP port that the peer has told.
        WrongPort = "wrong_port",
        /// Not sealed with the key of the peer, whose packets are authenticated.
        Forged = "forged",
        /// Sealed by the peer, but it came before.
        Replayed = "replayed",
        /// Not for a queue pair of this transport.
        WrongTransport = "wrong_transport",
        /// The queue pair has another Q_Key.
        QueueKey = "queue_key",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn reasons_are_indices_and_have_names_of_their_own() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{reason:?}");
        }
        let names: BTreeSet<_> = DropReason::ALL.map(DropReason::name).into();
        assert_eq!(names.len(), DropReason::COUNT);
    }
}
