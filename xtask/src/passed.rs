//! Which tests passed in the last `cargo xtask test`: one file for each step, below the build folder.
//!
//! A step forgets its file when it begins and writes it when it has ended, so that what is there is of
//! the last run.
use crate::metadata;
use crate::repo::Repo;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// The steps whose tests are kept: those that run Rust's test programs under a runner that names them.
pub(crate) const STEPS: [&str; 2] = ["test", "loom"];

fn folder(repo: &Repo) -> Result<PathBuf> {
    Ok(metadata::target_folder(repo)?.join("xtask/passed"))
}

pub(crate) fn forget(repo: &Repo, step: &str) -> Result<()> {
    let path = folder(repo)?.join(step);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Keeps the names, each a package and a path: `catchment-roce::tests::a_test`.
pub(crate) fn keep(repo: &Repo, step: &str, names: &[String]) -> Result<()> {
    let folder = folder(repo)?;
    let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join(step), lines))
        .with_context(|| folder.display().to_string())
}

/// Returns the names of all steps.
pub(crate) fn all(repo: &Repo) -> Result<BTreeSet<String>> {
    let folder = folder(repo)?;
    let mut names = BTreeSet::new();
    for step in STEPS {
        let lines = fs::read_to_string(folder.join(step)).with_context(|| {
            format!("the step {step} has not run to its end: cargo xtask test --only {step}")
        })?;
        names.extend(lines.lines().map(str::to_owned));
    }
    Ok(names)
}
