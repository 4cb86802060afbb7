//! A number in memory that the other side writes: what programs look at that go to and fro.
use super::job::SMALL_BYTES;
use crate::sys;
use anyhow::{Result, bail};
use catchment_verbs::mem::VolatileSlice;
use std::{sync::atomic::Ordering, thread};

/// Round trips that do not count.
pub(super) const WARM_UP: usize = 1000;
/// Where in the 64 bytes the number is: at the end, which becomes visible last.
pub(super) const NUMBER_AT: usize = SMALL_BYTES - 8;
/// The number that says that this was all.
pub(super) const OVER: u64 = u64::MAX;
/// Looks between two looks at the clock.
const LOOKS: u64 = 4096;
/// A side that does not answer has failed after this.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Looks at `memory` until the number there is one that `is_awaited`, yielding between two looks.
/// `in_vain` is called after each look; true if it pays to look again before others may run.
/// `check` is called now and then.
pub(super) fn wait(
    memory: VolatileSlice<'_>,
    is_awaited: impl Fn(u64) -> bool,
    mut in_vain: impl FnMut() -> Result<bool>,
    mut check: impl FnMut() -> Result<()>,
) -> Result<u64> {
    let start_ns = sys::monotonic_ns();
    let look = || memory.load_u64(NUMBER_AT, Ordering::Acquire);
    loop {
        for _ in 0..LOOKS {
            let seen = look()?;
            if is_awaited(seen) {
                return Ok(seen);
            }
            if in_vain()? {
                let seen = look()?;
                if is_awaited(seen) {
                    return Ok(seen);
                }
            }
            thread::yield_now();
        }
        check()?;
        if sys::monotonic_ns() - start_ns > PATIENCE_NS {
            bail!("the other side was silent for {PATIENCE_NS} ns");
        }
    }
}
