//! `cargo deny`: licences, sources and known weaknesses of the crates that we depend on (`deny.toml`).
//!
//! It is not installed here as other tools are: that takes longer than the rest of the suite. Where it
//! is missing, or the database of weaknesses cannot be had, what is left out is said.
use crate::repo::Repo;
use crate::run;
use anyhow::Result;
use std::process::{Command, Stdio};

pub(crate) fn check(repo: &Repo) -> Result<()> {
    let deny = |words: &[&str]| run::cargo(repo.root(), &[&["deny"], words].concat());
    if !is_fine(&mut deny(&["--version"])) {
        println!("left out: cargo-deny is not installed; type: cargo install --locked cargo-deny");
        return Ok(());
    }
    run::succeed(&mut deny(&["--offline", "check", "licenses", "bans", "sources"]))?;
    if !is_fine(&mut deny(&["fetch", "db"])) {
        println!("left out: the database of weaknesses cannot be had: `cargo deny fetch db` fails");
        return Ok(());
    }
    run::succeed(&mut deny(&["--offline", "check", "advisories"]))
}

fn is_fine(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
