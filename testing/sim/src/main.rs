//! The programs of the simulator: `catchment-sim loss`, `admission`, `drum-sim`, `control`, `drum-soak` and `soak`, which
//! `cargo xtask bench loss`, `bench admission`, `bench drum-sim` and `cargo xtask soak control`, `soak drum`, `soak roce` call.
#![forbid(unsafe_code)]

use catchment_sim::{admission, control, drum, loss, soak};
use clap::Parser;
use std::process::ExitCode;

/// State machines on a network in virtual time
#[derive(Parser)]
enum Command {
    /// Goodput on links that lose packets
    Loss(loss::LossOptions),
    /// Loads that the transmission controller carries
    Admission(admission::AdmissionOptions),
    /// All that can go wrong between sources and a transmission controller, seed after seed
    Control(control::ControlOptions),
    /// Hosts that share rates: rounds to the optimum after changes
    DrumSim(drum::DrumOptions),
    /// All that can go wrong between hosts that share rates, seed after seed
    DrumSoak(drum::DrumSoakOptions),
    /// All faults at once, seed after seed
    Soak(soak::SoakOptions),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Loss(options) => loss::run(&options),
        Command::Admission(options) => admission::run(&options),
        Command::Control(options) => control::run(&options),
        Command::DrumSim(options) => drum::run(&options),
        Command::DrumSoak(options) => drum::soak(&options),
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
