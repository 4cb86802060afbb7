//! Waits in a test for another end, by a policy and with a limit.
use catchment_verbs::wait::{Step, WaitPolicy, Waiter};
use catchment_verbs::{RtsAttr, Wake, Watch};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limit of a wait for something that must happen: a test that reaches it has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns attributes for a busy machine, on which an engine may not run for a second.
pub fn patient() -> RtsAttr {
    RtsAttr { timeout: Duration::from_secs(1), ..RtsAttr::default() }
}

/// Waits by a policy.
pub struct Patience {
    waiter: Waiter,
    since: Instant,
}

impl Patience {
    /// Starts to wait, as on a machine with two processors.
    pub fn new(policy: WaitPolicy) -> Self {
        Self { waiter: Waiter::new(policy, 2), since: Instant::now() }
    }

    /// Starts again: something was found.
    pub fn found(&mut self) {
        self.waiter.found();
        self.since = Instant::now();
    }

    /// Waits because nothing was found; `again` polls once more after the watch is armed.
    ///
    /// # Panics
    /// If nothing was found for [`PATIENCE`], or waiting for the watch fails.
    pub fn wait<T>(
        &mut self,
        watch: Option<Arc<dyn Watch>>,
        again: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        assert!(self.since.elapsed() < PATIENCE, "nothing came within {PATIENCE:?}");
        match (self.waiter.empty(), watch) {
            (Step::Spin, _) => std::hint::spin_loop(),
            (Step::Yield, _) | (Step::Block, None) => std::thread::yield_now(),
            // The policy under test: the other end needs that time.
            (Step::Sleep(time), _) => std::thread::sleep(time),
            (Step::Block, Some(watch)) => {
                watch.arm();
                if let Some(found) = again() {
                    return Some(found);
                }
                let waited = watch.wait(Duration::from_millis(100));
                let _: Wake = waited.expect("a watch can be waited for");
            }
        }
        None
    }
}
