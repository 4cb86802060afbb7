//! The oracle: given a plan and what was seen, says what is wrong.
//!
//! It holds for every run, whatever the network did: requests complete in order; what completed was
//! done, once, in the order of posting; what did not complete was done in part or not at all, and
//! nothing after it; no byte changed that nobody asked to change.

use super::plan::{Op, Plan, What, Wrong};
use crate::roce::{Access, Space};
use catchment_roce::{AtomicOp, Completion, PostFailure, Success, WcOpcode, WcStatus};
use std::ops::Range;

/// What landing memory and receives hold before anything arrives.
pub(crate) const UNTOUCHED: u8 = 0x5c;
/// What a program writes over bytes that were sent.
pub(crate) const SCRIBBLE: u8 = 0xee;

/// Something that must not be.
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

/// One direction, after the run.
pub(crate) struct Seen<'a> {
    pub(crate) plan: &'a Plan,
    /// Requests that were posted; the others never began.
    pub(crate) posted: usize,
    /// A request that could not be posted: none ever is.
    pub(crate) refused: Option<PostFailure>,
    /// Completions of the send queue.
    pub(crate) sends: &'a [Completion],
    /// Completions of the peer's receive queue.
    pub(crate) receives: &'a [Completion],
    pub(crate) receives_posted: usize,
    /// Memory of this side.
    pub(crate) near: &'a Space,
    pub(crate) near_keys: NearKeys,
    /// Memory of the peer.
    pub(crate) far: &'a Space,
    pub(crate) far_keys: &'a FarKeys,
    /// What else than a wrong request may end the connection.
    pub(crate) allowed: Allowed,
    /// This side is dead: it got no completions after that.
    pub(crate) near_is_dead: bool,
    /// The peer is dead.
    pub(crate) far_is_dead: bool,
}

/// Memory of the side that asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NearKeys {
    pub(crate) source: u32,
    pub(crate) landing: u32,
}

/// Memory of the side that serves.
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

/// Failures that a scenario makes possible, for requests with which nothing is wrong.
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

/// Checks one direction and says how many requests succeeded.
pub(crate) fn check(seen: &Seen<'_>) -> Result<usize, Fault> {
    demand!(
        seen.refused.is_none(),
        "a request was refused: {:?}",
        seen.refused
    );
    let done = sends(seen)?;
    target(seen, done)?;
    landing(seen, done)?;
    source(seen)?;
    receives(seen, done)?;
    Ok(done)
}

/// The send queue: in order, successes before the first failure, then only failures.
fn sends(seen: &Seen<'_>) -> Result<usize, Fault> {
    let ops = &seen.plan.ops[..seen.posted];
    let mut next = 0;
    let mut failed_at = None;
    for completion in seen.sends {
        let id = completion.wr_id as usize;
        demand!(
            id < ops.len(),
            "request {id} completed without being posted"
        );
        demand!(id >= next, "request {id} completed where {next} was next");
        if let Some(missing) = owed(&ops[next..id], failed_at) {
            let missing = next + missing;
            return Err(Fault(format!(
                "request {id} completed before {missing} did"
            )));
        }
        match (completion.result, failed_at) {
            (Ok(success), None) => succeeded(id, &ops[id], success)?,
            (Ok(_), Some(failed)) => {
                return Err(Fault(format!(
                    "request {id} succeeded after {failed} failed"
                )));
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

/// The first of these requests that must complete: after a failure all must.
fn owed(ops: &[Op], failed_at: Option<usize>) -> Option<usize> {
    ops.iter().position(|op| op.signaled || failed_at.is_some())
}

/// Of the requests that failed, one is the reason and has a status of its own. It need not be the
/// first: those before it may wait for data that was lost. Where the reason lies elsewhere, all are
/// flushed.
fn blame(seen: &Seen<'_>) -> Result<(), Fault> {
    let failed = seen.sends.iter().filter_map(|completion| {
        let status = completion.result.err()?;
        (status != WcStatus::Flushed).then_some((completion.wr_id as usize, status))
    });
    let failed: Vec<_> = failed.collect();
    let allowed = seen.allowed;
    match failed[..] {
        [] => demand!(
            allowed.flush,
            "requests were flushed for nothing, {allowed:?}"
        ),
        [(id, status)] => {
            let wrong = seen.plan.ops[id].wrong;
            let refused = refuses(wrong, status);
            demand!(
                refused || allowed.permits(status),
                "request {id} failed with {status:?}, with {wrong:?} wrong and {allowed:?}"
            );
        }
        _ => demand!(false, "more than one request is to blame: {failed:?}"),
    }
    Ok(())
}

fn succeeded(id: usize, op: &Op, success: Success) -> Result<(), Fault> {
    demand!(
        op.wrong.is_none(),
        "request {id} succeeded although {:?} is wrong",
        op.wrong
    );
    let opcode = match op.what {
        What::Write { .. } | What::WriteImm { .. } => WcOpcode::Write,
        What::Send | What::SendImm(_) | What::SendInvalidate(_) => WcOpcode::Send,
        What::Read { .. } => WcOpcode::Read,
        What::FetchAdd { .. } => WcOpcode::FetchAdd,
        What::CompareSwap { .. } => WcOpcode::CompareSwap,
    };
    let bytes = op.local.len() as u64;
    demand!(
        success.opcode == opcode && success.bytes == bytes,
        "request {id}, {opcode:?} of {bytes} bytes, completed as {success:?}"
    );
    Ok(())
}

/// Whether this is how a peer refuses such a request.
fn refuses(wrong: Option<Wrong>, status: WcStatus) -> bool {
    match wrong {
        Some(Wrong::Key | Wrong::Bounds | Wrong::Rights) => status == WcStatus::RemoteAccess,
        Some(Wrong::TooLong) => status == WcStatus::RemoteInvalidRequest,
        None => false,
    }
}

/// Where in the plan the peer's memory is.
struct Cursor<'a> {
    plan: &'a Plan,
    posted: usize,
    at: usize,
    /// Bytes of the WRITE at `at` that are in place.
    written: usize,
}

impl Cursor<'_> {
    /// Goes on to the next request that changes memory.
    fn skip(&mut self) {
        while let Some(op) = self.plan.ops[..self.posted].get(self.at) {
            if changes_memory(op) || op.wrong.is_some() {
                break;
            }
            self.at += 1;
        }
    }

    fn take(&mut self, access: &Access) -> Result<(), Fault> {
        self.skip();
        let at = self.at;
        let Some(op) = self.plan.ops[..self.posted].get(at) else {
            return Err(Fault(format!("{} that nobody asked for", shown(access))));
        };
        let fits = match (access, &op.what) {
            (
                Access::Write { offset, data },
                What::Write { offset: start } | What::WriteImm { offset: start, .. },
            ) => self.take_write(op, *offset, *start, data),
            (Access::Atomic { offset, op: seen }, what) => {
                self.at += 1;
                op.wrong.is_none() && atomic(what) == Some((*offset, *seen))
            }
            (Access::Write { .. }, _) => false,
        };
        let wrong = op.wrong;
        demand!(
            fits,
            "{} where request {at} ({:?}, {wrong:?} wrong) was next, with {} bytes in place",
            shown(access),
            op.what,
            self.written
        );
        Ok(())
    }

    fn take_write(&mut self, op: &Op, offset: usize, start: usize, data: &[u8]) -> bool {
        let possible = matches!(op.wrong, None | Some(Wrong::Bounds));
        let start = if op.wrong.is_some() {
            bounds_offset(self.plan, op)
        } else {
            start
        };
        let sent = self.plan.sent(op);
        let fits = offset == start + self.written && sent[self.written..].starts_with(data);
        self.written += data.len();
        if self.written == sent.len() {
            (self.at, self.written) = (self.at + 1, 0);
        }
        possible && fits
    }
}

fn shown(access: &Access) -> String {
    match access {
        Access::Write { offset, data } => format!("{} bytes written at {offset}", data.len()),
        Access::Atomic { offset, op } => format!("{op:?} at {offset}"),
    }
}

/// Where a request begins whose last byte is out of bounds.
pub(crate) fn bounds_offset(plan: &Plan, op: &Op) -> usize {
    if op.what.is_atomic() {
        return plan.target.len();
    }
    plan.target.len() + 1 - op.local.len()
}

fn changes_memory(op: &Op) -> bool {
    let writes = matches!(op.what, What::Write { .. } | What::WriteImm { .. });
    op.what.is_atomic() || writes && !op.local.is_empty()
}

fn atomic(what: &What) -> Option<(usize, AtomicOp)> {
    match *what {
        What::FetchAdd { offset, add, .. } => Some((offset, AtomicOp::FetchAdd(add))),
        What::CompareSwap {
            offset,
            compare,
            swap,
            ..
        } => Some((offset, AtomicOp::CompareSwap { compare, swap })),
        What::Write { .. }
        | What::WriteImm { .. }
        | What::Send
        | What::SendImm(_)
        | What::SendInvalidate(_)
        | What::Read { .. } => None,
    }
}

/// The peer's memory: every change once, in order, at least all that completed.
fn target(seen: &Seen<'_>, done: usize) -> Result<(), Fault> {
    let region = seen.far.region(seen.far_keys.target);
    let region = region.ok_or_else(|| Fault("the target is gone".into()))?;
    let mut cursor = Cursor {
        plan: seen.plan,
        posted: seen.posted,
        at: 0,
        written: 0,
    };
    let mut model = seen.plan.target.clone();
    for access in region.log() {
        cursor.take(access)?;
        replay(&mut model, access);
    }
    cursor.skip();
    demand!(
        cursor.at >= done,
        "request {} succeeded, but the peer's memory ends before it at {} bytes",
        cursor.at,
        cursor.written
    );
    same("the target", &region.bytes, &model)?;
    let forbidden = seen.far.region(seen.far_keys.forbidden);
    let intact = forbidden.is_some_and(|region| region.bytes.iter().all(|b| *b == UNTOUCHED));
    demand!(intact, "the region without rights was changed");
    Ok(())
}

fn replay(model: &mut [u8], access: &Access) {
    match access {
        Access::Write { offset, data } => {
            model[*offset..offset + data.len()].copy_from_slice(data);
        }
        Access::Atomic { offset, op } => {
            let cell = &mut model[*offset..offset + 8];
            let mut before = [0; 8];
            before.copy_from_slice(cell);
            cell.copy_from_slice(&op.apply(u64::from_ne_bytes(before)).to_ne_bytes());
        }
    }
}

fn same(what: &str, seen: &[u8], expected: &[u8]) -> Result<(), Fault> {
    let differs = seen.iter().zip(expected).position(|(a, b)| a != b);
    demand!(
        differs.is_none() && seen.len() == expected.len(),
        "{what} differs at byte {differs:?}"
    );
    Ok(())
}

/// What READs and atomics brought.
fn landing(seen: &Seen<'_>, done: usize) -> Result<(), Fault> {
    let Some(region) = seen.near.region(seen.near_keys.landing) else {
        return Err(Fault("the landing memory is gone".into()));
    };
    let mut owned_until = 0;
    for (id, op) in seen.plan.ops[..seen.posted].iter().enumerate() {
        let Some(expected) = result(op) else {
            continue;
        };
        untouched("landing memory", &region.bytes, owned_until..op.local.start)?;
        owned_until = op.local.end;
        let landed = &region.bytes[op.local.clone()];
        if id < done {
            same(&format!("the result of request {id}"), landed, &expected)?;
        } else if op.wrong == Some(Wrong::Bounds) {
            // A READ that is asked for in pieces may get those that are in bounds.
        } else if op.wrong.is_some() {
            untouched("a refused result", &region.bytes, op.local.clone())?;
        } else {
            let mut pairs = landed.iter().zip(&expected);
            let sound = pairs.all(|(byte, right)| byte == right || *byte == UNTOUCHED);
            demand!(sound, "request {id} did not succeed and left wrong bytes");
        }
    }
    untouched(
        "landing memory",
        &region.bytes,
        owned_until..region.bytes.len(),
    )
}

/// The bytes that must come back.
fn result(op: &Op) -> Option<Vec<u8>> {
    match &op.what {
        What::Read { expected, .. } => Some(expected.clone()),
        What::FetchAdd { before, .. } | What::CompareSwap { before, .. } => {
            Some(before.to_ne_bytes().to_vec())
        }
        What::Write { .. }
        | What::WriteImm { .. }
        | What::Send
        | What::SendImm(_)
        | What::SendInvalidate(_) => None,
    }
}

fn untouched(what: &str, bytes: &[u8], range: Range<usize>) -> Result<(), Fault> {
    let start = range.start;
    let changed = bytes[range].iter().position(|byte| *byte != UNTOUCHED);
    demand!(
        changed.is_none(),
        "{what} changed at byte {} where nothing is",
        start + changed.unwrap_or(0)
    );
    Ok(())
}

/// What was sent from is only read.
fn source(seen: &Seen<'_>) -> Result<(), Fault> {
    let Some(region) = seen.near.region(seen.near_keys.source) else {
        return Err(Fault("the source is gone".into()));
    };
    let mut pairs = region.bytes.iter().zip(&seen.plan.source);
    let sound = pairs.all(|(byte, right)| byte == right || *byte == SCRIBBLE);
    demand!(sound, "memory that was only sent from has changed");
    Ok(())
}

/// The peer's receive queue: messages in order, whole, each once.
fn receives(seen: &Seen<'_>, done: usize) -> Result<(), Fault> {
    let ops = seen.plan.ops[..seen.posted].iter().enumerate();
    let messages: Vec<_> = ops.filter(|(_, op)| op.what.takes_receive()).collect();
    let mut received = 0;
    let mut failed = false;
    for (at, completion) in seen.receives.iter().enumerate() {
        let id = completion.wr_id as usize;
        demand!(id == at, "receive {id} completed where {at} was next");
        match completion.result {
            Ok(success) => {
                demand!(!failed, "receive {id} succeeded after one that failed");
                demand!(
                    id < messages.len(),
                    "receive {id} completed without a message"
                );
                let op = messages[id].1;
                demand!(
                    completion.solicited == op.solicited,
                    "receive {id}: solicited is {}",
                    completion.solicited
                );
                message(seen, id, op, success)?;
                received += 1;
            }
            Err(status) => {
                let too_long =
                    messages.get(received).map(|(_, op)| op.wrong) == Some(Some(Wrong::TooLong));
                let refused = status == WcStatus::LocalLength && too_long && !failed;
                let fits = refused || status == WcStatus::Flushed;
                demand!(fits, "receive {id} failed with {status:?}");
                failed = true;
            }
        }
    }
    let completed = seen.receives.len();
    demand!(
        completed == seen.receives_posted || seen.far_is_dead,
        "{completed} of {} receives completed",
        seen.receives_posted
    );
    let owed = messages.iter().filter(|(id, _)| *id < done).count();
    demand!(
        received >= owed || seen.far_is_dead,
        "{owed} messages succeeded, {received} were received"
    );
    unfinished(seen, received, messages.get(received).map(|(_, op)| *op))
}

fn slot(seen: &Seen<'_>, id: usize) -> Range<usize> {
    let bytes = seen.far_keys.slot_bytes;
    id * bytes..(id + 1) * bytes
}

/// A message that was received.
fn message(seen: &Seen<'_>, id: usize, op: &Op, success: Success) -> Result<(), Fault> {
    let (opcode, imm, invalidated) = match op.what {
        What::WriteImm { imm, .. } => (WcOpcode::RecvWriteImm, Some(imm), None),
        What::SendImm(imm) => (WcOpcode::Recv, Some(imm), None),
        What::SendInvalidate(spare) => (WcOpcode::Recv, None, Some(seen.far_keys.spare[spare])),
        What::Send
        | What::Write { .. }
        | What::Read { .. }
        | What::FetchAdd { .. }
        | What::CompareSwap { .. } => (WcOpcode::Recv, None, None),
    };
    demand!(
        op.wrong.is_none(),
        "receive {id} took a message that is too long"
    );
    let expected = Success::plain(opcode, op.local.len() as u64).with_imm(imm);
    let expected = match invalidated {
        Some(rkey) => expected.invalidating(rkey),
        None => expected,
    };
    demand!(
        success == expected,
        "receive {id}: {success:?} instead of {expected:?}"
    );
    let Some(region) = seen.far.region(seen.far_keys.receive) else {
        return Err(Fault("the receives are gone".into()));
    };
    if let Some(key) = invalidated {
        let valid = seen
            .far
            .region(key)
            .is_some_and(|region| region.is_remote());
        demand!(!valid, "receive {id}: region {key:#x} was not invalidated");
    }
    let slot = slot(seen, id);
    let sent = if opcode == WcOpcode::Recv {
        seen.plan.sent(op)
    } else {
        &[]
    };
    let end = slot.start + sent.len();
    same(
        &format!("message {id}"),
        &region.bytes[slot.start..end],
        sent,
    )?;
    untouched("a receive", &region.bytes, end..slot.end)
}

/// Receives that took no message: the first may hold the beginning of one.
fn unfinished(seen: &Seen<'_>, received: usize, next: Option<&Op>) -> Result<(), Fault> {
    let Some(region) = seen.far.region(seen.far_keys.receive) else {
        return Err(Fault("the receives are gone".into()));
    };
    let first = slot(seen, received);
    if first.start >= region.bytes.len() {
        return Ok(());
    }
    let sent = next.map_or(&[][..], |op| seen.plan.sent(op));
    for (at, byte) in region.bytes[first.clone()].iter().enumerate() {
        let sound = *byte == UNTOUCHED || sent.get(at) == Some(byte);
        demand!(
            sound,
            "receive {received} has a wrong byte at {at} and did not complete"
        );
    }
    untouched("receives", &region.bytes, first.end..region.bytes.len())
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
