//! Memory after a run: the peer's, which requests changed in order, and the requester's, where only
//! results may have landed.
use super::{Fault, SCRIBBLE, Seen, UNTOUCHED, demand, region, same, untouched};
use crate::roce::Access;
use crate::soak::plan::{Op, Plan, What, Wrong};
use catchment_roce::AtomicOp;

/// How far the peer's memory is in the plan.
struct Cursor<'a> {
    plan: &'a Plan,
    posted: usize,
    at: usize,
    /// Bytes of the WRITE at `at` that are in place.
    written: usize,
}

impl Cursor<'_> {
    /// Skips to the next request that changes memory.
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
            return Err(Fault(format!("{} that no request asked for", shown(access))));
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
            "{} where request {at} ({:?}, invalid: {wrong:?}) was next, with {} bytes in place",
            shown(access),
            op.what,
            self.written
        );
        Ok(())
    }

    fn take_write(&mut self, op: &Op, offset: usize, start: usize, data: &[u8]) -> bool {
        let possible = matches!(op.wrong, None | Some(Wrong::Bounds));
        let start = if op.wrong.is_some() { bounds_offset(self.plan, op) } else { start };
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

/// Returns the offset at which the last byte of a request is out of bounds.
pub(in crate::soak) fn bounds_offset(plan: &Plan, op: &Op) -> usize {
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
        What::CompareSwap { offset, compare, swap, .. } => {
            Some((offset, AtomicOp::CompareSwap { compare, swap }))
        }
        What::Write { .. }
        | What::WriteImm { .. }
        | What::Send
        | What::SendImm(_)
        | What::SendInvalidate(_)
        | What::Read { .. } => None,
    }
}

/// Checks the peer's memory: every change once, in order, including all completed requests.
pub(super) fn target(seen: &Seen<'_>, done: usize) -> Result<(), Fault> {
    let target = region(seen.far, seen.far_keys.target, "the target")?;
    let mut cursor = Cursor { plan: seen.plan, posted: seen.posted, at: 0, written: 0 };
    let mut model = seen.plan.target.clone();
    for access in target.log() {
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
    same("the target", &target.bytes, &model)?;
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

/// Checks the results of READs and atomics.
pub(super) fn landing(seen: &Seen<'_>, done: usize) -> Result<(), Fault> {
    let region = region(seen.near, seen.near_keys.landing, "the landing memory")?;
    let mut owned_until = 0;
    for (id, op) in seen.plan.ops[..seen.posted].iter().enumerate() {
        let Some(expected) = result(op) else { continue };
        untouched("landing memory", &region.bytes, owned_until..op.local.start)?;
        owned_until = op.local.end;
        let landed = &region.bytes[op.local.clone()];
        if id < done {
            same(&format!("the result of request {id}"), landed, &expected)?;
        } else if op.wrong == Some(Wrong::Bounds) {
            // A READ split into several requests may get the parts that are in bounds.
        } else if op.wrong.is_some() {
            untouched("a refused result", &region.bytes, op.local.clone())?;
        } else {
            let mut pairs = landed.iter().zip(&expected);
            let sound = pairs.all(|(byte, right)| byte == right || *byte == UNTOUCHED);
            demand!(sound, "request {id} did not succeed and left wrong bytes");
        }
    }
    untouched("landing memory", &region.bytes, owned_until..region.bytes.len())
}

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

/// Checks that memory that was sent from is only read.
pub(super) fn source(seen: &Seen<'_>) -> Result<(), Fault> {
    let region = region(seen.near, seen.near_keys.source, "the source")?;
    let mut pairs = region.bytes.iter().zip(&seen.plan.source);
    let sound = pairs.all(|(byte, right)| byte == right || *byte == SCRIBBLE);
    demand!(sound, "memory that was only sent from has changed");
    Ok(())
}
