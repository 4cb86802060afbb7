//! The lab: the kernel's RDMA devices in virtual machines, tested against our stack and programs.
//!
//! `cargo xtask lab` installs what this program needs and runs it. [`vm`] boots guests with `rdma_rxe`;
//! [`remote`] runs programs in them, one of which is an [`end`] of a connection. [`cases`] and [`verbs`]
//! hold the cases, which run on the host; [`lab`] is what they work with, [`cover`] chooses among them,
//! and [`report`] prints their outcomes. [`table`] measures our stack beside the kernel's.
mod bytes;
mod cases;
mod command;
mod cover;
mod end;
mod lab;
mod loss;
mod peer;
mod remote;
mod report;
mod table;
mod verbs;
mod vm;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The kernel's RDMA devices in virtual machines, and our stack and programs beside them
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Our stack against the kernel's rdma_rxe
    Rxe(command::cases::Rxe),
    /// Our programs over libibverbs, on RDMA devices of the kernel
    Verbs(command::cases::Verbs),
    /// Both, with the same virtual machines
    All(command::cases::Verbs),
    /// Our stack and the kernel's side by side: how fast, and for how much work
    Table(command::table::Args),
    /// Run a command in the virtual machine
    Guest(command::guest::Args),
    /// One end of a connection over our verbs, for a case
    #[command(hide = true)]
    End(command::end::Args),
    /// One side of a measurement for the table
    #[command(hide = true)]
    Measure(command::measure::Args),
    /// Runs commands for the host, in the guest
    #[command(hide = true)]
    Serve,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().part {
        Part::Rxe(args) => command::cases::rxe(&args),
        Part::Verbs(args) => command::cases::verbs(&args),
        Part::All(args) => command::cases::all(&args),
        Part::Table(args) => command::table::run(&args).map(|()| true),
        Part::End(args) => command::end::run(&args).map(|()| true),
        Part::Measure(args) => command::measure::run(&args).map(|()| true),
        Part::Guest(args) => return command::guest::run(&args),
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
