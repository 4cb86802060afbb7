//! The programs that recipes start, as users would build them.
//!
//! They are built together: separately, each would enable other features of shared dependencies, which
//! would be built again.
use crate::metadata;
use crate::repo::Repo;
use crate::run::{self, KillOnDrop};
use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::process::{Command, Stdio};

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

/// Begins to build them where nothing else takes the processors. [`built`] waits for it, and says what is wrong if it
/// fails.
pub(crate) fn build_ahead(repo: &Repo) -> Result<KillOnDrop> {
    let mut command = run::at_rest(&build(repo));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child =
        command.spawn().with_context(|| format!("cannot start `{}`", run::shown(&command)))?;
    Ok(KillOnDrop(child))
}

pub(crate) fn built(repo: &Repo, program: &str) -> Result<PathBuf> {
    run::succeed(&mut build(repo))?;
    let program = metadata::target_folder(repo)?.join("release").join(program);
    ensure!(program.is_file(), "the build did not produce {}", program.display());
    Ok(program)
}
