//! Attacks and faults of use, played from outside against any build of the command.
//!
//! [`cases`] has one for each sentence of what must not happen; [`programs`] are the attack programs,
//! which run as other users and in other namespaces; [`wire`] has their encoders. [`scene`] puts streams
//! beside an attack and judges what became of them, [`host`] has processes, users and namespaces, and
//! [`report`] the lines and the committed lists.
#![forbid(unsafe_code)]

mod cases;
mod host;
mod learned;
mod programs;
mod report;
mod scene;
mod wire;

use anyhow::{Context as _, Result, ensure};
use cases::Case;
use clap::{Parser, Subcommand};
use host::Host;
use report::Line;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Plays attacks against a build of the command
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    program: Option<Program>,
    /// The command under attack
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The checkout that belongs to it, for what its pages say
    #[arg(long, value_name = "DIR", default_value = ".")]
    docs: PathBuf,
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
    /// Fail if a case does not hold that holds by this list
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Write what was found into this list
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Program {
    /// An attack program, for a case
    #[command(hide = true)]
    Play { name: String, args: String },
}

/// Set in a process that has mounts of its own.
const MARK: &str = "CATCHMENT_ATTACK_MOUNTS";

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool> {
    if let Some(Program::Play { name, args }) = &cli.program {
        return programs::play(name, args).map(|()| true);
    }
    let cases: Vec<&Case> = cases::all().filter(|case| is_chosen(cli, case)).collect();
    ensure!(!cases.is_empty(), "no case begins with {:?}: see --list", cli.only);
    if cli.list {
        cases.iter().for_each(|case| println!("{:<28} {}", case.name, case.sentence));
        return Ok(true);
    }
    if std::env::var_os(MARK).is_none() {
        return Err(in_own_mounts());
    }
    let binary = cli.binary.as_ref().context("which build? Say --binary FILE")?;
    let host = Host::new(binary, &cli.docs.canonicalize()?)?;
    let lines: Vec<Line> = cases.iter().map(|case| play(cli, &host, case)).collect();
    conclude(cli, &lines)
}

fn is_chosen(cli: &Cli, case: &Case) -> bool {
    let named = |prefix: &String| case.name.starts_with(prefix.as_str());
    (cli.only.is_empty() || cli.only.iter().any(named)) && (!cli.short || case.quick)
}

/// Starts this program again where mounts vanish with it.
fn in_own_mounts() -> anyhow::Error {
    let own = std::env::current_exe().unwrap_or_default();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(own);
    command.args(std::env::args_os().skip(1)).env(MARK, "1");
    anyhow::Error::from(command.exec()).context("unshare(1) of util-linux is missing")
}

fn play(cli: &Cli, host: &Host, case: &Case) -> Line {
    let start = std::time::Instant::now();
    let line = Line::new(case.name, (case.play)(host, case.name));
    if cli.json {
        println!("{}", line.json());
    } else {
        println!("{}", line.text());
    }
    if std::env::var_os("CATCHMENT_ATTACK_TIMES").is_some() {
        eprintln!("{:.1} s {}", start.elapsed().as_secs_f64(), case.name);
    }
    line
}

fn conclude(cli: &Cli, lines: &[Line]) -> Result<bool> {
    let fell = lines.iter().filter(|line| !line.held).count();
    let mut good = true;
    if let Some(list) = &cli.expect {
        let list = report::read(list)?;
        for line in report::fallen(lines, &list) {
            good = false;
            eprintln!("held before, and does not now: {}", line.text());
        }
    }
    if let Some(list) = &cli.record {
        report::record(list, lines)?;
    }
    eprintln!("{} cases played, {} held, {fell} do not hold yet", lines.len(), lines.len() - fell);
    Ok(good)
}
