//! The `catchment` command: collects frames from many devices, and sends them.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod cert;
mod checksums;
mod collect;
mod demo;
mod devices;
mod doctor;
mod explain;
mod failure;
mod output;
mod send;
mod stop;

use args::{Arguments, Command};
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::of_process();
    output::log::begin(arguments.verbose);
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output::report(failure),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Collect(args) => collect::run(&args),
        Command::Send(args) => send::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Cert(args) => cert::run(&args),
        Command::Checksums(args) => checksums::run(&args),
    }
}
