//! The programs that recipes start, as users would build them.
//!
//! They are built together: one after the other, each would ask for other features of what they
//! share, and build it again.

use crate::repo::Repo;
use crate::{metadata, run};
use anyhow::{Result, ensure};
use std::path::PathBuf;

const TARGETS: &[&str] = &[
    "--package=catchment-cli",
    "--package=catchment-duplex",
    "--package=catchment-lab",
    "--package=catchment-sim",
    "--bins",
    "--example=duplex",
];

pub(crate) fn catchment(repo: &Repo) -> Result<PathBuf> {
    built(repo, "catchment")
}

pub(crate) fn lab(repo: &Repo) -> Result<PathBuf> {
    built(repo, "catchment-lab")
}

pub(crate) fn sim(repo: &Repo) -> Result<PathBuf> {
    built(repo, "catchment-sim")
}

pub(crate) fn duplex(repo: &Repo) -> Result<PathBuf> {
    built(repo, "examples/duplex")
}

fn built(repo: &Repo, program: &str) -> Result<PathBuf> {
    let words = [&["build", "--release", "--quiet"], TARGETS].concat();
    run::succeed(&mut run::cargo(repo.root(), &words))?;
    let folder = metadata::target_folder(repo)?.join("release");
    let program = folder.join(program);
    ensure!(program.is_file(), "the build made no {}", program.display());
    Ok(program)
}
