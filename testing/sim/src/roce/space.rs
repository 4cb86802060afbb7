//! Memory of a host: regions with keys, and a log of the peer's accesses to each.
use catchment_roce::{AccessError, AtomicOp, Memory, RemoteAccess};

/// Registered memory of one host, one protection domain.
#[derive(Debug, Clone, Default)]
pub struct Space {
    regions: Vec<Region>,
}

/// A registered region. Its key is both its lkey and its rkey.
#[derive(Debug, Clone)]
pub struct Region {
    pub key: u32,
    pub addr: u64,
    pub bytes: Vec<u8>,
    /// Rights of peers.
    pub rights: Rights,
    log: Option<Vec<Access>>,
}

/// Rights of peers to a region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    pub write: bool,
    pub read: bool,
    pub atomic: bool,
}

impl Rights {
    pub const LOCAL: Self = Self { write: false, read: false, atomic: false };
    pub const ALL: Self = Self { write: true, read: true, atomic: true };
}

/// A remote access that changed a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    Write {
        /// From the start of the region.
        offset: usize,
        data: Vec<u8>,
    },
    Atomic {
        /// From the start of the region.
        offset: usize,
        op: AtomicOp,
    },
}

/// Regions are this far apart, so that no range reaches from one into the next.
const REGION_STRIDE: u64 = 1 << 40;

/// Spread out, so that a wrong key is never that of another region.
const fn key(number: u64) -> u32 {
    (number as u32).wrapping_mul(0x0101_0107) ^ 0x5a00
}

const fn addr(number: u64) -> u64 {
    number * (REGION_STRIDE + 64)
}

impl Space {
    /// The key of the region that is registered first.
    pub const FIRST_KEY: u32 = key(1);
    /// The address of the region that is registered first.
    pub const FIRST_ADDR: u64 = addr(1);

    /// Registers `bytes` and returns the key. Addresses are unique and not page-aligned.
    pub fn register(&mut self, bytes: Vec<u8>, rights: Rights) -> u32 {
        let number = self.regions.len() as u64 + 1;
        let key = key(number);
        self.regions.push(Region { key, addr: addr(number), bytes, rights, log: None });
        key
    }

    /// Starts logging the accesses of peers to this region.
    pub fn keep_log(&mut self, key: u32) {
        if let Some(region) = self.region_mut(key) {
            region.log = Some(Vec::new());
        }
    }

    /// Returns the address of the region with this key; 0 if there is none.
    pub fn addr(&self, key: u32) -> u64 {
        self.region(key).map_or(0, |region| region.addr)
    }

    /// Returns the region with this key.
    pub fn region(&self, key: u32) -> Option<&Region> {
        self.regions.iter().find(|region| region.key == key)
    }

    /// Returns the bytes of a local range.
    pub fn local(&self, lkey: u32, addr: u64, bytes: usize) -> Option<&[u8]> {
        let region = self.region(lkey)?;
        let start = region.offset(addr, bytes as u64).ok()?;
        Some(&region.bytes[start..start + bytes])
    }

    /// Overwrites a local range, as a program reuses memory after a completion. Ignores a range
    /// that is not registered.
    pub fn fill(&mut self, lkey: u32, addr: u64, bytes: usize, value: u8) {
        let Some(region) = self.region_mut(lkey) else { return };
        if let Ok(start) = region.offset(addr, bytes as u64) {
            region.bytes[start..start + bytes].fill(value);
        }
    }

    /// Returns the region with this key.
    pub fn region_mut(&mut self, key: u32) -> Option<&mut Region> {
        self.regions.iter_mut().find(|region| region.key == key)
    }

    /// Returns the region with this key, if its rights allow this access.
    fn remote(&mut self, access: RemoteAccess, rkey: u32) -> Result<&mut Region, AccessError> {
        let region = self.region_mut(rkey).ok_or(AccessError)?;
        region.allows(access).then_some(region).ok_or(AccessError)
    }
}

impl Region {
    /// Returns the accesses of peers, if they were logged.
    pub fn log(&self) -> &[Access] {
        self.log.as_deref().unwrap_or_default()
    }

    /// Returns whether peers have any right to it.
    pub fn is_remote(&self) -> bool {
        self.rights != Rights::LOCAL
    }

    fn allows(&self, access: RemoteAccess) -> bool {
        match access {
            RemoteAccess::Write => self.rights.write,
            RemoteAccess::Read => self.rights.read,
            RemoteAccess::Atomic => self.rights.atomic,
        }
    }

    /// Returns the offset of a range, if all of it is in the region.
    fn offset(&self, addr: u64, bytes: u64) -> Result<usize, AccessError> {
        let start = addr.checked_sub(self.addr).ok_or(AccessError)?;
        let end = start.checked_add(bytes).ok_or(AccessError)?;
        if end > self.bytes.len() as u64 {
            return Err(AccessError);
        }
        usize::try_from(start).map_err(|_| AccessError)
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Result<usize, AccessError> {
        let start = self.offset(addr, data.len() as u64)?;
        self.bytes[start..start + data.len()].copy_from_slice(data);
        Ok(start)
    }
}

impl Memory for Space {
    fn check_remote(
        &self,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u64,
    ) -> Result<(), AccessError> {
        let region = self.region(rkey).ok_or(AccessError)?;
        region.offset(va, bytes)?;
        region.allows(access).then_some(()).ok_or(AccessError)
    }

    fn write_remote(&mut self, rkey: u32, va: u64, data: &[u8]) -> Result<(), AccessError> {
        let region = self.remote(RemoteAccess::Write, rkey)?;
        let offset = region.write(va, data)?;
        if let Some(log) = &mut region.log {
            log.push(Access::Write { offset, data: data.to_vec() });
        }
        Ok(())
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let region = self.remote(RemoteAccess::Atomic, rkey)?;
        let offset = region.offset(va, 8)?;
        let mut cell = [0; 8];
        cell.copy_from_slice(&region.bytes[offset..offset + 8]);
        let before = u64::from_ne_bytes(cell);
        region.write(va, &op.apply(before).to_ne_bytes())?;
        if let Some(log) = &mut region.log {
            log.push(Access::Atomic { offset, op });
        }
        Ok(before)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        self.region_mut(rkey).ok_or(AccessError)?.rights = Rights::LOCAL;
        Ok(())
    }

    fn write_local(&mut self, lkey: u32, addr: u64, data: &[u8]) -> Result<(), AccessError> {
        self.region_mut(lkey).ok_or(AccessError)?.write(addr, data).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_bounds_and_rights_are_checked() {
        let mut space = Space::default();
        let writable = Rights { write: true, ..Rights::LOCAL };
        let key = space.register(vec![0; 16], writable);
        let start = Space::FIRST_ADDR;
        assert_eq!(key, Space::FIRST_KEY);
        assert!(space.write_remote(key, start + 8, &[1; 8]).is_ok());
        assert_eq!(space.local(key, start + 7, 2), Some(&[0, 1][..]));
        assert!(space.write_remote(key + 1, start + 8, &[1; 8]).is_err());
        assert!(space.write_remote(key, start + 9, &[1; 8]).is_err());
        assert!(space.write_remote(key, start - 1, &[1; 8]).is_err());
        assert!(space.write_remote(key, u64::MAX, &[1; 8]).is_err());
        assert!(space.atomic(key, start, AtomicOp::FetchAdd(1)).is_err());
        assert!(space.check_remote(RemoteAccess::Read, key, start, 1).is_err());
    }
}
