//! Why a packet was dropped without an answer: one counter each.

/// Why a packet was dropped without an answer (IBTA volume 1, 9.6).
///
/// `reason as usize` is an index below [`DropReason::COUNT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum DropReason {
    /// Shorter than its headers.
    TooShort,
    /// Length, or count of pad bytes, is not that of a padded packet.
    Misaligned,
    /// No opcode that is spoken here.
    UnknownOpcode,
    /// Another version of the transport.
    TransportVersion,
    /// A payload where its opcode has none.
    UnexpectedPayload,
    /// The invariant CRC does not match.
    Icrc,
    /// Not for the default partition.
    PartitionKey,
    /// No queue pair of this number, or not in a state to receive.
    UnknownQp,
    /// Not from the address that the queue pair is connected to.
    WrongPeer,
    /// Not for a queue pair of this transport.
    WrongTransport,
    /// The queue pair has another Q_Key.
    QueueKey,
}

impl DropReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::TooShort,
        Self::Misaligned,
        Self::UnknownOpcode,
        Self::TransportVersion,
        Self::UnexpectedPayload,
        Self::Icrc,
        Self::PartitionKey,
        Self::UnknownQp,
        Self::WrongPeer,
        Self::WrongTransport,
        Self::QueueKey,
    ];

    /// How many there are.
    pub const COUNT: usize = 11;

    /// The name as a counter: lower case with underscores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::Misaligned => "misaligned",
            Self::UnknownOpcode => "unknown_opcode",
            Self::TransportVersion => "transport_version",
            Self::UnexpectedPayload => "unexpected_payload",
            Self::Icrc => "icrc",
            Self::PartitionKey => "partition_key",
            Self::UnknownQp => "unknown_qp",
            Self::WrongPeer => "wrong_peer",
            Self::WrongTransport => "wrong_transport",
            Self::QueueKey => "queue_key",
        }
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
