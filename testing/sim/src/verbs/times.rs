//! How long operations take.
use std::time::Duration;

/// Times of one kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpTime {
    /// The queue pair's pipe is taken for so long: the next request begins afterwards.
    pub occupies: Duration,
    /// And for so long for each byte, in picoseconds.
    pub occupies_ps_per_byte: u64,
    /// From then until the effect is there, or a READ takes its bytes.
    pub reaches: Duration,
    /// From the effect until the requester can poll the completion.
    pub returns: Duration,
}

impl OpTime {
    /// So long in the pipe, effect and completion at its end.
    pub fn occupying(time: Duration) -> Self {
        Self { occupies: time, ..Self::default() }
    }

    /// Beside other requests: the effect half way, the completion at the end of this time.
    pub fn round_trip(time: Duration) -> Self {
        Self { reaches: time / 2, returns: time - time / 2, ..Self::default() }
    }

    /// Beside other requests: effect and completion at the end of this time.
    pub fn one_way(time: Duration) -> Self {
        Self { reaches: time, ..Self::default() }
    }

    /// The same with this time for each byte.
    pub fn with_ps_per_byte(self, occupies_ps_per_byte: u64) -> Self {
        Self { occupies_ps_per_byte, ..self }
    }

    pub(super) fn pipe(self, bytes: u64) -> Duration {
        self.occupies + self.per_byte(bytes)
    }

    pub(super) fn per_byte(self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(self.occupies_ps_per_byte) / 1000)
    }
}

/// How long the operations of a fabric take.
///
/// What is posted with one call is one operation to the pipe: requests behind the first take
/// [`Times::linked`] and their bytes there, and reach the peer as the first one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// WRITE, with or without immediate data, and atomics.
    pub write: OpTime,
    /// WRITE of inline data.
    pub write_inline: OpTime,
    /// READ.
    pub read: OpTime,
    /// SEND.
    pub send: OpTime,
    /// In the pipe, for each request behind the first of a call.
    pub linked: Duration,
}

impl Times {
    /// Those of a device as there are many: 3 to 5 microseconds for each, 7 GB/s.
    pub fn usual() -> Self {
        Self {
            write: OpTime::occupying(Duration::from_micros(3)).with_ps_per_byte(140),
            write_inline: OpTime::one_way(Duration::from_micros(2)),
            read: OpTime::round_trip(Duration::from_micros(5)),
            send: OpTime::one_way(Duration::from_micros(4)),
            linked: Duration::from_nanos(100),
        }
    }
}
