//! `cargo xtask lab`: installs what the lab needs, builds it, runs it.
use crate::repo::Repo;
use crate::run::{self, Show, Tally};
use crate::{bench, metadata, prerequisites, programs, value_listing, value_name};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Which lab to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The part; lists the parts if left out
    part: Option<Part>,
    /// Options of rxe, verbs and all: --only TEXT (all cases whose name contains it, may be repeated),
    /// --full (all cases), --list, --json. Of table: --rounds N, --markdown FILE. Of guest: the
    /// command, before it --memory MIB, --results DIR, --limit SECONDS. Of wan: --quick, --full, --json, --method M,
    /// --load L, --seconds S, --seed K, --ipv6; --help has all
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Our RoCE stack against the kernel's rdma_rxe, in a virtual machine
    Rxe,
    /// Our programs over libibverbs, on RDMA devices of virtual machines
    Verbs,
    /// Both, with the same virtual machines
    All,
    /// Our RoCE stack beside the kernel's: how fast, and for how much work
    Table,
    /// Run a command in a virtual machine that has RDMA devices
    Guest,
    /// Sources that share a narrow link between network namespaces, with the transmission controller and without
    Wan,
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

/// Time after which a part is considered hung. On an idle machine with two cores all cases take 10
/// minutes, the default ones less than half of that; a shared machine takes three times as long. Each
/// case has a much shorter limit of its own.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Test programs that `lab verbs` runs in a guest: their packages, and their names there.
const SUITES: &[(&str, &str, &str)] = &[
    ("--conformance", "catchment-provider-ibverbs", "conformance"),
    ("--faults", "catchment-provider-ibverbs", "faults"),
    ("--status-byte", "catchment-transfer", "ibverbs"),
    ("--channel", "catchment-channel", "ibverbs"),
    ("--mechanisms", "catchment-mechanisms", "ibverbs"),
    ("--agent", "catchment-agent", "conformance_ibverbs"),
    ("--agents", "catchment-agent", "conformance_shared_ibverbs"),
];

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let Some(part) = args.part else {
        print!("{}", value_listing::<Part>("cargo xtask lab"));
        return Ok(());
    };
    if part == Part::Wan {
        prerequisites::provide_packages(&[("/sbin/ip", "iproute2")])?;
        let mut command = bench::program(repo, "catchment-bench", "", "wan", &args.options);
        // With --full it takes hours, so it has no limit.
        let status = command.status()?;
        return run::demand_success(&command, status);
    }
    let mut command = lab(repo, part)?;
    command.args(&args.options);
    if !args.options.iter().any(|option| option == "--list") {
        provide()?;
    }
    let status = match part {
        Part::Rxe | Part::Verbs | Part::All => run::finish(&mut command, LIMIT, Show::All)?.status,
        Part::Table => {
            prerequisites::provide_packages(&[("/usr/bin/perf", "linux-perf")])?;
            command.status()?
        }
        Part::Guest | Part::Wan => command.status()?,
    };
    run::demand_success(&command, status)
}

pub(crate) fn provide() -> Result<()> {
    prerequisites::provide_packages(PACKAGES)
}

/// Runs and counts the default cases of both parts; with `full`, all cases.
pub(crate) fn all(repo: &Repo, full: bool) -> Result<Tally> {
    provide()?;
    let mut command = lab(repo, Part::All)?;
    command.args(full.then_some("--full"));
    let finished = run::finish(&mut command, LIMIT, Show::All)?;
    let tally = run::counted(&command, finished)?;
    ensure!(tally.passed + tally.failed > 0, "`{}` ran no case", run::shown(&command));
    Ok(tally)
}

/// Builds the lab and returns its command for a part, with the programs that the part runs.
fn lab(repo: &Repo, part: Part) -> Result<Command> {
    let mut command = Command::new(programs::built(repo, programs::LAB)?);
    command.arg(value_name(&part)).arg("--cache").arg(metadata::target_folder(repo)?.join("lab"));
    if matches!(part, Part::Verbs | Part::All) {
        command.arg("--catchment").arg(programs::built(repo, programs::CATCHMENT)?);
        for (option, program) in suites(repo)? {
            command.arg(option).arg(program);
        }
    }
    Ok(command)
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
}
