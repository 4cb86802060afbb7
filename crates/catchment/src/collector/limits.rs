//! What the system lets this process have.
use crate::observe::cpu::host_memory_bytes;

/// Returns half of the memory that the kernel says it has, at least 1 GiB.
pub(super) fn half_of_memory() -> u64 {
    (host_memory_bytes().unwrap_or(0) / 2).max(1 << 30)
}
