//! The regions of one protection domain, for the protocol.
use crate::keys::KeyTable;
use crate::region::MrCore;
use crate::request::InFlightQueue;
use catchment_roce::{AccessError, AtomicOp, Memory, RemoteAccess};
use catchment_verbs::Access;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// What the protocol reaches on behalf of one queue pair.
pub(crate) struct PdMemory<'a> {
    pub(crate) keys: &'a KeyTable,
    pub(crate) pd: u64,
    /// Requests that keep regions which were deregistered since.
    pub(crate) sends: &'a InFlightQueue,
    pub(crate) recvs: &'a InFlightQueue,
    /// Regions that were written and that may have a watcher.
    pub(crate) written: &'a mut Vec<Arc<MrCore>>,
}

impl PdMemory<'_> {
    fn remote(
        &self,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u64,
    ) -> Result<(&Arc<MrCore>, usize), AccessError> {
        let rights = match access {
            RemoteAccess::Write => Access::REMOTE_WRITE,
            RemoteAccess::Read => Access::REMOTE_READ,
            RemoteAccess::Atomic => Access::REMOTE_ATOMIC,
        };
        let mr = self.keys.lookup(rkey).ok_or(AccessError)?;
        let offset = mr.range(self.pd, rights, va, bytes).ok_or(AccessError)?;
        if mr.is_reachable() { Ok((mr, offset)) } else { Err(AccessError) }
    }

    fn local(&self, lkey: u32) -> Option<&Arc<MrCore>> {
        local(self.keys, self.sends, self.recvs, lkey)
    }
}

/// Returns the region of a local key: registered, or kept by a request.
pub(crate) fn local<'a>(
    keys: &'a KeyTable,
    sends: &'a InFlightQueue,
    recvs: &'a InFlightQueue,
    lkey: u32,
) -> Option<&'a Arc<MrCore>> {
    keys.lookup(lkey).or_else(|| sends.find(lkey).or_else(|| recvs.find(lkey)))
}

impl Memory for PdMemory<'_> {
    fn check_remote(
        &self,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u64,
    ) -> Result<(), AccessError> {
        self.remote(access, rkey, va, bytes).map(|_| ())
    }

    fn write_remote(&mut self, rkey: u32, va: u64, data: &[u8]) -> Result<(), AccessError> {
        let (mr, offset) = self.remote(RemoteAccess::Write, rkey, va, data.len() as u64)?;
        place(mr, offset, data)?;
        if mr.rings(offset, data.len())
            && !self.written.last().is_some_and(|last| Arc::ptr_eq(last, mr))
        {
            self.written.push(Arc::clone(mr));
        }
        Ok(())
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let (mr, offset) = self.remote(RemoteAccess::Atomic, rkey, va, 8)?;
        let word = mr.region.whole().atomic_u64(offset).map_err(|_| AccessError)?;
        let before = match op {
            AtomicOp::CompareSwap { compare, swap } => {
                let result =
                    word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
                result.unwrap_or_else(|seen| seen)
            }
            AtomicOp::FetchAdd(add) => word.fetch_add(add, Ordering::AcqRel),
        };
        if mr.has_watch() {
            self.written.push(Arc::clone(mr));
        }
        Ok(before)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        let mr = self.keys.lookup(rkey).ok_or(AccessError)?;
        if mr.invalidate(self.pd) { Ok(()) } else { Err(AccessError) }
    }

    fn write_local(&mut self, lkey: u32, addr: u64, data: &[u8]) -> Result<(), AccessError> {
        let mr = self.local(lkey).ok_or(AccessError)?;
        let offset = mr.range(self.pd, Access::LOCAL_WRITE, addr, data.len() as u64);
        place(mr, offset.ok_or(AccessError)?, data)
    }
}

/// Copies received bytes into a region. Earlier writes become visible first, and the last
/// aligned eight bytes (or fewer, of a short write) are visible last.
fn place(mr: &MrCore, offset: usize, data: &[u8]) -> Result<(), AccessError> {
    let memory = mr.region.whole();
    let end = offset + data.len();
    let done = match data.len() {
        1 => memory.atomic_u8(offset).map(|byte| byte.store(data[0], Ordering::Release)),
        8.. if end.is_multiple_of(8) => {
            let (rest, last) = data.split_at(data.len() - 8);
            let mut word = [0; 8];
            word.copy_from_slice(last);
            memory.write_at(offset, rest).and_then(|()| {
                memory.atomic_u64(end - 8)?.store(u64::from_ne_bytes(word), Ordering::Release);
                Ok(())
            })
        }
        _ => {
            fence(Ordering::Release);
            memory.write_at(offset, data)
        }
    };
    done.map_err(|_| AccessError)
}
