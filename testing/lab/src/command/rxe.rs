//! `catchment-lab rxe`: our stack against the kernel's.

use super::{Choice, Place};
use anyhow::{Context as _, Result};
use catchment_lab::cases::{self, Lab};
use catchment_lab::vm::guest::{Guest, Machine};
use catchment_lab::vm::network::SEATS;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    choice: Choice,
}

/// Runs the cases; whether all passed.
///
/// # Errors
/// When they cannot run.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let Some(cases) = args.choice.of(cases::all())? else {
        return Ok(true);
    };
    let (_turn, kernel) = super::prepare(&args.place)?;
    let machine = Machine::usual(&args.place.cache, SEATS[0])?;
    let mut guest = Guest::boot(&kernel, &machine)?;
    let (_process, mut agent) = guest.agent()?;
    let hello = agent.hello().context("the guest's RDMA device")?;
    let boot = guest.boot.as_secs_f64();
    eprintln!(
        "Linux {} with rdma_rxe is up after {boot:.1} s",
        hello.kernel
    );
    let mut lab = Lab::new(agent)?;
    let checked = |lab: &Lab| {
        let packets = lab.packets_checked();
        Some(format!("{packets} packets of the guest had the right ICRC"))
    };
    Ok(args.choice.run(&cases, &mut lab, checked))
}
