//! The peer's receives: whole messages, in order, each once.
use super::{Fault, Seen, UNTOUCHED, demand, region, same, untouched};
use crate::soak::plan::{Op, What, Wrong};
use catchment_roce::{Success, WcOpcode, WcStatus};
use std::ops::Range;

/// Checks the peer's receive queue.
pub(super) fn check(seen: &Seen<'_>, done: usize) -> Result<(), Fault> {
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
                demand!(id < messages.len(), "receive {id} completed without a message");
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

/// Checks a message that was received.
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
    demand!(op.wrong.is_none(), "receive {id} took a message that is too long");
    let expected = Success::plain(opcode, op.local.len() as u64).with_imm(imm);
    let expected = match invalidated {
        Some(rkey) => expected.invalidating(rkey),
        None => expected,
    };
    demand!(success == expected, "receive {id}: {success:?} instead of {expected:?}");
    let region = region(seen.far, seen.far_keys.receive, "the receives")?;
    if let Some(key) = invalidated {
        let valid = seen.far.region(key).is_some_and(|region| region.is_remote());
        demand!(!valid, "receive {id}: region {key:#x} was not invalidated");
    }
    let slot = slot(seen, id);
    let sent = if opcode == WcOpcode::Recv { seen.plan.sent(op) } else { &[] };
    let end = slot.start + sent.len();
    same(&format!("message {id}"), &region.bytes[slot.start..end], sent)?;
    untouched("a receive", &region.bytes, end..slot.end)
}

/// Checks receives that took no message: the first may hold the beginning of one.
fn unfinished(seen: &Seen<'_>, received: usize, next: Option<&Op>) -> Result<(), Fault> {
    let region = region(seen.far, seen.far_keys.receive, "the receives")?;
    let first = slot(seen, received);
    if first.start >= region.bytes.len() {
        return Ok(());
    }
    let sent = next.map_or(&[][..], |op| seen.plan.sent(op));
    for (at, byte) in region.bytes[first.clone()].iter().enumerate() {
        let sound = *byte == UNTOUCHED || sent.get(at) == Some(byte);
        demand!(sound, "receive {received} has a wrong byte at {at} and did not complete");
    }
    untouched("receives", &region.bytes, first.end..region.bytes.len())
}
