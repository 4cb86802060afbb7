//! The memory of our side: one region, with rights.

use catchment_roce::{AccessError, AtomicOp, Memory, RemoteAccess};

/// A registered region of our side, which local and remote keys name alike.
#[derive(Debug)]
pub struct Region {
    /// Its address for requests.
    pub addr: u64,
    /// Its key.
    pub key: u32,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// What the peer may do.
    pub rights: &'static [RemoteAccess],
}

impl Region {
    /// Every right.
    pub const ALL: &'static [RemoteAccess] = &[
        RemoteAccess::Write,
        RemoteAccess::Read,
        RemoteAccess::Atomic,
    ];

    /// The bytes of a range.
    ///
    /// # Errors
    /// When key or range are not of this region.
    pub fn range(&self, key: u32, addr: u64, bytes: u64) -> Result<&[u8], AccessError> {
        let at = self.locate(key, addr, bytes)?;
        self.bytes
            .get(at..at.saturating_add(bytes as usize))
            .ok_or(AccessError)
    }

    fn range_mut(&mut self, key: u32, addr: u64, bytes: u64) -> Result<&mut [u8], AccessError> {
        let at = self.locate(key, addr, bytes)?;
        self.bytes
            .get_mut(at..at.saturating_add(bytes as usize))
            .ok_or(AccessError)
    }

    fn locate(&self, key: u32, addr: u64, bytes: u64) -> Result<usize, AccessError> {
        let at = addr.checked_sub(self.addr).ok_or(AccessError)?;
        let end = at.checked_add(bytes).ok_or(AccessError)?;
        if key != self.key || end > self.bytes.len() as u64 {
            return Err(AccessError);
        }
        usize::try_from(at).map_err(|_| AccessError)
    }

    fn allows(&self, access: RemoteAccess) -> Result<(), AccessError> {
        if self.rights.contains(&access) {
            Ok(())
        } else {
            Err(AccessError)
        }
    }
}

impl Memory for Region {
    fn check_remote(
        &self,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u64,
    ) -> Result<(), AccessError> {
        self.allows(access)?;
        self.range(rkey, va, bytes).map(drop)
    }

    fn write_remote(&mut self, rkey: u32, va: u64, data: &[u8]) -> Result<(), AccessError> {
        self.allows(RemoteAccess::Write)?;
        self.write_local(rkey, va, data)
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        self.allows(RemoteAccess::Atomic)?;
        let place = self.range_mut(rkey, va, 8)?;
        let place: &mut [u8; 8] = place.try_into().map_err(|_| AccessError)?;
        let before = u64::from_ne_bytes(*place);
        *place = op.apply(before).to_ne_bytes();
        Ok(before)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        if rkey != self.key {
            return Err(AccessError);
        }
        self.rights = &[];
        Ok(())
    }

    fn write_local(&mut self, lkey: u32, addr: u64, data: &[u8]) -> Result<(), AccessError> {
        self.range_mut(lkey, addr, data.len() as u64)?
            .copy_from_slice(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_bounds_and_rights_are_checked() {
        let mut region = Region {
            addr: 4096,
            key: 7,
            bytes: vec![0; 16],
            rights: &[RemoteAccess::Write],
        };
        assert!(region.write_remote(7, 4104, &[1; 8]).is_ok());
        assert_eq!(region.bytes[7..9], [0, 1]);
        assert!(region.write_remote(8, 4104, &[1; 8]).is_err());
        assert!(region.write_remote(7, 4105, &[1; 8]).is_err());
        assert!(region.write_remote(7, 4095, &[1; 8]).is_err());
        assert!(region.write_remote(7, u64::MAX, &[1; 8]).is_err());
        assert!(region.atomic(7, 4096, AtomicOp::FetchAdd(1)).is_err());
        assert!(region.check_remote(RemoteAccess::Read, 7, 4096, 1).is_err());
    }
}
