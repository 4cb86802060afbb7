//! Memory chunks of an application, and the regions that are slices of them.
use super::link::Link;
use super::slices::{Chunk, Slice, Slices};
use crate::protocol::{Reply, Request};
use catchment_verbs::Access;
use catchment_verbs::mem::Region;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// A slice, and where it is.
pub(super) struct Place {
    pub(super) region: Arc<Region>,
    pub(super) chunk: u32,
    pub(super) offset: u64,
    /// It is not zero.
    pub(super) was_used: bool,
}

/// What a region of a slice keeps. It frees the slice.
struct Kept {
    /// A region outlives its application's connection.
    link: Weak<Link>,
    chunk: u32,
    slice: Slice,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(link) = self.link.upgrade() {
            link.free_slice(self.chunk, self.slice);
        }
    }
}

impl Link {
    /// Returns whether a region with these rights may be a slice.
    pub(super) fn may_slice(&self, access: Access) -> bool {
        self.device.slices.is_some_and(|rights| Access::from_bits_truncate(rights).contains(access))
    }

    /// Takes a slice of so many bytes, of a new chunk if no other has room. It is free again when its region is dropped.
    pub(super) fn take_slice(self: &Arc<Self>, bytes: usize) -> Result<Place, String> {
        if let Some(place) = self.find_slice(bytes)? {
            return Ok(place);
        }
        let _growing = self.chunks.growing.lock();
        if let Some(place) = self.find_slice(bytes)? {
            return Ok(place);
        }
        self.or_without_free_chunks(|| self.add_chunk(bytes))?;
        self.find_slice(bytes)?.ok_or_else(Self::misfit)
    }

    /// Asks for memory; where that is refused, once more without the chunks that nothing is in, which count too.
    pub(super) fn or_without_free_chunks<T>(
        &self,
        ask: impl Fn() -> Result<T, String>,
    ) -> Result<T, String> {
        ask().or_else(|reason| {
            let free: Vec<Chunk> =
                self.chunks.all.lock().extract_if(.., |chunk| chunk.slices.is_free()).collect();
            if free.is_empty() {
                return Err(reason);
            }
            for chunk in free {
                self.call(&Request::DropChunk { chunk: chunk.number }, &[])?;
            }
            ask()
        })
    }

    fn find_slice(self: &Arc<Self>, bytes: usize) -> Result<Option<Place>, String> {
        let mut all = self.chunks.all.lock();
        let taken = all.iter_mut().find_map(|chunk| Some((chunk.slices.take(bytes)?, chunk)));
        let Some((slice, chunk)) = taken else { return Ok(None) };
        let kept = Kept { link: Arc::downgrade(self), chunk: chunk.number, slice };
        let (number, whole) = (chunk.number, Arc::clone(&chunk.region));
        drop(all);
        // `Kept` frees the slice if this fails.
        let region = whole.part(slice.offset, bytes, Box::new(kept));
        let region = region.map_err(|error| error.to_string())?;
        let (offset, was_used) = (slice.offset as u64, slice.was_used);
        Ok(Some(Place { region, chunk: number, offset, was_used }))
    }

    fn add_chunk(&self, needed: usize) -> Result<(), String> {
        let request = Request::Chunk { bytes: needed as u64 };
        let (reply, descriptors) = self.exchange(&request, &[])?;
        let Reply::Chunk { chunk: number, bytes } = reply else { return Err(Self::misfit()) };
        let [fd]: [OwnedFd; 1] = descriptors.try_into().map_err(|_| Self::misfit())?;
        let bytes = usize::try_from(bytes).map_err(|_| Self::misfit())?;
        let region = Region::from_peer(fd, bytes, true).map_err(|error| error.to_string())?;
        let is_of_one = needed > bytes / 2;
        let chunk = Chunk { number, region, slices: Slices::new(bytes), is_of_one };
        self.chunks.all.lock().push(chunk);
        Ok(())
    }

    /// Frees a slice, and drops its chunk where nobody will need it soon: one that is free is kept.
    fn free_slice(&self, number: u32, slice: Slice) {
        let mut all = self.chunks.all.lock();
        let Some(at) = all.iter().position(|chunk| chunk.number == number) else { return };
        all[at].slices.put(slice);
        if !all[at].slices.is_free() {
            return;
        }
        let free = all.iter().filter(|chunk| chunk.slices.is_free()).count();
        if !all[at].is_of_one && free == 1 {
            return;
        }
        let chunk = all.swap_remove(at);
        drop(all);
        let _ = self.call(&Request::DropChunk { chunk: chunk.number }, &[]);
    }

    /// Returns the chunk and the offset of a region that is a slice.
    pub(super) fn place_of(&self, region: &Arc<Region>) -> Option<(u32, u64)> {
        let all = self.chunks.all.lock();
        let chunk = all.iter().find(|chunk| region.is_within(&chunk.region))?;
        Some((chunk.number, region.addr() - chunk.region.addr()))
    }
}
