//! `catchment-lab`: runs the cases; `cargo xtask lab` installs what it needs and calls it.
#![forbid(unsafe_code)]

mod command;

use clap::{Parser, Subcommand};
use command::{end, guest, rxe, table, verbs};
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
    Rxe(rxe::Args),
    /// Our programs over libibverbs, on RDMA devices of the kernel
    Verbs(verbs::Args),
    /// Our stack and the kernel's side by side: how fast, and for how much work
    Table(table::Args),
    /// Run a command in the virtual machine
    Guest(guest::Args),
    /// One end of a connection over our verbs, for a case
    #[command(hide = true)]
    End(end::Args),
    /// Runs commands for the host, in the guest
    #[command(hide = true)]
    Serve,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().part {
        Part::Rxe(args) => rxe::run(&args),
        Part::Verbs(args) => verbs::run(&args),
        Part::Table(args) => table::run(&args).map(|()| true),
        Part::End(args) => end::run(&args).map(|()| true),
        Part::Guest(args) => return guest::run(&args),
        Part::Serve => command::serve().map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            command::report(&error);
            ExitCode::from(2)
        }
    }
}
