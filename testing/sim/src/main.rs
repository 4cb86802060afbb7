//! The programs of the simulator: `catchment-sim loss` and `catchment-sim soak`, which
//! `cargo xtask bench loss` and `cargo xtask soak roce` call.
#![forbid(unsafe_code)]

use catchment_sim::{loss, soak};
use clap::Parser;
use std::process::ExitCode;

/// RoCE state machines on a network in virtual time
#[derive(Parser)]
enum Command {
    /// Goodput on links that lose packets
    Loss(loss::LossOptions),
    /// All faults at once, seed after seed
    Soak(soak::SoakOptions),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Loss(options) => loss::run(&options),
        Command::Soak(options) => soak::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("catchment-sim: {error}");
            ExitCode::FAILURE
        }
    }
}
