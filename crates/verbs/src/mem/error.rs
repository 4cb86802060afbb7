//! Why memory cannot be had or used.
use std::io;

/// Memory could not be allocated, mapped or reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemError {
    /// The operating system refused.
    #[error("{call} for {bytes} bytes of shared memory: {source}")]
    Os {
        /// The system call.
        call: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// The system's error.
        source: io::Error,
    },
    /// A region of zero bytes.
    #[error("a memory region needs at least one byte")]
    Empty,
    /// A range outside of the memory.
    #[error("bytes {offset}..{offset}+{bytes} are outside of a memory of {available} bytes")]
    OutOfBounds {
        /// First byte asked for.
        offset: usize,
        /// Bytes asked for.
        bytes: usize,
        /// Bytes that exist.
        available: usize,
    },
    /// An atomic access that its size does not divide.
    #[error("address {addr:#x} is not aligned to {align} bytes")]
    Misaligned {
        /// The address.
        addr: u64,
        /// What it must be a multiple of.
        align: usize,
    },
    /// The memory is mapped for reading only.
    #[error("the memory is mapped for reading only")]
    ReadOnly,
    /// A peer's descriptor that is not a memfd, or that the peer could still shrink: its seals.
    #[error("the peer's descriptor is not a memfd sealed against shrinking (seals {0:#x})")]
    NotSealed(u32),
    /// A peer's descriptor of memory that may have no pages when it is read: the type of its file system.
    #[error(
        "the peer's memory is not plain shared memory (file system {0:#x}): huge pages that have run \
         out would kill this process"
    )]
    NotPlain(u64),
    /// The memory is shared with peers that may write, or with peers that may not: never with both, since
    /// a descriptor that can be opened again is only read-only if the memory is sealed.
    #[error(
        "the memory is shared {shared} already and cannot be shared {asked} too: register a copy"
    )]
    SharedOtherwise {
        /// How it is shared.
        shared: &'static str,
        /// How it was to be shared.
        asked: &'static str,
    },
    /// The descriptor of this memory is closed.
    #[error("the memory has no descriptor to share: share memory that this process allocated")]
    NoDescriptor,
    /// A descriptor from a peer whose memory is shorter than announced.
    #[error("the peer's memory has {seen} bytes, it announced {announced}")]
    Truncated {
        /// Bytes that the peer announced.
        announced: usize,
        /// Bytes that exist.
        seen: u64,
    },
}

pub(super) fn os_error(call: &'static str, bytes: usize, errno: rustix::io::Errno) -> MemError {
    MemError::Os { call, bytes, source: errno.into() }
}
