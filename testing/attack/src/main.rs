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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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

/// Set in a process that has namespaces of its own.
const MARK: &str = "CATCHMENT_ATTACK_NAMESPACES";

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
        return Err(in_own_namespaces());
    }
    let loopback = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    ensure!(loopback.is_ok_and(|status| status.success()), "ip(8) of iproute2 is missing");
    let binary = cli.binary.as_ref().context("which build? Say --binary FILE")?;
    let host = Host::new(binary, &cli.docs.canonicalize()?)?;
    let lines = play_all(cli, &host, &cases)?;
    conclude(cli, &lines)
}

fn is_chosen(cli: &Cli, case: &Case) -> bool {
    let named = |prefix: &String| case.name.starts_with(prefix.as_str());
    (cli.only.is_empty() || cli.only.iter().any(named)) && (!cli.short || case.quick)
}

/// Starts this program again where mounts vanish with it, and ports and sockets are its own.
fn in_own_namespaces() -> anyhow::Error {
    let own = std::env::current_exe().unwrap_or_default();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--net", "--"]).arg(own);
    command.args(std::env::args_os().skip(1)).env(MARK, "1");
    anyhow::Error::from(command.exec()).context("unshare(1) of util-linux is missing")
}

/// How long the short form may go on starting cases, and how many it plays at once: most only wait.
const SHORT: Duration = Duration::from_secs(45);
const SHORT_AT_ONCE: usize = 4;

/// Plays the cases, in the short form only those that hold by the list: others would take longer.
fn play_all(cli: &Cli, host: &Host, cases: &[&Case]) -> Result<Vec<Line>> {
    let list = cli.expect.as_deref().map(report::read).transpose()?;
    let holds = |case: &Case| list.as_ref().is_none_or(|list| list.get(case.name) == Some(&true));
    let chosen: Vec<&Case> =
        cases.iter().copied().filter(|case| !cli.short || holds(case)).collect();
    let (start, next, lines) = (Instant::now(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while !cli.short || start.elapsed() < SHORT {
            let Some(case) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let line = play(cli, host, case);
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    };
    thread::scope(|scope| {
        for _ in 0..if cli.short { SHORT_AT_ONCE } else { 1 } {
            scope.spawn(work);
        }
    });
    let lines = lines.into_inner().unwrap_or_else(PoisonError::into_inner);
    if cli.short {
        let fell = cases.len() - chosen.len();
        let late = chosen.len() - lines.len();
        eprintln!("{fell} cases do not hold by the list, {late} found no time");
    }
    Ok(lines)
}

fn play(cli: &Cli, host: &Host, case: &Case) -> Line {
    let start = Instant::now();
    let line = Line::new(case.name, (case.play)(host, case.name)).without(&host.folder);
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
