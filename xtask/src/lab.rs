//! `cargo xtask lab`: installs what the lab needs, builds it, runs it.

use crate::repo::Repo;
use crate::run::{self, Finished, Show};
use crate::{metadata, prerequisites};
use anyhow::Result;
use std::process::Command;
use std::time::Duration;

/// Which lab to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(clap::Subcommand)]
enum Part {
    /// Our RoCE stack against the kernel's rdma_rxe, in a virtual machine
    Rxe(RxeArgs),
}

/// A run of `lab rxe`.
#[derive(clap::Args, Default)]
struct RxeArgs {
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

/// What the lab calls, and the Debian packages that have it.
const PACKAGES: &[(&str, &str)] = &[
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
    ("/bin/busybox", "busybox-static"),
    ("/sbin/depmod", "kmod"),
    ("/sbin/ip", "iproute2"),
    ("/usr/sbin/nft", "nftables"),
    (
        "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
        "ibverbs-providers",
    ),
    (
        "/usr/lib/python3/dist-packages/pyverbs/__init__.py",
        "python3-pyverbs",
    ),
];

/// Time after which a lab is taken for hanging. A quiet machine with two cores takes 2 minutes.
const LIMIT: Duration = Duration::from_secs(12 * 60);

/// Runs a part, or lists them.
///
/// # Errors
/// When something is missing, or a case failed.
pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let Some(Part::Rxe(args)) = &args.part else {
        println!("cargo xtask lab rxe  our RoCE stack against the kernel's, in a virtual machine");
        return Ok(());
    };
    let (command, finished) = rxe_cases(repo, args)?;
    run::demand_success(&command, finished.status)
}

/// All cases of `lab rxe`, counted.
///
/// # Errors
/// When they did not run. A failed case is counted only.
pub(crate) fn rxe(repo: &Repo) -> Result<Finished> {
    let (command, finished) = rxe_cases(repo, &RxeArgs::default())?;
    if finished.tally.failed == 0 {
        run::demand_success(&command, finished.status)?;
    }
    Ok(finished)
}

fn rxe_cases(repo: &Repo, args: &RxeArgs) -> Result<(Command, Finished)> {
    if !args.list {
        prerequisites::provide_packages(PACKAGES)?;
    }
    let build = [
        "build",
        "--release",
        "--package",
        "catchment-lab",
        "--quiet",
    ];
    run::succeed(&mut run::cargo(repo.root(), &build))?;
    let target = metadata::target_folder(repo)?;
    let mut command = Command::new(target.join("release/catchment-lab"));
    command.arg("rxe").arg("--cache").arg(target.join("lab"));
    for text in &args.only {
        command.arg("--only").arg(text);
    }
    let flags = [("--list", args.list), ("--json", args.json)];
    command.args(flags.iter().filter(|(_, set)| *set).map(|(flag, _)| flag));
    let finished = run::finish(&mut command, LIMIT, Show::All)?;
    Ok((command, finished))
}
