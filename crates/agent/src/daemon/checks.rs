//! What is known of a request before shared queue pairs do it: keys, bounds and rights, of both ends.
use super::send::{Send, part_of, part_of_elements};
use super::share::{Regions, Shared};
use super::shared_qp::is_atomic;
use crate::entry::Data;
use crate::scheduler::Chunk;
use catchment_verbs::{Access, RemoteAddr, SendOp, Sge};

pub(super) fn lies_in(addr: u64, bytes: u64, start: u64, length: u64) -> bool {
    let end = addr.checked_add(bytes);
    addr >= start && end.is_some_and(|end| end <= start.saturating_add(length))
}

/// What is to be done before a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// To ask what a key of the peer gives.
    Key(u32),
    /// To be on its own.
    Apart,
    /// To know of a receive of the peer.
    Receive,
}

/// Returns the elements as shared queue pairs know them, if the device may use them like this.
pub(super) fn translate(data: &Data, regions: &Regions, pd: u32, writes: bool) -> Option<Data> {
    let Data::Elements(mut all, count) = *data else { return Some(*data) };
    for sge in all.iter_mut().take(usize::from(count)) {
        let region = regions.get(&sge.lkey).filter(|region| region.pd == pd)?;
        let mr = &region.mr;
        let fits = lies_in(sge.addr, sge.bytes.into(), mr.addr(), mr.bytes() as u64);
        let allowed = !writes || region.access.contains(Access::LOCAL_WRITE);
        *sge = Sge { lkey: mr.lkey(), ..*sge };
        (fits && allowed).then_some(())?;
    }
    Some(Data::Elements(all, count))
}

/// Bytes of what an atomic changes.
const WORD: u64 = 8;

/// Returns a chunk as shared queue pairs do it, or what it needs in place of that. A WRITE with immediate becomes a
/// WRITE.
pub(super) fn check(
    send: &Send,
    chunk: &Chunk,
    (regions, pd): (&Regions, u32),
    shared: &Shared,
) -> Result<(SendOp, Data), Need> {
    let op = part_of(send.op, chunk);
    let (remote, right) = match op {
        SendOp::Write(to) | SendOp::WriteImm(to, _) => (to, Access::REMOTE_WRITE),
        SendOp::Read(from) => (from, Access::REMOTE_READ),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            let is_word = chunk.bytes == WORD && remote.addr.is_multiple_of(WORD);
            (remote, is_word.then_some(Access::REMOTE_ATOMIC).ok_or(Need::Apart)?)
        }
        SendOp::Send
        | SendOp::SendImm(_)
        | SendOp::SendInvalidate(_)
        | SendOp::SendTo(_)
        | SendOp::SendImmTo(..) => return Err(Need::Apart),
    };
    let region = shared.keys.get(&remote.rkey).ok_or(Need::Key(remote.rkey))?;
    let region = region.as_ref().ok_or(Need::Apart)?;
    let fits = lies_in(remote.addr, chunk.bytes, region.addr, region.bytes);
    if !fits || !Access::from_bits_truncate(region.access).contains(right) {
        return Err(Need::Apart);
    }
    let data = match part_of_elements(send, chunk) {
        Some((elements, count)) => Data::Elements(elements, count as u8),
        None => send.data,
    };
    let writes = op.is_read() || is_atomic(&op);
    let data = translate(&data, regions, pd, writes).ok_or(Need::Apart)?;
    let remote = RemoteAddr { rkey: region.rkey, ..remote };
    let op = if let SendOp::CompareSwap { compare, swap, .. } = op {
        SendOp::CompareSwap { remote, compare, swap }
    } else if let SendOp::FetchAdd { add, .. } = op {
        SendOp::FetchAdd { remote, add }
    } else if op.is_read() {
        SendOp::Read(remote)
    } else {
        SendOp::Write(remote)
    };
    Ok((op, data))
}
