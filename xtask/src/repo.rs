//! The repository: its location and its files.
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Repo {
    root: PathBuf,
}

impl Repo {
    /// Finds the checkout that this program was built from.
    pub(crate) fn find() -> Result<Self> {
        let manifest = std::env::var("CARGO_MANIFEST_DIR")
            .unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        let root = Path::new(&manifest).parent().map(Path::to_path_buf);
        let root = root.with_context(|| format!("{manifest} has no parent folder"))?;
        ensure!(
            root.join("Cargo.toml").is_file(),
            "{} is not the root of the repository: run this as `cargo xtask` inside a checkout",
            root.display()
        );
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the sorted names of all files that are committed or would be by `git add --all`.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .output()
            .context("cannot run git, which lists the files: install it")?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git ls-files failed: {}", message.trim());
        Ok(self.existing(&String::from_utf8(output.stdout).context("a file name is not UTF-8")?))
    }

    fn existing(&self, listed: &str) -> Vec<String> {
        let names = listed.split('\0').filter(|name| !name.is_empty());
        let mut names: Vec<_> =
            names.filter(|name| self.path(name).is_file()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }
}
