//! The programs that recipes start, as users would build them.
//!
//! They are built together: separately, each would enable other features of shared dependencies, which
//! would be built again.
use crate::repo::Repo;
use crate::{metadata, run};
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::process::Command;

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

pub(crate) fn build(repo: &Repo) -> Command {
    run::cargo(repo.root(), &[&["build", "--release", "--quiet"], TARGETS].concat())
}

pub(crate) fn built(repo: &Repo, program: &str) -> Result<PathBuf> {
    run::succeed(&mut build(repo))?;
    let program = metadata::target_folder(repo)?.join("release").join(program);
    ensure!(program.is_file(), "the build did not produce {}", program.display());
    Ok(program)
}
