//! `cargo xtask bench`: the measurements, and how to run each.
use crate::repo::Repo;
use crate::{run, value_listing, value_name};
use anyhow::Result;
use std::process::Command;

/// What to measure and how.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure; lists the measurements if left out
    what: Option<Measurement>,
    /// Options of the measurement, such as --json
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Measurement {
    /// blocks from process to process, with a copy and in place, beside memcpy, TCP and others
    Transfer,
    /// blocks through every mechanism by name, as `catchment bench transfer` measures the product's
    Mechanisms,
    /// goodput of RoCE on links that lose packets, in virtual time
    Loss,
    /// loads that the transmission controller carries, beside the papers' methods, in virtual time
    Admission,
    /// packets between two network namespaces, beside iperf3 (apt-get install iperf3) and bare UDP
    Roce,
    /// what a frame costs 12 filling threads and a collector: time, locks, waits, system calls
    Source,
    /// the experiments of the papers, with what must hold: --quick in under 15 minutes, or --full
    Papers,
    /// frames of a camera beside iceoryx2, UCX, iperf3 and TCP, where they are installed
    Peers,
    /// finding released slots, beside a loop over the status bytes
    Scan,
    /// rates set for queue pairs over shm and roce, and measured; fails beyond 2 %
    Rate,
    /// frames over long paths that lose packets: the command's default settings, a relay between namespaces
    Long,
    /// what authenticated RoCEv2 packets cost: processor time and goodput, with and without
    Authenticate,
    /// what the transmission controller's service takes: grants a second, CPU a grant, memory
    Control,
    /// applications that share a device through an agent, beside devices of their own; and their shares
    Agent,
    /// the key-value store under mixes of operations, one- and two-sided, raw and through an agent, beside redis-server
    Kv,
    /// Redis through a tunnel, beside plain TCP, between two network namespaces
    Tunnel,
    /// shares of hosts: rounds to the optimum, lost messages, changes, choices, time of a round
    Drum,
    /// thousands of hosts that share rates, in virtual time: rounds after changes, with messages lost
    DrumSim,
    /// when status bytes are read, beside an oracle, in virtual time
    Reads,
    /// writes the pages of docs/results that follow from rows beside them
    Page,
}

impl Measurement {
    /// Returns the package and the features of its program: what results are compared with takes too
    /// long to build for tests alone.
    fn program(self) -> [&'static str; 2] {
        if matches!(self, Self::Loss | Self::Admission | Self::DrumSim) {
            ["catchment-sim", ""]
        } else if self == Self::Drum {
            ["catchment-drum", ""]
        } else if self == Self::Source {
            ["catchment-bench", "count-locks"]
        } else if matches!(self, Self::Control | Self::Kv | Self::Tunnel | Self::Page) {
            ["catchment-bench", ""]
        } else {
            ["catchment-bench", "iceoryx2"]
        }
    }
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let Some(what) = args.what else {
        print!("{}", value_listing::<Measurement>("cargo xtask bench"));
        return Ok(());
    };
    if what == Measurement::Papers {
        // Its rows of the solver are those of this program.
        run::succeed(&mut run::cargo(
            repo.root(),
            &["build", "--release", "--quiet", "--package", "catchment-drum"],
        ))?;
    }
    let [package, features] = what.program();
    let mut command = program(repo, package, features, &value_name(&what), &args.options);
    // A measurement may take hours, so it has no limit.
    let status = command.status()?;
    run::demand_success(&command, status)
}

/// Returns the command that runs a program of measurements, as users build it.
pub(crate) fn program(
    repo: &Repo,
    package: &str,
    features: &str,
    name: &str,
    options: &[String],
) -> Command {
    let mut words = vec!["run", "--release", "--quiet", "--package", package];
    words.extend(["--features", features, "--", name]);
    words.extend(options.iter().map(String::as_str));
    run::cargo(repo.root(), &words)
}
