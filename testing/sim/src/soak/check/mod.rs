//! The oracle: checks the observations of a run against its plan.
//!
//! The rules hold whatever the network did: requests complete in order; a completed request was
//! executed exactly once, in the order of posting; one that did not complete was executed in part
//! or not at all, and none after it; no other byte changed.
mod memory;
mod receives;

pub(super) use memory::bounds_offset;

use super::plan::{Op, Plan, Wrong};
use crate::roce::{Region, Space};
use catchment_roce::{Completion, PostFailure, Success, WcStatus};
use std::ops::Range;

/// Initial content of landing memory and receives.
pub(crate) const UNTOUCHED: u8 = 0x5c;
/// What the program writes over bytes that were sent.
pub(crate) const SCRIBBLE: u8 = 0xee;

#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Fault(pub(crate) String);

macro_rules! demand {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(Fault(format!($($message)+)));
        }
    };
}
pub(crate) use demand;

pub(crate) struct Seen<'a> {
    pub(crate) plan: &'a Plan,
    /// Number of requests posted.
    pub(crate) posted: usize,
    /// Why a request could not be posted: must be `None`.
    pub(crate) refused: Option<PostFailure>,
    /// Completions of the send queue.
    pub(crate) sends: &'a [Completion],
    /// Completions of the peer's receive queue.
    pub(crate) receives: &'a [Completion],
    pub(crate) receives_posted: usize,
    pub(crate) near: &'a Space,
    pub(crate) near_keys: NearKeys,
    pub(crate) far: &'a Space,
    pub(crate) far_keys: &'a FarKeys,
    /// Failures allowed besides those of an invalid request.
    pub(crate) allowed: Allowed,
    /// This side was killed: it gets no completions after that.
    pub(crate) near_is_dead: bool,
    /// The peer was killed.
    pub(crate) far_is_dead: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct NearKeys {
    pub(crate) source: u32,
    pub(crate) landing: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct FarKeys {
    pub(crate) target: u32,
    /// A region without rights for peers.
    pub(crate) forbidden: u32,
    pub(crate) spare: Vec<u32>,
    pub(crate) receive: u32,
    /// Bytes of one receive.
    pub(crate) slot_bytes: usize,
}

/// Failures that a scenario allows for valid requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Allowed {
    pub(crate) timeout: bool,
    pub(crate) rnr: bool,
    pub(crate) flush: bool,
}

impl Allowed {
    fn permits(self, status: WcStatus) -> bool {
        (self.timeout && status == WcStatus::TransportRetryExceeded)
            || (self.rnr && status == WcStatus::RnrRetryExceeded)
    }
}

/// Checks one direction and returns how many requests succeeded.
pub(crate) fn check(seen: &Seen<'_>) -> Result<usize, Fault> {
    demand!(seen.refused.is_none(), "a request was refused: {:?}", seen.refused);
    let done = sends(seen)?;
    memory::target(seen, done)?;
    memory::landing(seen, done)?;
    memory::source(seen)?;
    receives::check(seen, done)?;
    Ok(done)
}

/// Checks the send queue: completions in order, and only failures after the first failure.
fn sends(seen: &Seen<'_>) -> Result<usize, Fault> {
    let ops = &seen.plan.ops[..seen.posted];
    let mut next = 0;
    let mut failed_at = None;
    for completion in seen.sends {
        let id = completion.wr_id as usize;
        demand!(id < ops.len(), "request {id} completed without being posted");
        demand!(id >= next, "request {id} completed where {next} was next");
        if let Some(missing) = owed(&ops[next..id], failed_at) {
            let missing = next + missing;
            return Err(Fault(format!("request {id} completed before {missing} did")));
        }
        match (completion.result, failed_at) {
            (Ok(success), None) => succeeded(id, &ops[id], success)?,
            (Ok(_), Some(failed)) => {
                return Err(Fault(format!("request {id} succeeded after {failed} failed")));
            }
            (Err(_), _) => failed_at = failed_at.or(Some(id)),
        }
        next = id + 1;
    }
    if failed_at.is_some() {
        blame(seen)?;
    }
    let silent = owed(&ops[next..], failed_at).filter(|_| !seen.near_is_dead);
    if let Some(silent) = silent {
        return Err(Fault(format!("request {} never completed", next + silent)));
    }
    let most = if seen.near_is_dead { next } else { ops.len() };
    Ok(failed_at.unwrap_or(most))
}

/// Returns the first of these requests that must complete; after a failure all must.
fn owed(ops: &[Op], failed_at: Option<usize>) -> Option<usize> {
    ops.iter().position(|op| op.signaled || failed_at.is_some())
}

/// Checks the statuses of failures: one request caused them and has its own status. It need not be
/// the first: earlier ones may wait for data that was lost. With any other cause all are flushed.
fn blame(seen: &Seen<'_>) -> Result<(), Fault> {
    let failed = seen.sends.iter().filter_map(|completion| {
        let status = completion.result.err()?;
        (status != WcStatus::Flushed).then_some((completion.wr_id as usize, status))
    });
    let failed: Vec<_> = failed.collect();
    let allowed = seen.allowed;
    match failed[..] {
        [] => demand!(allowed.flush, "requests were flushed without a cause, {allowed:?}"),
        [(id, status)] => {
            let wrong = seen.plan.ops[id].wrong;
            let refused = refuses(wrong, status);
            demand!(
                refused || allowed.permits(status),
                "request {id} failed with {status:?}, invalid: {wrong:?}, {allowed:?}"
            );
        }
        _ => demand!(false, "more than one request failed by itself: {failed:?}"),
    }
    Ok(())
}

fn succeeded(id: usize, op: &Op, success: Success) -> Result<(), Fault> {
    demand!(op.wrong.is_none(), "request {id} succeeded although invalid: {:?}", op.wrong);
    let opcode = op.what.opcode();
    let bytes = op.local.len() as u64;
    demand!(
        success.opcode == opcode && success.bytes == bytes,
        "request {id}, {opcode:?} of {bytes} bytes, completed as {success:?}"
    );
    Ok(())
}

/// Returns whether a peer refuses such a request with this status.
fn refuses(wrong: Option<Wrong>, status: WcStatus) -> bool {
    match wrong {
        Some(Wrong::Key | Wrong::Bounds | Wrong::Rights) => status == WcStatus::RemoteAccess,
        Some(Wrong::TooLong) => status == WcStatus::RemoteInvalidRequest,
        None => false,
    }
}

/// Returns the region with this key; `what` names it.
fn region<'a>(space: &'a Space, key: u32, what: &str) -> Result<&'a Region, Fault> {
    space.region(key).ok_or_else(|| Fault(format!("{what}: the region is gone")))
}

fn same(what: &str, seen: &[u8], expected: &[u8]) -> Result<(), Fault> {
    let differs = seen.iter().zip(expected).position(|(a, b)| a != b);
    demand!(
        differs.is_none() && seen.len() == expected.len(),
        "{what} differs at byte {differs:?}"
    );
    Ok(())
}

fn untouched(what: &str, bytes: &[u8], range: Range<usize>) -> Result<(), Fault> {
    let start = range.start;
    let changed = bytes[range].iter().position(|byte| *byte != UNTOUCHED);
    demand!(
        changed.is_none(),
        "{what} changed at byte {}, outside of any request",
        start + changed.unwrap_or(0)
    );
    Ok(())
}

#[cfg(test)]
mod tests;
