//! Memory of an application: what it registers of its own, and slices of memory chunks.
use super::engine::Command;
use super::holdings::{Chunk, Registered};
use super::memory_chunks::MemoryChunk;
use super::monitor::{Answer, Monitor};
use super::share::Region as Shareable;
use crate::protocol::Reply;
use catchment_verbs::mem::Region;
use catchment_verbs::{Access, Mr, Pd};
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Most regions of an application, and most memory chunks.
const MOST_REGIONS: usize = 1 << 12;

impl Monitor<'_> {
    /// Tells what the application has now, after so many registrations more.
    fn count_memory(&mut self, bytes: u64, registrations: u64) {
        self.memory.bytes = bytes;
        let chunks = self.memory.chunks.len() as u64;
        self.shared.tell(Command::Memory(self.key, (bytes, chunks), registrations));
    }

    /// Returns what the policy of now leaves to the application.
    fn bytes_left(&self) -> u64 {
        self.most_bytes().saturating_sub(self.memory.bytes)
    }

    fn most_bytes(&self) -> u64 {
        let policy = self.shared.policy();
        // One that the policy does not serve any more is about to be disconnected.
        policy.rule(&self.rule.name).unwrap_or(&self.rule).memory_bytes
    }

    fn check_left(&self, bytes: u64) -> Result<(), String> {
        if bytes <= self.bytes_left() {
            return Ok(());
        }
        let (has, most) = (self.memory.bytes, self.most_bytes());
        Err(format!("{bytes} bytes more than {has} are beyond the {most} that the policy allows"))
    }

    fn check_count(&self) -> Result<(), String> {
        if self.memory.regions.len() < MOST_REGIONS {
            return Ok(());
        }
        Err(format!("an application has at most {MOST_REGIONS} regions"))
    }

    /// Registers memory of the application.
    pub(super) fn register(
        &mut self,
        pd: u32,
        bytes: u64,
        access: Access,
        writable: bool,
        fd: OwnedFd,
    ) -> Answer {
        self.check_left(bytes)?;
        self.check_count()?;
        let length = usize::try_from(bytes).map_err(|error| error.to_string())?;
        let region = Region::from_lender(fd, length, writable).map_err(|e| e.to_string())?;
        let local = if writable { Access::LOCAL_WRITE } else { Access::empty() };
        // Once for all who use it, where that is possible.
        let once = || self.shared.chunks.pd().reg_mr(Arc::clone(&region), local);
        let mr = (!self.shared.port.is_hardware).then(once).transpose();
        let mr = mr.map_err(|error| error.to_string())?;
        let reply = self.add_keys(mr.as_ref(), region, (pd, access), None)?;
        self.count_memory(self.memory.bytes + bytes, 1);
        Ok(reply)
    }

    /// Gives the application a chunk for a region of so many bytes.
    pub(super) fn give_chunk(&mut self, bytes: u64) -> Result<(Reply, OwnedFd), String> {
        if self.slices.is_none() {
            return Err("over this device there are no memory chunks".to_owned());
        }
        if bytes == 0 {
            return Err("a region needs at least one byte".to_owned());
        }
        self.check_left(bytes)?;
        if self.memory.chunks.len() >= MOST_REGIONS {
            return Err(format!("an application has at most {MOST_REGIONS} memory chunks"));
        }
        let MemoryChunk { mr, fd } = self.shared.chunks.take(bytes, self.bytes_left())?;
        let length = mr.bytes() as u64;
        self.memory.numbers += 1;
        let number = self.memory.numbers;
        self.memory.chunks.insert(number, Chunk { mr, slices: 0, ended: Vec::new() });
        self.count_memory(self.memory.bytes + length, 0);
        Ok((Reply::Chunk { chunk: number, bytes: length }, fd))
    }

    pub(super) fn drop_chunk(&mut self, number: u32) -> Answer {
        let chunk = self.memory.chunks.get(&number).ok_or("no such memory chunk")?;
        if chunk.slices > 0 {
            return Err(format!("the memory chunk has {} regions", chunk.slices));
        }
        let bytes = chunk.mr.bytes() as u64;
        self.memory.chunks.remove(&number);
        self.count_memory(self.memory.bytes - bytes, 0);
        Ok(Reply::Done)
    }

    /// Makes a region of a slice of a chunk; `again` if the application still has these bytes.
    pub(super) fn bind(
        &mut self,
        (pd, access): (u32, Access),
        number: u32,
        (offset, bytes): (u64, u64),
        again: bool,
    ) -> Answer {
        self.check_count()?;
        if !self.slices.is_some_and(|rights| rights.contains(access)) {
            return Err("peers map what they may reach of this device: register the memory".into());
        }
        let chunk = self.memory.chunks.get_mut(&number).ok_or("no such memory chunk")?;
        let length = chunk.mr.bytes() as u64;
        let end = offset.checked_add(bytes).filter(|end| *end <= length).ok_or_else(|| {
            format!("{bytes} bytes from {offset} on are not in a memory chunk of {length}")
        })?;
        let range = offset..end;
        if !again && chunk.is_busy(&range) {
            return Ok(Reply::Busy);
        }
        let mr = Arc::clone(&chunk.mr);
        // A chunk is no longer than this process can address. The slice keeps its registration.
        let part = mr.region().part(offset as usize, bytes as usize, Box::new(Arc::clone(&mr)));
        let part = part.map_err(|error| error.to_string())?;
        // Now, not in the thread that moves data.
        part.populate().map_err(|error| error.to_string())?;
        self.add_keys(Some(&mr), part, (pd, access), Some((number, range)))
    }

    /// Binds memory that is registered to what uses it; registers it for each where the device has no windows.
    fn add_keys(
        &mut self,
        registered: Option<&Arc<dyn Mr>>,
        part: Arc<Region>,
        (number, access): (u32, Access),
        slice: Option<(u32, Range<u64>)>,
    ) -> Answer {
        let pd = self.pds.get(&number).ok_or("no such protection domain")?;
        let bind = |pd: &dyn Pd, access| match registered {
            Some(registered) => pd.bind(registered, Arc::clone(&part), access),
            None => pd.reg_mr(Arc::clone(&part), access),
        };
        let mr = bind(&**pd, access).map_err(|e| e.to_string())?;
        // Messages of peers are written to what receives are posted in.
        let receives = access.contains(Access::LOCAL_WRITE);
        let more = if receives { Access::REMOTE_WRITE } else { Access::empty() };
        let parts = self.shared.parts.as_ref();
        let shared = parts.map(|parts| bind(&*parts.pd, access | more)).transpose();
        let shared = shared.map_err(|error| error.to_string())?;
        let (lkey, rkey, addr) = (mr.lkey(), mr.rkey(), mr.addr());
        if let Some(mr) = shared.clone() {
            let region = Shareable { pd: number, rkey, mr, access, told: BTreeSet::new() };
            // Before the application can use it.
            let _ = self.shared.ask(|reply| Command::AddRegion(self.key, lkey, region, reply));
        }
        if let Some((number, _)) = &slice
            && let Some(chunk) = self.memory.chunks.get_mut(number)
        {
            chunk.slices += 1;
        }
        self.memory.regions.insert(lkey, Registered { mr, shared, slice });
        Ok(Reply::Region { lkey, rkey, addr })
    }

    pub(super) fn deregister(&mut self, lkey: u32) -> Answer {
        let region = self.memory.regions.remove(&lkey).ok_or("no such region")?;
        let Registered { mr, shared, slice } = region;
        let (bytes, memory) = (mr.bytes() as u64, Arc::downgrade(mr.region()));
        // First: what waits for a queue pair of its own does not find it any more.
        drop(mr);
        self.revoke(lkey, shared.is_some());
        drop(shared);
        let Some((number, range)) = slice else {
            self.count_memory(self.memory.bytes - bytes, 0);
            return Ok(Reply::Done);
        };
        if let Some(chunk) = self.memory.chunks.get_mut(&number) {
            chunk.slices -= 1;
            if memory.strong_count() > 0 {
                chunk.ended.push((range, memory));
            }
        }
        Ok(Reply::Done)
    }
}
