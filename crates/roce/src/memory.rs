//! Registered memory, as the driver provides it to a queue pair.
//!
//! The protocol never holds memory. It names addresses, and the driver's [`Memory`] checks key,
//! bounds and rights against its table and moves the bytes. One [`Memory`] stands for one
//! protection domain: a key of another domain is an unknown key.

/// What the peer wants to do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoteAccess {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// An atomic operation.
    Atomic,
}

/// An atomic operation on eight aligned bytes, host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Becomes `swap` if it equals `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Grows by this; wraps.
    FetchAdd(u64),
}

impl AtomicOp {
    /// Returns the value after the operation on `before`.
    pub fn apply(self, before: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if before == compare => swap,
            Self::CompareSwap { .. } => before,
            Self::FetchAdd(add) => before.wrapping_add(add),
        }
    }
}

/// Key, bounds or rights do not allow the access. No details, because the peer must not learn them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key, its bounds or its rights do not allow this access")]
pub struct AccessError;

/// Memory of one protection domain.
///
/// A queue pair calls `check_remote` when a message begins, and the other functions for each of its
/// packets. Each must check again: a region may have been deregistered in between.
pub trait Memory {
    /// Checks that the peer may access the whole range. Not called for empty ranges.
    ///
    /// # Errors
    /// [`AccessError`] when the key is unknown, the range leaves the region, or a right is missing.
    fn check_remote(
        &self,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u64,
    ) -> Result<(), AccessError>;

    /// Puts data of an RDMA WRITE in place. `data` is never empty. The bytes must become visible to
    /// the program in the order of the calls.
    ///
    /// # Errors
    /// As [`Memory::check_remote`] for [`RemoteAccess::Write`]; then nothing changes.
    fn write_remote(&mut self, rkey: u32, va: u64, data: &[u8]) -> Result<(), AccessError>;

    /// Executes an atomic operation on eight bytes at `va`, a multiple of 8, and returns their
    /// previous value.
    ///
    /// # Errors
    /// As [`Memory::check_remote`] for [`RemoteAccess::Atomic`]; then nothing changes.
    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError>;

    /// Invalidates a key (SEND with invalidate).
    ///
    /// # Errors
    /// [`AccessError`] when the key is unknown or of a region that cannot be invalidated.
    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError>;

    /// Puts received bytes into a receive, or into the destination of a READ or an atomic. `data`
    /// is never empty and lies inside a scatter-gather element that was posted.
    ///
    /// # Errors
    /// [`AccessError`] when the driver no longer has that memory.
    fn write_local(&mut self, lkey: u32, addr: u64, data: &[u8]) -> Result<(), AccessError>;
}
