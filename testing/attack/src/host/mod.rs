//! The machine that a case is played on: processes, users, namespaces, folders.
pub(crate) mod place;
pub(crate) mod process;

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user of the programs under attack.
pub(crate) const VICTIM: u32 = 61_001;

/// Folders that belong to the victim, with the programs that it runs. Dropping it removes all.
pub(crate) struct Host {
    /// Where the folders of cases are.
    pub(crate) folder: PathBuf,
    /// The command under attack.
    pub(crate) binary: PathBuf,
    /// This program, for its attack programs.
    pub(crate) own: PathBuf,
    /// The checkout that belongs to the command, for what its pages say.
    pub(crate) docs: PathBuf,
}

impl Host {
    pub(crate) fn new(binary: &Path, docs: &Path) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "attacks are played by several users in several namespaces: run this as root"
        );
        let folder = std::env::temp_dir().join(format!("catchment-attack-{}", std::process::id()));
        let programs = folder.join("bin");
        fs::create_dir_all(&programs).with_context(|| folder.display().to_string())?;
        let copy = |from: &Path, name: &str| -> Result<PathBuf> {
            let to = programs.join(name);
            fs::copy(from, &to).with_context(|| from.display().to_string())?;
            Ok(to)
        };
        let own = std::env::current_exe().context("cannot find the running program")?;
        Ok(Self {
            binary: copy(binary, "catchment")?,
            own: copy(&own, "attack")?,
            docs: docs.to_path_buf(),
            folder,
        })
    }

    /// Makes an empty folder of the victim.
    pub(crate) fn folder(&self, case: &str) -> Result<Folder> {
        let path = self.folder.join(case);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)?;
        give(&path)?;
        Ok(Folder { path, mounts: Vec::new() })
    }

    /// The command under attack, as the user of the victim.
    pub(crate) fn catchment(&self) -> Command {
        as_victim(&self.binary)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn as_victim(program: &Path) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(program);
    command.uid(VICTIM).gid(VICTIM).env_remove("RUST_LOG");
    command
}

/// Makes a file or folder the victim's.
pub(crate) fn give(path: &Path) -> Result<()> {
    std::os::unix::fs::chown(path, Some(VICTIM), Some(VICTIM))
        .with_context(|| path.display().to_string())
}

/// A folder of one case; dropping it removes it.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    mounts: Vec<PathBuf>,
}

impl Folder {
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Mounts a file system of memory, of this size.
    pub(crate) fn small_disk(&mut self, name: &str, size: &str) -> Result<PathBuf> {
        let path = self.join(name);
        fs::create_dir_all(&path)?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "attack"]).arg(&path);
        ensure!(command.status()?.success(), "{command:?} failed");
        self.mounts.push(path.clone());
        give(&path)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for path in &self.mounts {
            let _ = Command::new("umount").arg("-l").arg(path).status();
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}
