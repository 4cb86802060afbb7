//! The programs that recipes start, as users would build them.
//!
//! They are built together: separately, each would enable other features of shared dependencies, which
//! would be built again.
use crate::repo::Repo;
use crate::{metadata, run};
use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const TARGETS: &[&str] = &[
    "--package=catchment-attack",
    "--package=catchment-cli",
    "--package=catchment-lab",
    "--package=catchment-sim",
    "--bins",
];

pub(crate) const ATTACK: &str = "catchment-attack";
pub(crate) const CATCHMENT: &str = "catchment";
pub(crate) const LAB: &str = "catchment-lab";
pub(crate) const SIM: &str = "catchment-sim";

fn build(repo: &Repo) -> Command {
    run::cargo(repo.root(), &[&["build", "--release", "--quiet"], TARGETS].concat())
}

/// A build that goes on beside something else. Dropping this ends it.
pub(crate) struct Ahead(Child);

impl Drop for Ahead {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            run::kill_tree(&mut self.0);
        }
    }
}

/// Begins to build them where nothing else takes the processors. [`built`] waits for it, and says what is wrong if it
/// fails.
pub(crate) fn build_ahead(repo: &Repo) -> Result<Ahead> {
    let mut command = run::at_rest(&build(repo));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child =
        command.spawn().with_context(|| format!("cannot start `{}`", run::shown(&command)))?;
    Ok(Ahead(child))
}

pub(crate) fn built(repo: &Repo, program: &str) -> Result<PathBuf> {
    run::succeed(&mut build(repo))?;
    let program = metadata::target_folder(repo)?.join("release").join(program);
    ensure!(program.is_file(), "the build did not produce {}", program.display());
    Ok(program)
}
