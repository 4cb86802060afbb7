//! `catchment-lab`: runs the cases; `cargo xtask lab` installs what it needs and calls it.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, ensure};
use catchment_lab::cases::{self, Case, Lab};
use catchment_lab::report::{self, Format, Outcome};
use catchment_lab::vm::guest::Guest;
use catchment_lab::vm::kernel::Kernel;
use catchment_lab::vm::{host, network};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// The lab: the kernel's RoCE stack in a virtual machine, and ours, over a real network device
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Our stack against the kernel's rdma_rxe
    Rxe(RxeArgs),
}

#[derive(clap::Args)]
struct RxeArgs {
    /// Where the kernel is kept between runs, and the guest's log
    #[arg(long, default_value = "target/lab")]
    cache: PathBuf,
    /// Run only cases whose name holds this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// List the names of the cases
    #[arg(long)]
    list: bool,
    /// One JSON object a line instead of the table
    #[arg(long)]
    json: bool,
    /// Set when the program runs in a network namespace of its own
    #[arg(long, hide = true)]
    inside: bool,
}

fn main() -> ExitCode {
    let Part::Rxe(args) = Cli::parse().part;
    match rxe(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  because: {cause}");
            }
            ExitCode::from(2)
        }
    }
}

/// Runs the cases; whether all passed.
fn rxe(args: &RxeArgs) -> Result<bool> {
    let cases = chosen(args)?;
    if args.list {
        for case in cases {
            println!("{}", case.name);
        }
        return Ok(true);
    }
    if !args.inside {
        move_inside(args)?;
    }
    let start = Instant::now();
    let _turn = host::take_turn(&args.cache)?;
    let kernel = Kernel::provide(&args.cache)?;
    network::set_up()?;
    let guest = Guest::boot(&kernel, &args.cache)?;
    let mut agent = guest.agent()?;
    let hello = agent.hello().context("the guest's RDMA device")?;
    let boot = guest.boot.as_secs_f64();
    eprintln!(
        "Linux {} with rdma_rxe is up after {boot:.1} s",
        hello.kernel
    );

    let mut lab = Lab::new(agent)?;
    let format = if args.json {
        Format::Json
    } else {
        Format::Table
    };
    let mut outcomes = Vec::new();
    for case in &cases {
        let outcome = Outcome::of(case, &mut lab);
        println!("{}", outcome.line(format));
        outcomes.push(outcome);
    }
    let summary = report::summary(&outcomes, lab.packets_checked(), start.elapsed());
    match format {
        Format::Table => println!("{summary}"),
        Format::Json => eprintln!("{summary}"),
    }
    Ok(outcomes.iter().all(|outcome| outcome.passed))
}

/// Prepares what needs the host's network, then begins again in a namespace; returns on errors.
fn move_inside(args: &RxeArgs) -> Result<()> {
    host::check()?;
    let turn = host::take_turn(&args.cache)?;
    Kernel::provide(&args.cache)?;
    drop(turn);
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.push("--inside".into());
    host::enter_namespace(&arguments)
}

fn chosen(args: &RxeArgs) -> Result<Vec<Case>> {
    let mut cases = cases::all();
    if !args.only.is_empty() {
        cases.retain(|case| args.only.iter().any(|text| case.name.contains(text)));
    }
    ensure!(
        !cases.is_empty(),
        "no case has any of {:?} in its name: --list shows the names",
        args.only
    );
    Ok(cases)
}
