//! The directory of a demo: new for each run, and gone at the next one.
use anyhow::{Context as _, Result};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

const PREFIX: &str = "catchment-demo-";
/// Says that the directory is ours to remove. Locked while its demo runs.
const MARKER: &str = ".catchment-demo";

/// A directory that the next demo removes.
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    pub(super) fn new() -> Result<Self> {
        let parent = std::env::temp_dir();
        remove_old(&parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        let made = || -> std::io::Result<File> {
            DirBuilder::new().mode(0o700).create(&path)?;
            let lock = File::create_new(path.join(MARKER))?;
            lock.lock()?;
            Ok(lock)
        };
        let lock = made().with_context(|| {
            format!("cannot make {}; give another directory with --out", path.display())
        })?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes what earlier demos of this user left, as far as they do not run any more.
fn remove_old(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_ours && may_go(&entry.path()).unwrap_or(false) {
            let removed = fs::remove_dir_all(entry.path());
            tracing::debug!(path = %entry.path().display(), ?removed, "an earlier demo's frames");
        }
    }
}

/// Whether it is a directory (no link) of this user with a marker that no demo holds.
fn may_go(path: &Path) -> std::io::Result<bool> {
    let me = fs::metadata("/proc/self")?.uid();
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() || found.uid() != me {
        return Ok(false);
    }
    let marker = File::open(path.join(MARKER))?;
    Ok(match marker.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_directories_of_ended_demos_go() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, marked: bool| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("frame"), "x").unwrap();
            if marked {
                fs::write(path.join(MARKER), "").unwrap();
            }
            path
        };
        let old = make("catchment-demo-1", true);
        let running = make("catchment-demo-2", true);
        let foreign = make("catchment-demo-3", false);
        let other = make("something", true);
        let lock = File::open(running.join(MARKER)).unwrap();
        lock.lock().unwrap();
        remove_old(parent.path());
        assert!(!old.exists());
        assert!(running.exists() && foreign.exists() && other.exists());
        // A child that another test is just starting shares the file until its exec.
        lock.unlock().unwrap();
        remove_old(parent.path());
        assert!(!running.exists());
    }
}
