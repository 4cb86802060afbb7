//! `cargo xtask attack`: builds the attacks and the command, and plays the one against the other.
use crate::repo::Repo;
use crate::{programs, run};
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What holds in this tree. `--record` writes it.
const LIST: &str = "testing/attack/lists/now.jsonl";

/// All cases take some minutes.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Which attacks to play, against what.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Play only cases whose name begins so; may be repeated
    #[arg(long, value_name = "CASE")]
    only: Vec<String>,
    /// List the cases with the sentence that each holds
    #[arg(long)]
    list: bool,
    /// Play only the cases that take a moment
    #[arg(long)]
    short: bool,
    /// Write a JSON object a line
    #[arg(long)]
    json: bool,
    /// The command under attack; if left out, a release build
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The checkout that belongs to it, for what its pages say; if left out, this one
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
    /// Write what was found into the list of what holds, or into this one
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = LIST)]
    record: Option<PathBuf>,
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let mut command = Command::new(programs::built(repo, programs::ATTACK)?);
    command.current_dir(repo.root());
    let flags = [("--list", args.list), ("--short", args.short), ("--json", args.json)];
    command.args(flags.iter().filter(|flag| flag.1).map(|flag| flag.0));
    for name in &args.only {
        command.args(["--only", name]);
    }
    let release = || programs::built(repo, programs::CATCHMENT);
    let given = args.binary.as_ref().map(|path| absolute(path)).transpose()?;
    command.arg("--binary").arg(given.map_or_else(release, Ok)?);
    let docs = args.docs.as_deref().unwrap_or(repo.root());
    command.arg("--docs").arg(absolute(docs)?);
    if let Some(list) = &args.record {
        command.arg("--record").arg(list);
    } else if args.binary.is_none() {
        command.args(["--expect", LIST]);
    }
    let finished = run::finish(&mut command, LIMIT, run::Show::All)?;
    let fell = finished.stdout.lines().filter(|line| line.starts_with("FELL")).collect::<Vec<_>>();
    ensure!(fell.is_empty() || finished.status.success(), "{}", fell.join("; "));
    run::demand_success(&command, finished.status)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| path.display().to_string())
}

/// The short form that `cargo xtask test` runs. It fails if a case does not hold that did.
pub(crate) fn short(repo: &Repo, full: bool) -> Result<()> {
    let args = Args {
        only: Vec::new(),
        list: false,
        short: !full,
        json: false,
        binary: None,
        docs: None,
        record: None,
    };
    run(repo, &args)
}
