//! Runs one test program for `cargo test` with a limit, and shows where it hung if it exceeds it.
//!
//! Cargo starts each test program through this recipe (`target.<cfg>.runner`), in cargo's folder and
//! environment, and runs the other programs whatever happens to this one.
use crate::proc;
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds after which the program is considered hung
    seconds: u64,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Returns arguments for cargo that run every test program through this one, with this limit for each.
pub(crate) fn for_cargo(limit: Duration) -> Result<[String; 2]> {
    let this = std::env::current_exe().context("cannot find the running program")?;
    let this = this.to_str().context("the path of xtask is not UTF-8")?;
    let words = [this, "limited", &limit.as_secs().to_string()].map(|word| format!("{word:?}"));
    Ok(["--config".to_owned(), format!("target.'cfg(all())'.runner=[{}]", words.join(","))])
}

const TESTS_OF: &str = "tests of ";

/// Returns the package that a line names which was written before the tests of a program.
pub(crate) fn package_in(line: &str) -> Option<&str> {
    line.strip_prefix(TESTS_OF).filter(|package| !package.contains(' '))
}

/// Names the package of the tests that follow: cargo tells a runner, and the program does not.
fn announce() {
    if let Ok(package) = std::env::var("CARGO_PKG_NAME") {
        println!("{TESTS_OF}{package}");
    }
}

/// Runs the program with our own input and output.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let [program, arguments @ ..] = args.command.as_slice() else {
        anyhow::bail!("no program was named");
    };
    announce();
    let mut child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let status = crate::run::wait_or(&mut child, Duration::from_secs(args.seconds), |pid| {
        eprintln!("{} hangs. Its threads:", program.display());
        eprint!("{}", proc::threads_below(pid));
    })
    .with_context(|| program.display().to_string())?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(seconds: u64, script: &str) -> Args {
        Args { seconds, command: ["sh", "-c", script].map(OsString::from).into() }
    }

    #[test]
    fn the_status_of_the_program_comes_back() {
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
            let seen = run(&args(60, script)).unwrap();
            assert_eq!(format!("{seen:?}"), format!("{:?}", ExitCode::from(code)));
        }
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_named() {
        let error = run(&args(0, "sleep 4323")).unwrap_err();
        assert_eq!(error.to_string(), "sh");
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("still running"), "{cause}");
    }

    #[test]
    fn a_package_is_announced_by_its_name_alone() {
        assert_eq!(package_in("tests of catchment-roce"), Some("catchment-roce"));
        assert_eq!(package_in("tests of all kinds"), None);
        assert_eq!(package_in("test a ... ok"), None);
    }

    #[test]
    fn the_runner_of_cargo_is_a_list_in_toml() {
        let [flag, value] = for_cargo(Duration::from_secs(9)).unwrap();
        assert_eq!(flag, "--config");
        assert!(value.starts_with("target.'cfg(all())'.runner=[\"/"), "{value}");
        assert!(value.ends_with("\",\"limited\",\"9\"]"), "{value}");
    }
}
