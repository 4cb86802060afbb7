//! `catchment-lab`: runs the cases; `cargo xtask lab` installs what it needs and calls it.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result};
use catchment_lab::vm::guest::Guest;
use catchment_lab::vm::kernel::Kernel;
use catchment_lab::vm::{host, network};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

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

fn rxe(args: &RxeArgs) -> Result<bool> {
    if !args.inside {
        host::check()?;
        // Within the namespace there is no way to any mirror.
        let turn = host::take_turn(&args.cache)?;
        Kernel::provide(&args.cache)?;
        drop(turn);
        let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        arguments.push("--inside".into());
        host::enter_namespace(&arguments)?;
    }
    let _turn = host::take_turn(&args.cache)?;
    let kernel = Kernel::provide(&args.cache)?;
    network::set_up()?;
    let guest = Guest::boot(&kernel, &args.cache)?;
    eprintln!("the guest is up after {:.1} s", guest.boot.as_secs_f64());
    let mut agent = guest.agent()?;
    let hello = agent.hello().context("the guest's RDMA device")?;
    println!("{hello:?}");
    Ok(true)
}
