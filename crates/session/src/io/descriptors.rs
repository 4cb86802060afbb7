//! File descriptors of this process: new sessions wait before those that there are would want for some.
use catchment_verbs::sync::Mutex;
use rustix::process::{Resource, getrlimit, setrlimit};

/// What a connection may become: a session has at most this many.
const SESSION: u64 = 10;
/// Kept for the sessions that there are: their sinks open files.
const RESERVE: u64 = 64;

/// Raises the soft limit of this process to the hard one: the usual soft limit of 1,024 is there only for
/// programs that call select(2).
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of file descriptors; there may be too few for many sources");
    }
}

/// There are too few for another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no file descriptors for another session: {open} of the {limit} that this process may have are in use"
)]
pub struct NoDescriptors {
    /// Open ones.
    pub open: u64,
    /// The soft limit.
    pub limit: u64,
}

/// Counts what is left, but not each time: that takes longer the more are open.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    /// Left when they were counted last, less what was granted since.
    left: Mutex<u64>,
}

impl Descriptors {
    /// Grants those of one more connection. `unfinished` connections may still become sessions.
    pub(super) fn grant(&self, unfinished: u64) -> Result<(), NoDescriptors> {
        let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(()) };
        let needed = SESSION + RESERVE.min(limit / 4);
        let mut left = self.left.lock();
        if *left < needed {
            let open = open().unwrap_or(limit);
            *left = limit.saturating_sub(open + SESSION * unfinished);
            if *left < needed {
                return Err(NoDescriptors { open, limit });
            }
        }
        *left -= SESSION;
        Ok(())
    }
}

/// Returns how many descriptors are open. Fails when there is none left to look.
fn open() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_unfinished_connections_may_need_is_not_granted_twice() {
        let descriptors = Descriptors::default();
        assert_eq!(descriptors.grant(0), Ok(()));
        *descriptors.left.lock() = 0;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX / 100);
        let refused = descriptors.grant(limit / SESSION).unwrap_err();
        assert!(refused.open > 0 && refused.open < limit, "{refused}");
    }
}
