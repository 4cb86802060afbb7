//! Registered memory and its keys.
use super::Fabric;
use catchment_verbs::mem::{Region, VolatileSlice};
use catchment_verbs::{Access, Mr};
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct Registered {
    pub(super) region: Arc<Region>,
    pub(super) access: Access,
    pub(super) pd: u32,
}

#[derive(Clone)]
pub(super) struct Piece {
    region: Arc<Region>,
    offset: usize,
    bytes: usize,
}

impl Registered {
    /// Returns the piece at this address, if it is in bounds.
    pub(super) fn piece(&self, addr: u64, bytes: u64) -> Option<Piece> {
        let offset = usize::try_from(addr.checked_sub(self.region.addr())?).ok()?;
        let bytes = usize::try_from(bytes).ok()?;
        let region = Arc::clone(&self.region);
        region.slice(offset, bytes).ok()?;
        Some(Piece { region: Arc::clone(&self.region), offset, bytes })
    }
}

impl Piece {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory, whose bounds were checked at creation.
    pub(super) fn memory(&self) -> VolatileSlice<'_> {
        let whole = self.region.whole();
        whole.subslice(self.offset, self.bytes).unwrap_or(whole)
    }
}

pub(super) fn scatter(pieces: &[Piece], data: &[u8]) {
    let mut rest = data;
    for piece in pieces {
        let (now, later) = rest.split_at(rest.len().min(piece.bytes()));
        let written = piece.memory().write_at(0, now);
        debug_assert!(written.is_ok(), "a piece is inside its region");
        rest = later;
    }
}

pub(super) fn gather(pieces: &[Piece]) -> Vec<u8> {
    let all = pieces.iter().map(|piece| piece.memory().to_vec());
    all.collect::<Vec<_>>().concat()
}

pub(super) struct SimMr {
    pub(super) fabric: Fabric,
    pub(super) region: Arc<Region>,
    pub(super) access: Access,
    pub(super) key: u32,
}

impl Mr for SimMr {
    fn region(&self) -> &Arc<Region> {
        &self.region
    }

    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
    }

    fn access(&self) -> Access {
        self.access
    }
}

impl Drop for SimMr {
    fn drop(&mut self) {
        self.fabric.world().regions.remove(&self.key);
    }
}
