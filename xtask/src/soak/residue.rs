//! Checks what killed processes leave behind: shared memory, temporary files, children.
use super::agents::Setting;
use super::frames;
use crate::proc::poll_until;
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const SHARED_MEMORY: &str = "/dev/shm";
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Residue {
    shared_memory: BTreeSet<String>,
}

impl Residue {
    pub(crate) fn before() -> Self {
        Self { shared_memory: shared_memory() }
    }

    pub(crate) fn check(&self, setting: &Setting) -> Result<()> {
        let processes = until_empty(|| setting.processes());
        ensure!(processes.is_empty(), "processes still run: {processes:?}");
        let scratch = frames::names(&setting.scratch())?;
        ensure!(scratch.is_empty(), "temporary files were left: {scratch:?}");
        let new = until_empty(|| self.new_shared_memory());
        ensure!(new.is_empty(), "shared memory was left in {SHARED_MEMORY}: {new:?}");
        Ok(())
    }

    fn new_shared_memory(&self) -> Vec<String> {
        shared_memory().difference(&self.shared_memory).cloned().collect()
    }
}

fn shared_memory() -> BTreeSet<String> {
    frames::names(Path::new(SHARED_MEMORY)).unwrap_or_default().into_iter().collect()
}

/// Polls until `list` is empty; returns what is left after [`LIMIT`].
fn until_empty<T>(list: impl Fn() -> Vec<T>) -> Vec<T> {
    let mut left = Vec::new();
    let _ = poll_until(LIMIT, || {
        left = list();
        Ok(left.is_empty().then_some(()))
    });
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::plan::Plan;
    use std::fs;
    use std::process::Command;

    fn setting() -> Setting {
        let plan = Plan::new(0, 0, Duration::from_secs(1));
        Setting::new(Path::new("catchment"), "shm", &plan).unwrap()
    }

    #[test]
    fn nothing_left_is_accepted_and_a_file_is_not() {
        let (setting, before) = (setting(), Residue::before());
        before.check(&setting).unwrap();
        fs::write(setting.scratch().join("forgotten"), b"x").unwrap();
        let error = before.check(&setting).unwrap_err().to_string();
        assert!(error.contains("forgotten"), "{error}");
        fs::remove_dir_all(setting.folder()).unwrap();
    }

    #[test]
    fn new_shared_memory_is_found() {
        let before = Residue::before();
        let name = format!("catchment-residue-test-{}", std::process::id());
        let path = Path::new(SHARED_MEMORY).join(&name);
        fs::write(&path, b"x").unwrap();
        let found = before.new_shared_memory();
        fs::remove_file(&path).unwrap();
        assert!(found.contains(&name), "{found:?}");
    }

    #[test]
    fn an_orphan_is_found() {
        let setting = setting();
        let mark = setting.folder().display().to_string();
        let mut command = Command::new("sleep");
        let mut orphan = command.arg("4321").env("CATCHMENT_SOAK_ROUND", mark).spawn().unwrap();
        let found = setting.processes();
        orphan.kill().unwrap();
        orphan.wait().unwrap();
        assert!(found.iter().any(|(pid, line)| *pid == orphan.id() && line == "sleep 4321"));
        fs::remove_dir_all(setting.folder()).unwrap();
    }
}
