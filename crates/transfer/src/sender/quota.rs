//! How many blocks a stream may have outstanding, so that one cannot hold the whole ring (I12), and
//! which streams a permit has paused.
use super::error::ReserveError;
use crate::sync::{AtomicU32, AtomicU64, Ordering, Threads, Update as _};

#[derive(Debug)]
struct Stream {
    outstanding: AtomicU32,
    quota: AtomicU32,
    /// [`Streams::wakes`], plus 1, when the permit last paused the stream; 0 for never.
    paused_at: AtomicU64,
}

/// All streams of a sender, by number.
#[derive(Debug)]
pub(super) struct Streams {
    each: Box<[Stream]>,
    /// Calls of [`Streams::resume`].
    wakes: AtomicU64,
}

impl Streams {
    pub(super) fn new(count: u32, quota: u32) -> Self {
        let stream = |_| Stream {
            outstanding: AtomicU32::new(0),
            quota: AtomicU32::new(quota),
            paused_at: AtomicU64::new(0),
        };
        Self { each: (0..count).map(stream).collect(), wakes: AtomicU64::new(0) }
    }

    fn get(&self, stream: u32) -> Result<&Stream, ReserveError> {
        self.each
            .get(stream as usize)
            .ok_or(ReserveError::Stream { stream, limit: self.each.len() as u32 })
    }

    pub(super) fn set_quota(&self, stream: u32, quota: u32) -> Result<(), ReserveError> {
        self.get(stream)?.quota.store(quota, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn outstanding(&self, stream: u32) -> Result<u32, ReserveError> {
        Ok(self.get(stream)?.outstanding.load(Ordering::Relaxed))
    }

    /// Returns how often the waiting streams were woken.
    pub(super) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::SeqCst)
    }

    /// Pauses the stream; the permit was asked after this many wakes.
    pub(super) fn pause(&self, stream: u32, wakes: u64) -> Result<(), ReserveError> {
        self.get(stream)?.paused_at.store(wakes + 1, Ordering::SeqCst);
        Ok(())
    }

    /// Resumes paused streams, because the permit may answer differently now.
    pub(super) fn resume(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether the stream was paused, and not woken since.
    pub(super) fn is_paused(&self, stream: u32) -> bool {
        let cell = self.each.get(stream as usize);
        cell.is_some_and(|cell| cell.paused_at.load(Ordering::SeqCst) == self.wakes() + 1)
    }

    /// Counts one more block, if the quota allows it. `threads`: who may count now.
    #[inline]
    pub(super) fn enter(&self, threads: Threads, stream: u32) -> Result<(), ReserveError> {
        let cell = self.get(stream)?;
        let quota = cell.quota.load(Ordering::Relaxed);
        if cell.outstanding.add_by(threads, 1, Ordering::Relaxed) < quota {
            return Ok(());
        }
        cell.outstanding.sub_by(threads, 1, Ordering::Relaxed);
        Err(ReserveError::Quota { stream, quota })
    }

    /// Counts so many blocks less. `threads`: who may count now.
    #[inline]
    pub(super) fn leave(&self, threads: Threads, stream: u32, blocks: u32) {
        if let Some(cell) = self.each.get(stream as usize) {
            cell.outstanding.sub_by(threads, blocks, Ordering::Relaxed);
        }
    }
}
