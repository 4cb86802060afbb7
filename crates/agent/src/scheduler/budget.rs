//! A budget of bytes that grows with time. The scheduler reads no clock: it is told what passed.
use std::time::Duration;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) bytes_per_s: f64,
    /// What may be served now; below 0 after a chunk that it did not hold.
    pub(super) bytes: f64,
}

impl Budget {
    /// Returns what it gives in a time, in bytes.
    pub(super) fn gives(&self, passed: Duration) -> f64 {
        self.bytes_per_s * passed.as_secs_f64()
    }

    /// Adds so many bytes, and holds no more than `most`; returns what it cannot hold.
    pub(super) fn save(&mut self, bytes: f64, most: f64) -> f64 {
        let all = self.bytes + bytes;
        self.bytes = all.min(most);
        all - self.bytes
    }

    /// Whether the next chunk may go. What it costs beyond the budget is owed.
    #[inline]
    pub(super) fn may_go(&self) -> bool {
        self.bytes > 0.0
    }

    #[inline]
    pub(super) fn spend(&mut self, bytes: u64) {
        self.bytes -= bytes as f64;
    }

    /// Returns after which time a chunk may go, if it gets so many bytes a second beside its own; `None` if that is never.
    pub(super) fn until(&self, more_bytes_per_s: f64) -> Option<Duration> {
        let bytes_per_s = self.bytes_per_s + more_bytes_per_s;
        let seconds = ((1.0 - self.bytes) / bytes_per_s).clamp(0.0, 1e6);
        (bytes_per_s > 0.0).then(|| Duration::from_secs_f64(seconds))
    }
}
