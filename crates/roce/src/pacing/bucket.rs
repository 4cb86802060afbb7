//! Token bucket, kept as one time: when the bucket would be full again.
//!
//! A packet moves that time on by its length over the rate. It may leave while the time is no more
//! than one burst ahead. Fractions of nanoseconds are carried, so the rate does not drift.

/// See the module. A fresh bucket is full.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    full_ns: u64,
    fraction: u64,
    opens_ns: u64,
}

impl Bucket {
    /// From when on a packet may leave.
    pub(crate) fn opens_ns(&self) -> u64 {
        self.opens_ns
    }

    /// A packet leaves at `now_ns`.
    pub(crate) fn take(&mut self, now_ns: u64, bytes: u64, rate_bps: u64, burst_bytes: u64) {
        let rate = rate_bps.max(1);
        if self.full_ns < now_ns {
            self.full_ns = now_ns;
            self.fraction = 0;
        }
        let scaled = bytes * 8_000_000_000 + self.fraction.min(rate);
        self.full_ns = self.full_ns.saturating_add(scaled / rate);
        self.fraction = scaled % rate;
        // The last packet of a burst may begin with a single byte left, so one byte less opens it.
        let burst_ns = burst_bytes.saturating_mul(8_000_000_000) / rate;
        self.opens_ns = self.full_ns.saturating_sub(burst_ns);
    }
}
