//! Memory that is registered before an application asks for it. A chunk is given away once: who gets it is the only one
//! that ever maps it beside the agent.
use crate::policy;
use catchment_verbs::mem::{Region, RegionOptions};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Access, Mr, Pd, VerbsError};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A chunk is not halved below this because the system refuses it.
const LEAST_BYTES: u64 = 64 << 10;

/// Memory, registered without remote rights, and its descriptor for who gets it.
pub(super) struct MemoryChunk {
    pub(super) mr: Arc<dyn Mr>,
    pub(super) fd: OwnedFd,
}

/// The chunks that are ready, and the thread that makes more.
pub(super) struct MemoryChunks {
    stock: Arc<Stock>,
    /// Wakes the thread, and ends it when it is dropped.
    wants: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Stock {
    /// Registrations are in a domain of their own, windows in those of their users.
    pd: Arc<dyn Pd>,
    ahead: usize,
    ready: Mutex<Ready>,
}

struct Ready {
    /// Length of a chunk: less than the policy says where the system did not give as much.
    bytes: u64,
    chunks: Vec<MemoryChunk>,
}

impl MemoryChunks {
    /// Begins to make chunks.
    pub(super) fn start(pd: Arc<dyn Pd>, policy: policy::MemoryChunks) -> io::Result<Self> {
        let ready = Ready { bytes: round(policy.bytes).unwrap_or(policy.bytes), chunks: vec![] };
        let stock = Arc::new(Stock { pd, ahead: policy.ahead, ready: Mutex::new(ready) });
        let (wants, wanted) = channel();
        let ours = Arc::clone(&stock);
        let thread = std::thread::Builder::new().name("agent-memory".to_owned());
        let thread = thread.spawn(move || ours.keep_full(&wanted))?;
        Ok(Self { stock, wants: Some(wants), thread: Some(thread) })
    }

    /// Returns the domain of what is registered for applications.
    pub(super) fn pd(&self) -> &dyn Pd {
        &*self.stock.pd
    }

    /// Takes a chunk for a region of `bytes`, for who may have `left` bytes more.
    pub(super) fn take(&self, bytes: u64, left: u64) -> Result<MemoryChunk, String> {
        let mut ready = self.stock.ready.lock();
        let length = length(bytes, left, ready.bytes)
            .ok_or_else(|| format!("a memory chunk of {bytes} bytes is beyond the {left} left"))?;
        let chunk = if length == ready.bytes { ready.chunks.pop() } else { None };
        drop(ready);
        if chunk.is_some()
            && let Some(wants) = &self.wants
        {
            let _ = wants.send(());
        }
        chunk.map_or_else(|| self.stock.make(length).map_err(|error| error.to_string()), Ok)
    }
}

impl Drop for MemoryChunks {
    fn drop(&mut self) {
        drop(self.wants.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Stock {
    /// The work of the thread.
    fn keep_full(&self, wanted: &Receiver<()>) {
        self.fill();
        while wanted.recv().is_ok() {
            self.fill();
        }
    }

    /// Makes chunks until as many are ready as shall be, or the system has no more memory.
    fn fill(&self) {
        loop {
            let bytes = {
                let ready = self.ready.lock();
                if ready.chunks.len() >= self.ahead {
                    return;
                }
                ready.bytes
            };
            match halved(bytes, |bytes| self.make(bytes)) {
                Ok((made, chunk)) => {
                    if made < bytes {
                        tracing::warn!(
                            bytes,
                            made,
                            "memory chunks are shorter than they should be"
                        );
                    }
                    let mut ready = self.ready.lock();
                    if made < ready.bytes {
                        ready.bytes = made;
                        ready.chunks.clear();
                    }
                    ready.chunks.push(chunk);
                }
                Err(error) => {
                    tracing::warn!(%error, bytes, "no memory chunk could be made ahead");
                    return;
                }
            }
        }
    }

    /// Makes and registers a chunk. Its pages are allocated when somebody touches them.
    fn make(&self, bytes: u64) -> Result<MemoryChunk, VerbsError> {
        let length = usize::try_from(bytes).map_err(|_| {
            VerbsError::Invalid(format!("{bytes} bytes are more than this machine addresses"))
        })?;
        let (region, fd) = Region::alloc_with_fd(length, RegionOptions { populate: false })?;
        Ok(MemoryChunk { mr: self.pd.reg_mr(region, Access::LOCAL_WRITE)?, fd })
    }
}

/// Returns what `make` makes of so many bytes, or of the half, and so on; and of how many.
fn halved<T, E>(mut bytes: u64, mut make: impl FnMut(u64) -> Result<T, E>) -> Result<(u64, T), E> {
    loop {
        match make(bytes) {
            Err(_) if bytes / 2 >= LEAST_BYTES => bytes = round(bytes / 2).unwrap_or(LEAST_BYTES),
            made => return made.map(|made| (bytes, made)),
        }
    }
}

/// Returns the length in whole pages.
fn round(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(rustix::param::page_size() as u64)
}

/// Returns the length of a chunk for a region of `bytes`, where chunks have `usual` bytes and `left` are left to who
/// asks: it gets no more than half of that, unless the region needs more. `None` if it needs more than is left.
fn length(bytes: u64, left: u64, usual: u64) -> Option<u64> {
    let needed = round(bytes).filter(|needed| *needed <= left)?;
    let mut length = usual;
    while length > left / 2 && length > needed {
        length = round(length / 2).filter(|half| *half < length).unwrap_or(needed);
    }
    Some(length.max(needed))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_chunk_is_as_long_as_its_region_needs_and_the_policy_allows() {
        for (bytes, left, expected) in [
            (1, 1 << 30, Some(64 * MIB)),
            (64 * MIB, 1 << 30, Some(64 * MIB)),
            (64 * MIB + 1, 1 << 30, Some(64 * MIB + 4096)),
            (1, 128 * MIB, Some(64 * MIB)),
            (1, 127 * MIB, Some(32 * MIB)),
            (40 * MIB, 64 * MIB, Some(40 * MIB)),
            (1, 10_000, Some(4096)),
            (1, 4096, Some(4096)),
            (1, 4095, None),
            (64 * MIB + 1, 64 * MIB, None),
            (u64::MAX, u64::MAX, None),
        ] {
            assert_eq!(length(bytes, left, 64 * MIB), expected, "{bytes} of {left}");
        }
    }

    #[test]
    fn what_the_system_refuses_is_halved_and_the_least_is_not() {
        let least =
            |most: u64| halved(64 * MIB, |bytes| (bytes <= most).then_some(()).ok_or(bytes));
        assert_eq!(least(1 << 30), Ok((64 * MIB, ())));
        assert_eq!(least(9 * MIB), Ok((8 * MIB, ())));
        assert_eq!(least(LEAST_BYTES), Ok((LEAST_BYTES, ())));
        assert_eq!(least(0), Err(LEAST_BYTES));
    }
}
