//! How many blocks a stream may have outstanding, so that one cannot hold the whole ring (I12).
use super::error::ReserveError;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
struct Stream {
    outstanding: AtomicU32,
    quota: AtomicU32,
}

/// All streams of a sender, by number.
#[derive(Debug)]
pub(super) struct Streams(Box<[Stream]>);

impl Streams {
    pub(super) fn new(count: u32, quota: u32) -> Streams {
        let stream = |_| Stream {
            outstanding: AtomicU32::new(0),
            quota: AtomicU32::new(quota),
        };
        Streams((0..count).map(stream).collect())
    }

    fn get(&self, stream: u32) -> Result<&Stream, ReserveError> {
        self.0.get(stream as usize).ok_or(ReserveError::Stream {
            stream,
            limit: self.0.len() as u32,
        })
    }

    pub(super) fn set_quota(&self, stream: u32, quota: u32) -> Result<(), ReserveError> {
        self.get(stream)?.quota.store(quota, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn outstanding(&self, stream: u32) -> Result<u32, ReserveError> {
        Ok(self.get(stream)?.outstanding.load(Ordering::Relaxed))
    }

    /// Counts one more block, if the stream may have it.
    #[inline]
    pub(super) fn enter(&self, stream: u32) -> Result<(), ReserveError> {
        let cell = self.get(stream)?;
        let quota = cell.quota.load(Ordering::Relaxed);
        if cell.outstanding.fetch_add(1, Ordering::Relaxed) < quota {
            return Ok(());
        }
        cell.outstanding.fetch_sub(1, Ordering::Relaxed);
        Err(ReserveError::Quota { stream, quota })
    }

    /// Counts so many blocks less.
    #[inline]
    pub(super) fn leave(&self, stream: u32, blocks: u32) {
        if let Some(cell) = self.0.get(stream as usize) {
            cell.outstanding.fetch_sub(blocks, Ordering::Relaxed);
        }
    }
}
