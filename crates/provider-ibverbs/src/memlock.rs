//! How much memory this process may lock, and how much it has locked.

/// Returns how much this process may lock; `None` without a limit.
pub(crate) fn limit_bytes() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

/// Returns how much of this process's memory devices have pinned: it counts against the limit.
pub(crate) fn locked_bytes() -> u64 {
    pinned_bytes(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// `VmPin:     1234 kB`
fn pinned_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_is_read_as_the_kernel_writes_it() {
        let status = "VmLck:\t       8 kB\nVmPin:\t    1234 kB\nVmHWM:\t    1 kB\n";
        assert_eq!(pinned_bytes(status), 1234 * 1024);
        assert_eq!(pinned_bytes("VmLck: 8 kB"), 0);
    }
}
