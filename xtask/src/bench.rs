//! `cargo xtask bench`: what can be measured, and the way to measure it.

use crate::repo::Repo;
use crate::run;
use anyhow::{Result, bail};
use std::env;
use std::path::Path;
use std::process::Command;

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

const AERON: &str = "aeron";

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
        about: "frames of a camera beside iceoryx2, Zenoh, Aeron, UCX, libfabric, iperf3 and TCP, where they are installed",
        package: "catchment-bench",
        features: "iceoryx2,zenoh,aeron",
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
    let features = buildable(measurement.features);
    let mut words = vec!["run", "--release", "--quiet", "--package"];
    words.extend([measurement.package, "--features", &features]);
    words.extend(["--", measurement.name]);
    words.extend(args.options.iter().map(String::as_str));
    // A measurement may take hours: only its user ends it.
    let mut command = run::cargo(repo.root(), &words);
    let status = command.status()?;
    run::demand_success(&command, status)
}

fn buildable(features: &str) -> String {
    let mut features: Vec<&str> = features.split(',').collect();
    features.retain(|feature| *feature != AERON || builds_aeron());
    features.join(",")
}

/// The oldest cmake that Aeron's sources take: newer than the one of Debian 12.
const AERON_CMAKE: (u32, u32) = (3, 30);

fn builds_aeron() -> bool {
    let cmake = Command::new("cmake").arg("--version").output();
    let version = cmake.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(Path::new);
    let has_clang = env::var_os("LIBCLANG_PATH").is_some()
        || folders.iter().any(|folder| {
            let inside = folder.read_dir().into_iter().flatten().flatten();
            let mut libraries = inside.flat_map(|one| [one.path(), one.path().join("lib")]);
            libraries.any(|library| has_libclang(&library))
        });
    version.is_ok_and(|said| cmake_version(&said) >= Some(AERON_CMAKE)) && has_clang
}

fn cmake_version(said: &str) -> Option<(u32, u32)> {
    let version = said.strip_prefix("cmake version ")?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn has_libclang(folder: &Path) -> bool {
    let mut inside = folder.read_dir().into_iter().flatten().flatten();
    inside.any(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libclang.so") || name.starts_with("libclang-")
    })
}

fn listing() -> String {
    let lines = MEASUREMENTS.iter();
    lines.map(|one| format!("cargo xtask bench {:<10} {}\n", one.name, one.about)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_cmake_is_known() {
        let debian_12 = "cmake version 3.25.1\n\nCMake suite maintained";
        assert_eq!(cmake_version(debian_12), Some((3, 25)));
        assert!(cmake_version(debian_12) < Some(AERON_CMAKE));
        assert_eq!(cmake_version("cmake version 4.1.0"), Some((4, 1)));
        assert_eq!(cmake_version("sh: cmake: not found"), None);
    }

    #[test]
    fn only_aeron_may_be_left_out() {
        let features = buildable("iceoryx2,zenoh,aeron");
        assert!(features.starts_with("iceoryx2,zenoh"), "{features}");
        assert_eq!(buildable("iceoryx2"), "iceoryx2");
        assert_eq!(buildable(""), "");
    }

    #[test]
    fn an_unknown_measurement_is_refused_with_the_known_ones() {
        let args = Args { what: Some("speed".into()), options: Vec::new() };
        let error = run(&Repo::find().unwrap(), &args).unwrap_err().to_string();
        assert!(error.contains("\"speed\"") && error.contains("bench transfer"), "{error}");
    }
}
