//! `cargo xtask docs`: builds the API documentation without warnings and checks the links of all pages.
use crate::repo::Repo;
use crate::run;
use crate::tidy::links;
use anyhow::{Result, ensure};
use std::process::Command;

pub(crate) fn run(repo: &Repo) -> Result<()> {
    check_links(repo)?;
    run::succeed(&mut build(repo))?;
    println!("API documentation: {}", repo.path("target/doc/catchment/index.html").display());
    Ok(())
}

pub(crate) fn build(repo: &Repo) -> Command {
    let args = ["doc", "--workspace", "--lib", "--no-deps", "--quiet"];
    let mut command = run::cargo(repo.root(), &args);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

fn check_links(repo: &Repo) -> Result<()> {
    let findings = links::check(repo, &repo.files()?)?;
    for finding in &findings {
        println!("{finding}");
    }
    ensure!(findings.is_empty(), "{} links are broken", findings.len());
    Ok(())
}
