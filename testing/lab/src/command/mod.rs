//! The subcommands.
pub(crate) mod cases;
pub(crate) mod end;
pub(crate) mod guest;
pub(crate) mod measure;
pub(crate) mod table;

use crate::remote::{self, server};
use crate::vm::host::{self, Turn};
use crate::vm::kernel::Kernel;
use crate::vm::network;
use anyhow::{Context as _, Result};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// Options of all parts of the lab.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// Where the kernel is kept between runs, and the guests' logs
    #[arg(long, default_value = "target/lab")]
    pub(crate) cache: PathBuf,
    /// Set when the program runs in a network namespace of its own
    #[arg(long, hide = true)]
    pub(crate) inside: bool,
}

pub(crate) fn report(error: &anyhow::Error) {
    eprintln!("error: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  because: {cause}");
    }
}

pub(crate) fn serve() -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", remote::PORT))
        .with_context(|| format!("cannot listen on port {}", remote::PORT))?;
    server::serve(&listener).context("cannot accept connections")
}

/// Prepares for guests: takes the lock, provides their kernel, sets up the network. Outside of the
/// network namespace, restarts this program in one.
pub(crate) fn prepare(place: &Place) -> Result<(Turn, Kernel)> {
    if !place.inside {
        move_inside(&place.cache)?;
    }
    let turn = host::take_turn(&place.cache)?;
    let kernel = Kernel::provide(&place.cache)?;
    network::set_up()?;
    Ok((turn, kernel))
}

/// Does what needs the host's network, then restarts this program in a namespace. Returns only on
/// errors.
fn move_inside(cache: &Path) -> Result<()> {
    host::check()?;
    let turn = host::take_turn(cache)?;
    Kernel::provide(cache)?;
    drop(turn);
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    // Directly after the subcommand: later words may belong to another program.
    arguments.insert(1.min(arguments.len()), "--inside".into());
    host::enter_namespace(&arguments)
}
