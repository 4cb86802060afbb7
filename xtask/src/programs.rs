//! The programs that recipes start, as users would build them.
//!
//! They are built together: one after the other, each would ask for other features of what they
//! share, and build it again.
use crate::repo::Repo;
use crate::{metadata, run};
use anyhow::{Result, ensure};
use std::path::PathBuf;

const TARGETS: &[&str] =
    &["--package=catchment-cli", "--package=catchment-lab", "--package=catchment-sim", "--bins"];

pub(crate) const CATCHMENT: &str = "catchment";
pub(crate) const LAB: &str = "catchment-lab";
pub(crate) const SIM: &str = "catchment-sim";

pub(crate) fn built(repo: &Repo, program: &str) -> Result<PathBuf> {
    let words = [&["build", "--release", "--quiet"], TARGETS].concat();
    run::succeed(&mut run::cargo(repo.root(), &words))?;
    let program = metadata::target_folder(repo)?.join("release").join(program);
    ensure!(program.is_file(), "the build made no {}", program.display());
    Ok(program)
}
