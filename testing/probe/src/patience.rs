//! Waiting in a test for what another end does, as a policy says and not for ever.
use catchment_verbs::wait::{Step, WaitPolicy, Waiter};
use catchment_verbs::{RtsAttr, Wake, Watch};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For what must happen sooner or later: no test waits so long unless something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns attributes for a machine that does many other things, where an engine may not run for a
/// second.
pub fn patient() -> RtsAttr {
    RtsAttr { timeout: Duration::from_secs(1), ..RtsAttr::default() }
}

/// Waits as a policy says.
pub struct Patience {
    waiter: Waiter,
    since: Instant,
}

impl Patience {
    /// Begins to wait, on a machine of two processors.
    pub fn new(policy: WaitPolicy) -> Self {
        Self { waiter: Waiter::new(policy, 2), since: Instant::now() }
    }

    /// Begins anew: something was found.
    pub fn found(&mut self) {
        self.waiter.found();
        self.since = Instant::now();
    }

    /// Waits because nothing was found; `again` looks once more, after the watch was armed.
    ///
    /// # Panics
    /// When nothing was found for [`PATIENCE`], or the watch cannot be waited for.
    pub fn wait<T>(
        &mut self,
        watch: Option<Arc<dyn Watch>>,
        again: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        assert!(self.since.elapsed() < PATIENCE, "nothing came");
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
