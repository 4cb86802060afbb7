//! `cargo xtask bench`: what can be measured, and the way to measure it.
use crate::repo::Repo;
use crate::run;
use anyhow::{Result, bail};

/// What to measure and how.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure; left out, what can be measured is listed
    what: Option<String>,
    /// Options of the measurement, such as --json
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

struct Measurement {
    name: &'static str,
    about: &'static str,
    package: &'static str,
    /// What the program is built with: what the results are compared with is too much to build for
    /// those who only test.
    features: &'static str,
}

const MEASUREMENTS: &[Measurement] = &[
    Measurement {
        name: "transfer",
        about: "blocks from process to process, with a copy and in place, beside memcpy, TCP and others",
        package: "catchment-bench",
        features: "iceoryx2",
    },
    Measurement {
        name: "mechanisms",
        about: "blocks through every mechanism by name, as `catchment bench transfer` measures the product's",
        package: "catchment-bench",
        features: "iceoryx2",
    },
    Measurement {
        name: "loss",
        about: "goodput of RoCE on links that lose packets, in virtual time",
        package: "catchment-sim",
        features: "",
    },
    Measurement {
        name: "roce",
        about: "packets between two network namespaces, beside iperf3 (apt-get install iperf3) and bare UDP",
        package: "catchment-bench",
        features: "iceoryx2",
    },
    Measurement {
        name: "source",
        about: "what a frame costs 12 filling threads and a collector: time, locks, waits, system calls",
        package: "catchment-bench",
        features: "count-locks",
    },
    Measurement {
        name: "papers",
        about: "the experiments of the papers, with what must hold: --quick in under 15 minutes, or --full",
        package: "catchment-bench",
        features: "iceoryx2",
    },
    Measurement {
        name: "peers",
        about: "frames of a camera beside iceoryx2, UCX, iperf3 and TCP, where they are installed",
        package: "catchment-bench",
        features: "iceoryx2",
    },
    Measurement {
        name: "scan",
        about: "looking for released slots, beside a loop over the status bytes",
        package: "catchment-bench",
        features: "iceoryx2",
    },
    Measurement {
        name: "rate",
        about: "rates asked of queue pairs over shm and roce, and measured; fails beyond 2 %",
        package: "catchment-bench",
        features: "iceoryx2",
    },
    Measurement {
        name: "reads",
        about: "when status bytes are read, beside an oracle, in virtual time",
        package: "catchment-bench",
        features: "iceoryx2",
    },
];

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let Some(what) = &args.what else {
        print!("{}", listing());
        return Ok(());
    };
    let Some(measurement) = MEASUREMENTS.iter().find(|known| known.name == what) else {
        bail!("nothing to measure is called {what:?}; there is\n{}", listing());
    };
    let mut words = vec!["run", "--release", "--quiet", "--package"];
    words.extend([measurement.package, "--features", measurement.features]);
    words.extend(["--", measurement.name]);
    words.extend(args.options.iter().map(String::as_str));
    // A measurement may take hours: only its user ends it.
    let mut command = run::cargo(repo.root(), &words);
    let status = command.status()?;
    run::demand_success(&command, status)
}

fn listing() -> String {
    let lines = MEASUREMENTS.iter();
    lines.map(|one| format!("cargo xtask bench {:<10} {}\n", one.name, one.about)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_measurement_is_refused_with_the_known_ones() {
        let args = Args { what: Some("speed".into()), options: Vec::new() };
        let error = run(&Repo::find().unwrap(), &args).unwrap_err().to_string();
        assert!(error.contains("\"speed\"") && error.contains("bench transfer"), "{error}");
    }
}
