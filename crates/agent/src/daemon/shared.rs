//! A connection that shares queue pairs: each of its chunks is checked here, with the keys of both ends, before it
//! is given to one. What is not known to succeed is never given to it: it would end what others have there.
use super::connection::{Connection, Send, part_of, part_of_elements};
use super::share::{Regions, Shared, Stage};
use super::shared_qps::{Posted, SharedQps, is_atomic};
use crate::entry::Data;
use crate::peer::message::RemoteRegion;
use crate::scheduler::Chunk;
use catchment_verbs::{Access, Completion, Failure, RemoteAddr, SendOp, Sge, WcStatus};

fn lies_in(addr: u64, bytes: u64, start: u64, length: u64) -> bool {
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
}

/// Returns the elements as shared queue pairs know them, if the device may use them like this.
fn translate(data: &Data, regions: &Regions, pd: u32, writes: bool) -> Option<Data> {
    let Data::Elements(mut all, count) = *data else { return Some(*data) };
    for sge in all.iter_mut().take(usize::from(count)) {
        let region = regions.get(&sge.lkey).filter(|region| region.pd == pd)?;
        let mr = &region.mr;
        let fits = lies_in(sge.addr, sge.bytes.into(), mr.addr(), mr.bytes() as u64);
        let allowed = !writes || mr.access().contains(Access::LOCAL_WRITE);
        *sge = Sge { lkey: mr.lkey(), ..*sge };
        (fits && allowed).then_some(())?;
    }
    Some(Data::Elements(all, count))
}

impl Connection {
    /// Gives planned chunks to a shared queue pair, as far as they are known to succeed. Returns where, and what
    /// the next one needs.
    pub(super) fn post_shared(
        &mut self,
        regions: &Regions,
        shared_qps: &mut SharedQps,
    ) -> (usize, Option<Need>) {
        let mut given = 0;
        let mut need = None;
        let is_drained = self.is_drained();
        if let Some(shared) = self.shared.as_mut().filter(|_| is_drained) {
            // While it has nothing there, order does not bind it to one.
            let place = shared.group.or_else(|| shared_qps.place(shared.host));
            let Some(place) = place else { return (0, None) };
            shared.place = place;
        }
        while let Some(chunk) = self.planned.get(given).copied() {
            match self.checked(&chunk, regions) {
                Ok(posted) => {
                    let place = self.shared.as_ref().map_or(0, |shared| shared.place);
                    self.note(&chunk);
                    shared_qps.push(place, posted);
                    given += 1;
                }
                Err(stops) => {
                    need = stops;
                    break;
                }
            }
        }
        self.planned.drain(..given);
        (self.shared.as_ref().map_or(0, |shared| shared.place), need)
    }

    /// Returns the next chunk as shared queue pairs do it, or what keeps it from being given to one.
    fn checked(&mut self, chunk: &Chunk, regions: &Regions) -> Result<Posted, Option<Need>> {
        let (wr_id, pd) = (self.base() | u64::from(self.number.wrapping_add(1)), self.pd);
        let shared = self.shared.as_mut().filter(|shared| shared.stage == Stage::Open);
        let shared = shared.ok_or(None)?;
        let send = self.sends.front_mut().ok_or(None)?;
        let result = check(send, chunk, (regions, pd), shared);
        match result {
            Ok((op, data)) => {
                let mut posted = Posted::new(wr_id, op, data);
                posted.fence = send.fence && chunk.offset == 0;
                posted.inline = send.inline.take();
                Ok(posted)
            }
            Err(Need::Apart) => {
                shared.stage = Stage::Parting;
                Err(Some(Need::Apart))
            }
            Err(Need::Key(rkey)) if shared.asked == Some(rkey) => Err(None),
            Err(Need::Key(rkey)) => {
                shared.asked = Some(rkey);
                Err(Some(Need::Key(rkey)))
            }
        }
    }

    /// Takes what a key of the peer gives.
    pub(super) fn learn(&mut self, rkey: u32, region: Option<RemoteRegion>) {
        if let Some(shared) = &mut self.shared {
            shared.keys.insert(rkey, region);
            shared.asked = shared.asked.filter(|asked| *asked != rkey);
        }
    }

    /// Returns the failed completions of everything that it has in the device's hands: its host is gone, or it is not
    /// known whether the peer did this atomic, which had no answer.
    pub(super) fn lost(&self, unknown: Option<u64>) -> Vec<Completion> {
        let base = self.base();
        let all = self.flying_numbers().map(|number| base | u64::from(number));
        let lost = |wr_id| {
            let no_answer = unknown == Some(wr_id);
            let status =
                if no_answer { WcStatus::TransportRetryExceeded } else { WcStatus::Flushed };
            let result = Err(Failure { status, vendor_err: 0 });
            Completion { wr_id, qpn: 0, result }
        };
        all.map(lost).collect()
    }
}

/// Bytes of what an atomic changes.
const WORD: u64 = 8;

/// Returns a chunk as shared queue pairs do it, or what it needs in place of that.
fn check(
    send: &Send,
    chunk: &Chunk,
    (regions, pd): (&Regions, u32),
    shared: &Shared,
) -> Result<(SendOp, Data), Need> {
    let op = part_of(send.op, chunk);
    let (remote, right) = match op {
        SendOp::Write(to) => (to, Access::REMOTE_WRITE),
        SendOp::Read(from) => (from, Access::REMOTE_READ),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            let is_word = chunk.bytes == WORD && remote.addr.is_multiple_of(WORD);
            (remote, is_word.then_some(Access::REMOTE_ATOMIC).ok_or(Need::Apart)?)
        }
        SendOp::WriteImm(..)
        | SendOp::Send
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
