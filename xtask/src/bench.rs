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

/// Measurements by name; each is a subcommand of the program in `bench/`.
const MEASUREMENTS: &[(&str, &str)] = &[
    (
        "transfer",
        "blocks from process to process, with a copy and in place, beside memcpy, TCP and others",
    ),
    (
        "scan",
        "looking for released slots, beside a loop over the status bytes",
    ),
    (
        "reads",
        "when status bytes are read, beside an oracle, in virtual time",
    ),
    (
        "roce",
        "packets between two network namespaces, beside iperf3 (apt-get install iperf3) and bare UDP",
    ),
];

/// Lists the measurements, or runs one with the release build.
///
/// # Errors
/// When there is no such measurement, or it fails.
pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let Some(what) = &args.what else {
        print!("{}", listing());
        return Ok(());
    };
    if !MEASUREMENTS.iter().any(|(name, _)| name == what) {
        bail!(
            "nothing to measure is called {what:?}; there is\n{}",
            listing()
        );
    }
    let mut words = vec![
        "run",
        "--release",
        "--quiet",
        "--package",
        "catchment-bench",
        // What the results are compared with; too much to build for those who only test.
        "--features",
        "iceoryx2",
        "--",
        what,
    ];
    words.extend(args.options.iter().map(String::as_str));
    // A measurement may take hours: only its user ends it.
    let mut command = run::cargo(repo.root(), &words);
    let status = command.status()?;
    run::demand_success(&command, status)
}

fn listing() -> String {
    let lines = MEASUREMENTS.iter();
    lines
        .map(|(name, about)| format!("cargo xtask bench {name:<10} {about}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_measurement_is_refused_with_the_known_ones() {
        let args = Args {
            what: Some("speed".into()),
            options: Vec::new(),
        };
        let error = run(&Repo::find().unwrap(), &args).unwrap_err().to_string();
        assert!(
            error.contains("\"speed\"") && error.contains("bench transfer"),
            "{error}"
        );
    }
}
