//! The `catchment` command: collects frames from many devices, and sends them.
//!
//! Data in: the arguments, signals, standard input. Data out: results on standard output, messages on
//! standard error, an exit code. `args` says what can be asked; each command is a module of its name.
//! A program that measures other mechanisms as `catchment bench` does calls [`measure`].
#![forbid(unsafe_code)]

mod agent;
mod args;
mod bench;
mod cert;
mod checksums;
mod collect;
mod control;
mod demo;
mod devices;
mod doctor;
mod explain;
mod failure;
mod hint;
mod kv;
mod output;
mod page;
mod send;
mod stop;
mod tunnel;

pub use args::BenchArgs;
pub use bench::Program;

use args::{Arguments, Command};
use failure::Failure;
use std::process::ExitCode;

/// Does what the arguments of this process ask for. Wrong ones end it with exit code 2.
pub fn main() -> ExitCode {
    let arguments = Arguments::of_process();
    output::log::begin(arguments.verbose);
    exit_code(run(arguments.command))
}

/// Measures as `catchment bench` does, in another program with mechanisms of its own.
pub fn measure(args: &BenchArgs, program: &Program) -> ExitCode {
    exit_code(bench::run(args, program))
}

fn exit_code(result: Result<(), Failure>) -> ExitCode {
    output::log::end();
    result.map_or_else(output::report, |()| ExitCode::SUCCESS)
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Collect(args) => collect::run(&args),
        Command::Control(args) => control::run(&args),
        Command::Send(args) => send::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Bench(args) => bench::run(&args, &Program::CATCHMENT),
        Command::Agent(args) => agent::run(&args),
        Command::Kv(args) => kv::run(&args),
        Command::Tunnel(args) => tunnel::run(&args),
        Command::Cert(args) => cert::run(&args),
        Command::Checksums(args) => checksums::run(&args),
    }
}
