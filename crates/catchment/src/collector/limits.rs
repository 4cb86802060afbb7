//! What the system lets this process have.
use rustix::process::{Resource, getrlimit, setrlimit};

/// Returns half of the memory that the kernel says it has, at least 1 GiB.
pub(super) fn half_of_memory() -> u64 {
    let kib = || -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    (kib().unwrap_or(0) * 512).max(1 << 30)
}

/// Raises the soft limit of descriptors to the hard one: a session takes up to 4, and the usual soft
/// limit of 1,024 is there only for programs that call select(2).
pub(super) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of descriptors; there may be too few for many sources");
    }
}
