//! `cargo xtask lab`: installs what the lab needs, builds it, runs it.

use crate::repo::Repo;
use crate::run::{self, Finished, Show, Tally};
use crate::{metadata, prerequisites, programs};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
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
    Rxe(Choice),
    /// Our programs over libibverbs, on RDMA devices of virtual machines
    Verbs(Choice),
    /// Both, with the same virtual machines
    All(Choice),
    /// Our RoCE stack beside the kernel's: how fast, and for how much work
    Table(Table),
    /// Run a command in a virtual machine that has RDMA devices
    Guest(Guest),
}

/// Which cases run, and how they are shown.
#[derive(clap::Args, Default)]
struct Choice {
    /// Run all cases, not only enough for every value of every group to occur
    #[arg(long)]
    full: bool,
    /// Run only cases whose name holds this text, all of them; may be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// List the names of the cases
    #[arg(long)]
    list: bool,
    /// One JSON object a line instead of the table
    #[arg(long)]
    json: bool,
}

/// How the table is made.
#[derive(clap::Args)]
struct Table {
    /// How often each is measured
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// Write the page to this file, too
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// A command for the guest.
#[derive(clap::Args)]
struct Guest {
    /// The command; it sees the files of this machine
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

const PACKAGES: &[(&str, &str)] = &[
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
    ("/bin/busybox", "busybox-static"),
    ("/sbin/depmod", "kmod"),
    ("/sbin/ip", "iproute2"),
    ("/usr/bin/ffmpeg", "ffmpeg"),
    ("/usr/sbin/nft", "nftables"),
    ("/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so", "ibverbs-providers"),
    ("/usr/bin/ibv_devinfo", "ibverbs-utils"),
    ("/usr/bin/ib_write_bw", "perftest"),
    ("/usr/lib/python3/dist-packages/pyverbs/__init__.py", "python3-pyverbs"),
];

/// Time after which a part is taken for hanging. On a quiet machine with two cores all cases take 10
/// minutes, those of the short form less than half of it; a machine with neighbours takes three times
/// as long. Each case has a limit of its own, which ends what hangs long before.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Test programs that `lab verbs` runs in a guest: their packages, and their names there.
const SUITES: &[(&str, &str, &str)] = &[
    ("--conformance", "catchment-provider-ibverbs", "conformance"),
    ("--faults", "catchment-provider-ibverbs", "faults"),
    ("--status-byte", "catchment-transfer", "ibverbs"),
    ("--channel", "catchment-channel", "ibverbs"),
    ("--mechanisms", "catchment-mechanisms", "ibverbs"),
];

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let (command, finished) = match &args.part {
        Some(Part::Rxe(choice)) => rxe_cases(repo, choice)?,
        Some(Part::Verbs(choice)) => verbs_cases(repo, "verbs", choice)?,
        Some(Part::All(choice)) => verbs_cases(repo, "all", choice)?,
        Some(Part::Table(table)) => return make_table(repo, table),
        Some(Part::Guest(guest)) => return run_in_guest(repo, guest),
        None => {
            print!("{LISTING}");
            return Ok(());
        }
    };
    run::demand_success(&command, finished.status)
}

const LISTING: &str = "\
cargo xtask lab rxe    our RoCE stack against the kernel's, in a virtual machine
cargo xtask lab verbs  our programs over libibverbs, on RDMA devices of virtual machines
cargo xtask lab all    both, with the same virtual machines
cargo xtask lab table  our RoCE stack beside the kernel's: how fast, and for how much work
cargo xtask lab guest  run a command in a virtual machine that has RDMA devices
";

pub(crate) fn provide() -> Result<()> {
    prerequisites::provide_packages(PACKAGES)
}

/// The cases of both parts that run by default, counted; `full` runs the others, too.
pub(crate) fn all(repo: &Repo, full: bool) -> Result<Tally> {
    let choice = Choice { full, ..Choice::default() };
    let (command, finished) = verbs_cases(repo, "all", &choice)?;
    if finished.tally.failed == 0 {
        run::demand_success(&command, finished.status)?;
    }
    ensure!(
        finished.tally.passed + finished.tally.failed > 0,
        "`{}` ran not one case",
        run::shown(&command)
    );
    Ok(finished.tally)
}

fn rxe_cases(repo: &Repo, choice: &Choice) -> Result<(Command, Finished)> {
    cases(lab(repo, "rxe")?, choice)
}

fn verbs_cases(repo: &Repo, part: &str, choice: &Choice) -> Result<(Command, Finished)> {
    let mut command = lab(repo, part)?;
    let catchment = programs::catchment(repo)?;
    command.arg("--catchment").arg(catchment);
    for (option, program) in suites(repo)? {
        command.arg(option).arg(program);
    }
    cases(command, choice)
}

fn make_table(repo: &Repo, table: &Table) -> Result<()> {
    provide()?;
    prerequisites::provide_packages(&[("/usr/bin/perf", "linux-perf")])?;
    let mut command = lab(repo, "table")?;
    if let Some(rounds) = table.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    if let Some(page) = &table.markdown {
        command.arg("--markdown").arg(page);
    }
    let status = command.status()?;
    run::demand_success(&command, status)
}

fn run_in_guest(repo: &Repo, guest: &Guest) -> Result<()> {
    provide()?;
    let mut command = lab(repo, "guest")?;
    let status = command.arg("--").args(&guest.command).status()?;
    run::demand_success(&command, status)
}

fn lab(repo: &Repo, part: &str) -> Result<Command> {
    let mut command = Command::new(programs::lab(repo)?);
    let target = metadata::target_folder(repo)?;
    command.arg(part).arg("--cache").arg(target.join("lab"));
    Ok(command)
}

fn cases(mut command: Command, choice: &Choice) -> Result<(Command, Finished)> {
    if !choice.list {
        provide()?;
    }
    for text in &choice.only {
        command.arg("--only").arg(text);
    }
    let flags = [("--full", choice.full), ("--list", choice.list), ("--json", choice.json)];
    command.args(flags.iter().filter(|(_, set)| *set).map(|(flag, _)| flag));
    let finished = run::finish(&mut command, LIMIT, Show::All)?;
    Ok((command, finished))
}

fn suites(repo: &Repo) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut words = vec!["test", "--workspace", "--no-run", "--quiet"];
    words.extend(SUITES.iter().flat_map(|(_, _, test)| ["--test", test]));
    words.push("--message-format=json");
    let mut command = run::cargo(repo.root(), &words);
    let finished = run::finish(&mut command, run::LIMIT, Show::Nothing)?;
    run::demand_success(&command, finished.status)?;
    let found = SUITES.iter().map(|(option, package, test)| {
        let program = executable(&finished.stdout, package, test);
        let program =
            program.with_context(|| format!("cargo built no test {test} of {package}"))?;
        Ok((*option, program))
    });
    found.collect()
}

fn executable(messages: &str, package: &str, test: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut wanted = messages.filter(|message| {
        let id = message["package_id"].as_str().unwrap_or_default();
        message["target"]["name"] == test && id.contains(&format!("#{package}@"))
    });
    wanted.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_found_by_its_package_and_name() {
        let message = |package: &str, test: &str, file: &str| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "package_id": format!("path+file:///r/crates/{package}#catchment-{package}@0.1.0"),
                "target": {"name": test},
                "executable": file,
            })
        };
        let messages = [
            message("provider-shm", "conformance", "/t/one").to_string(),
            message("provider-ibverbs", "conformance", "/t/two").to_string(),
            "no JSON".to_owned(),
        ]
        .join("\n");
        let found = |package| executable(&messages, package, "conformance");
        assert_eq!(found("catchment-provider-ibverbs"), Some("/t/two".into()));
        assert_eq!(found("catchment-provider"), None);
    }

    #[test]
    fn every_part_is_listed() {
        use clap::Subcommand as _;
        let command = Part::augment_subcommands(clap::Command::new("lab"));
        for part in command.get_subcommands() {
            let line = format!("cargo xtask lab {} ", part.get_name());
            assert!(LISTING.contains(&line), "{line}");
        }
    }
}
