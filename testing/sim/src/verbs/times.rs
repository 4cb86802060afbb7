//! Durations of operations.
use std::time::Duration;

/// Times of one kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpTime {
    /// Time in the queue pair's pipe, after which the next request begins.
    pub occupies: Duration,
    /// Additional time in the pipe per byte, in picoseconds.
    pub occupies_ps_per_byte: u64,
    /// From the end of the pipe to the effect; for a READ until the peer's bytes are read.
    pub reaches: Duration,
    /// From the effect to the completion.
    pub returns: Duration,
}

impl OpTime {
    /// This time in the pipe, effect and completion at its end.
    pub fn occupying(time: Duration) -> Self {
        Self { occupies: time, ..Self::default() }
    }

    /// Concurrent with other requests: effect after half of this time, completion at its end.
    pub fn round_trip(time: Duration) -> Self {
        Self { reaches: time / 2, returns: time - time / 2, ..Self::default() }
    }

    /// Concurrent with other requests: effect and completion at the end of this time.
    pub fn one_way(time: Duration) -> Self {
        Self { reaches: time, ..Self::default() }
    }

    /// Returns the same with this time per byte.
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

/// Durations of the operations of a fabric.
///
/// The requests of one call are one operation in the pipe: those after the first take
/// [`Times::linked`] and the time of their bytes, and reach the peer as the first one does.
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
    /// Time in the pipe of each request after the first of a call.
    pub linked: Duration,
}

impl Times {
    /// Returns the times of a typical device: 3 to 5 microseconds per operation, 7 GB/s.
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
