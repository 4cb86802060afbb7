//! One collector at a time writes below a directory.
use super::io_error;
use crate::SinkError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Name of the file that the collector holds; its text is the number of its process.
const NAME: &str = ".lock";

/// Keeps other collectors out of a directory while it lives, and while its process does.
#[derive(Debug)]
pub(super) struct RootLock {
    file: File,
    path: PathBuf,
}

impl RootLock {
    /// Takes the directory, which is made if it is not there.
    pub(super) fn take(root: &Path) -> Result<Self, SinkError> {
        std::fs::create_dir_all(root).map_err(io_error("create", root))?;
        let path = root.join(NAME);
        loop {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false);
            let mut file = options.open(&path).map_err(io_error("open", &path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let mut pid = String::new();
                    let _ = file.read_to_string(&mut pid);
                    return Err(SinkError::InUse {
                        path: root.to_owned(),
                        pid: pid.trim().parse().ok(),
                    });
                }
                Err(error @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK)) => {
                    tracing::warn!(%error, file = %path.display(), "the file system has no locks: nothing keeps another collector out");
                }
                Err(errno) => return Err(io_error("lock", &path)(errno.into())),
            }
            let lock = Self { file, path: path.clone() };
            // It may have been removed before it was locked.
            if lock.is_there() {
                lock.write_pid().map_err(io_error("write", &path))?;
                return Ok(lock);
            }
        }
    }

    /// Returns whether the directory is still the one that was taken.
    pub(super) fn is_there(&self) -> bool {
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        let ours = self.file.metadata().map(identity).ok();
        ours.is_some() && std::fs::metadata(&self.path).map(identity).ok() == ours
    }

    fn write_pid(&self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        // Text of another process may have been longer.
        (&self.file).write_all(format!("{}\n", std::process::id()).as_bytes())
    }
}

impl Drop for RootLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that another thread is just starting shares it until its exec.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_is_being_started_does_not_keep_the_directory() {
        let root = tempfile::tempdir().unwrap();
        let lock = RootLock::take(root.path()).unwrap();
        let shared_by_child = lock.file.try_clone().unwrap();
        drop(lock);
        RootLock::take(root.path()).unwrap();
        drop(shared_by_child);
    }
}
