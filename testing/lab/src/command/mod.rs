//! The subcommands.

pub(crate) mod end;
pub(crate) mod guest;
pub(crate) mod rxe;
pub(crate) mod table;
pub(crate) mod verbs;

use anyhow::{Context as _, Result, ensure};
use catchment_lab::remote::{self, server};
use catchment_lab::report::{self, Case, Format};
use catchment_lab::vm::host::{self, Turn};
use catchment_lab::vm::kernel::Kernel;
use catchment_lab::vm::network;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What all parts of the lab take.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// Where the kernel is kept between runs, and the guest's log
    #[arg(long, default_value = "target/lab")]
    pub(crate) cache: PathBuf,
    /// Set when the program runs in a network namespace of its own
    #[arg(long, hide = true)]
    pub(crate) inside: bool,
}

/// Which cases run, and how their outcomes are written.
#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Run only cases whose name holds this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// List the names of the cases
    #[arg(long)]
    list: bool,
    /// One JSON object a line instead of the table
    #[arg(long)]
    json: bool,
}

impl Choice {
    /// Whether a case of this name runs.
    pub(crate) fn holds(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text))
    }

    /// The chosen ones; none when it was only asked for their names, which are written then.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn of<L>(&self, mut cases: Vec<Case<L>>) -> Result<Option<Vec<Case<L>>>> {
        cases.retain(|case| self.holds(&case.name));
        ensure!(
            !cases.is_empty(),
            "no case has any of {:?} in its name: --list shows the names",
            self.only
        );
        if !self.list {
            return Ok(Some(cases));
        }
        for case in cases {
            println!("{}", case.name);
        }
        Ok(None)
    }

    /// Runs the cases and writes what came of them; whether all passed. `remark` is what else there
    /// is to say in the end.
    pub(crate) fn run<L>(
        &self,
        cases: &[Case<L>],
        lab: &mut L,
        remark: impl Fn(&L) -> Option<String>,
    ) -> bool {
        let start = Instant::now();
        let format = if self.json {
            Format::Json
        } else {
            Format::Table
        };
        let outcomes = report::run_all(cases, lab, format);
        let mut lines: Vec<_> = remark(lab).into_iter().collect();
        lines.push(report::summary(&outcomes, start.elapsed()));
        match format {
            Format::Table => println!("{}", lines.join("\n")),
            Format::Json => eprintln!("{}", lines.join("\n")),
        }
        outcomes.iter().all(|outcome| outcome.passed)
    }
}

/// Writes the error, then what caused it, each on its own line.
pub(crate) fn report(error: &anyhow::Error) {
    eprintln!("error: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  because: {cause}");
    }
}

/// The guest's side of `remote`.
///
/// # Errors
/// When the port is taken.
pub(crate) fn serve() -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", remote::PORT))
        .with_context(|| format!("cannot listen on port {}", remote::PORT))?;
    server::serve(&listener).context("no more connections")
}

/// Makes ready for guests: our turn to have them, their kernel, the network. Outside, this begins
/// again in a network namespace.
///
/// # Errors
/// When something is missing here.
pub(crate) fn prepare(place: &Place) -> Result<(Turn, Kernel)> {
    if !place.inside {
        move_inside(&place.cache)?;
    }
    let turn = host::take_turn(&place.cache)?;
    let kernel = Kernel::provide(&place.cache)?;
    network::set_up()?;
    Ok((turn, kernel))
}

/// Prepares what needs the host's network, then begins again in a namespace; returns on errors.
fn move_inside(cache: &Path) -> Result<()> {
    host::check()?;
    let turn = host::take_turn(cache)?;
    Kernel::provide(cache)?;
    drop(turn);
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    // Behind the name of the subcommand; what follows may belong to another program.
    arguments.insert(1.min(arguments.len()), "--inside".into());
    host::enter_namespace(&arguments)
}
