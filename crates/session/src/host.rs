//! Identity of the host and process: decides whether peers can share memory.
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Where a process runs.
///
/// Two processes whose `boot_id` is equal run on one kernel. The value is also equal in all
/// containers of a host; `netns` tells these apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// `/proc/sys/kernel/random/boot_id`: random, new at every start of the kernel. 1 to 64
    /// ASCII characters.
    pub boot_id: String,
    /// Inode number of the network namespace (`/proc/self/ns/net`).
    pub netns: u64,
    /// Effective user id.
    pub uid: u32,
    /// Process id, informative only: it can differ in another PID namespace.
    pub pid: u32,
}

/// The identity of this host cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}; is /proc mounted in this container?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file has unexpected content.
    #[error("{} holds \"{seen}\", not a boot id; is /proc the kernel's own?", path.display())]
    BootId {
        /// The file.
        path: PathBuf,
        /// What it holds, escaped and cut.
        seen: String,
    },
}

impl Host {
    /// Reads the identity of this process.
    ///
    /// # Errors
    /// `/proc` cannot be read or has unexpected content.
    pub fn read() -> Result<Self, HostError> {
        Self::read_from(Path::new("/proc"))
    }

    fn read_from(proc: &Path) -> Result<Self, HostError> {
        Ok(Self {
            boot_id: boot_id(proc)?,
            netns: netns(proc)?,
            uid: rustix::process::geteuid().as_raw(),
            pid: std::process::id(),
        })
    }
}

fn boot_id(proc: &Path) -> Result<String, HostError> {
    let path = proc.join("sys/kernel/random/boot_id");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(HostError::Read { path, source }),
    };
    let id = text.trim();
    let well_formed = id.len() == 36 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if !well_formed {
        let seen = crate::names::printable(id, 64);
        return Err(HostError::BootId { path, seen });
    }
    Ok(id.to_owned())
}

fn netns(proc: &Path) -> Result<u64, HostError> {
    let path = proc.join("self/ns/net");
    match fs::metadata(&path) {
        Ok(metadata) => Ok(metadata.ino()),
        Err(source) => Err(HostError::Read { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_an_identity_that_does_not_change() {
        let host = Host::read().unwrap();
        assert_eq!(host, Host::read().unwrap());
        assert_eq!(host.pid, std::process::id());
        let link = fs::read_link("/proc/self/ns/net").unwrap();
        assert_eq!(link.to_str().unwrap(), format!("net:[{}]", host.netns));
    }

    #[test]
    fn a_missing_proc_is_an_error_that_names_the_file() {
        let empty = tempfile::tempdir().unwrap();
        let error = Host::read_from(empty.path()).unwrap_err().to_string();
        assert!(error.contains("sys/kernel/random/boot_id"), "{error}");
        assert!(error.contains("is /proc mounted"), "{error}");
    }

    #[test]
    fn a_wrong_boot_id_is_shown_escaped() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/kernel/random");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("boot_id"), "\u{1b}[2Jno").unwrap();
        let error = Host::read_from(root.path()).unwrap_err().to_string();
        assert!(error.contains("\\u{1b}[2Jno"), "{error}");
    }
}
