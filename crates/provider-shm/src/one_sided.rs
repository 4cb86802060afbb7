//! WRITE, READ and atomics: executed at once, on the mapping of the peer's memory.
use crate::connection::Connection;
use crate::payload::{Source, scatter, scatter_plain};
use crate::remote::RemoteCache;
use catchment_verbs::mem::{CACHE_LINE_BYTES, VolatileSlice};
use catchment_verbs::{Access, RemoteAddr, SendOp, WcStatus};
use std::sync::atomic::{Ordering, fence};

/// Bytes of a WRITE that are prefetched before they are written.
const PREFETCHED_BYTES: usize = 512;

/// Why a request is not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// It failed.
    Failed(WcStatus),
    /// The peer must be queried for this key first.
    Unknown(u32),
}

impl From<WcStatus> for Obstacle {
    fn from(status: WcStatus) -> Self {
        Self::Failed(status)
    }
}

/// Returns the right that an operation needs, and where, if it is one-sided.
#[inline]
pub(crate) fn target(op: &SendOp) -> Option<(RemoteAddr, Access)> {
    match op {
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) => {
            Some((*remote, Access::REMOTE_WRITE))
        }
        SendOp::Read(remote) => Some((*remote, Access::REMOTE_READ)),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            Some((*remote, Access::REMOTE_ATOMIC))
        }
        SendOp::Send
        | SendOp::SendImm(_)
        | SendOp::SendInvalidate(_)
        | SendOp::SendTo(_)
        | SendOp::SendImmTo(..) => None,
    }
}

/// Returns whether the peer's program takes no part in it: it consumes no receive.
#[inline]
pub(crate) fn is_alone(op: &SendOp) -> bool {
    matches!(op, SendOp::Write(_)) || op.is_read_or_atomic()
}

/// Executes the one-sided part of `op` and returns how many bytes it moved.
#[inline]
pub(crate) fn execute(
    connection: &Connection,
    cache: &mut RemoteCache,
    op: &SendOp,
    source: Source<'_>,
) -> Result<u64, Obstacle> {
    let Some((remote, rights)) = target(op) else { return Ok(0) };
    if !connection.access.contains(rights) {
        return Err(WcStatus::RemoteInvalidRequest.into());
    }
    let bytes = source.bytes();
    if bytes == 0 {
        // IBTA 9.7.4.1.3: the key of a request without bytes is not checked.
        return Ok(0);
    }
    let at = cache.find(remote.rkey).ok_or(Obstacle::Unknown(remote.rkey))?;
    let mr = cache.get(at);
    let offset = mr.offset(remote.addr, bytes, rights)?;
    let memory = mr.memory();
    match op {
        SendOp::Write(_) | SendOp::WriteImm(..) => {
            prefetch_for_write(memory, offset, bytes as usize);
            source.write_to(memory, offset, bytes as usize);
            cache.touch(at);
        }
        SendOp::Read(_) => {
            if let (Ok(from), Source::Pieces(pieces)) =
                (memory.subslice(offset, bytes as usize), source)
            {
                scatter(pieces, 0, from);
                fence(Ordering::Acquire);
            }
        }
        SendOp::CompareSwap { compare, swap, .. } => {
            let word = memory.atomic_u64(offset).map_err(|_| WcStatus::RemoteInvalidRequest)?;
            let order = Ordering::SeqCst;
            let before = word.compare_exchange(*compare, *swap, order, order);
            answer(source, before.unwrap_or_else(|seen| seen));
            cache.touch(at);
        }
        SendOp::FetchAdd { add, .. } => {
            let word = memory.atomic_u64(offset).map_err(|_| WcStatus::RemoteInvalidRequest)?;
            answer(source, word.fetch_add(*add, Ordering::SeqCst));
            cache.touch(at);
        }
        SendOp::Send
        | SendOp::SendInvalidate(_)
        | SendOp::SendTo(_)
        | SendOp::SendImmTo(..)
        | SendOp::SendImm(_) => {}
    }
    // After the access: it is what shows that a page cannot be had.
    if cache.get(at).region().is_broken() {
        Err(WcStatus::RemoteOperation.into())
    } else {
        Ok(bytes)
    }
}

/// The receiver read these lines last. Fetching one back takes as long as a hand-over: fetch them
/// together, and not one after the other as they are written. Of a long piece the first and the
/// last: the others arrive while these are written.
#[inline]
fn prefetch_for_write(memory: VolatileSlice<'_>, offset: usize, bytes: usize) {
    for at in (0..bytes.min(PREFETCHED_BYTES)).step_by(CACHE_LINE_BYTES) {
        memory.prefetch_for_write(offset + at);
    }
    memory.prefetch_for_write(offset + bytes - 1);
}

fn answer(source: Source<'_>, before: u64) {
    if let Source::Pieces(pieces) = source {
        scatter_plain(pieces, &before.to_ne_bytes());
    }
}
