//! The rate limit of a queue pair.
//!
//! A queue pair with a limit executes no request while posting: requests are queued, and leave when
//! the bucket opens, driven by a thread that polls the completion queue, or otherwise by the
//! service thread, which sleeps until then. Without a limit, posting only reads its thread's flag.
use catchment_verbs::{Flow, RateLimit, TokenBucket};
use std::time::{Duration, Instant};

/// See the module.
pub(crate) struct Pace {
    flow: Flow,
    bucket: TokenBucket,
    /// The origin of times.
    origin: Instant,
}

impl Pace {
    /// Creates a pace with a full burst.
    pub(crate) fn new(limit: RateLimit) -> Self {
        Self { flow: Flow::new(limit), bucket: TokenBucket::default(), origin: Instant::now() }
    }

    /// Changes the limit; what is owed stays owed.
    pub(crate) fn set_limit(&mut self, limit: RateLimit) {
        self.flow = Flow::new(limit);
        self.bucket.restart();
    }

    /// Notes that a request waits, and none did before.
    pub(crate) fn resume(&mut self) {
        self.bucket.resume();
    }

    /// Lets a request of this length leave now.
    ///
    /// # Errors
    /// The time from which it may, if not yet.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), Instant> {
        let now_ns = self.now_ns();
        if self.bucket.may_send(now_ns, self.flow) {
            self.bucket.take(now_ns, bytes, self.flow);
            return Ok(());
        }
        Err(self.origin + Duration::from_nanos(self.bucket.opens_ns(self.flow)))
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
