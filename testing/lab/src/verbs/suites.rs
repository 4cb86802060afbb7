//! Test programs of this repository, run in the first guest, on its RDMA devices. Every test of them
//! is a case.

use super::{Case, Lab, Programs, Site};
use crate::remote::Start;
use crate::remote::process::Finished;
use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The variable by which a test program knows its devices.
const DEVICES: &str = "CATCHMENT_IBVERBS_DEVICE";

/// The variable without which a test program makes and removes no devices.
const OWN_DEVICES: &str = "CATCHMENT_IBVERBS_FAULTS";

/// For one test. Emulated, and beside others, the longest take a minute.
const LIMIT: Duration = Duration::from_secs(240);

/// The part of their usual length that tests have which move many blocks: an emulated machine moves
/// a hundred times fewer in a second.
const SCALE: &str = "0.01";

/// One device, in which both ends are; and two at the ends of a cable.
const ALONE: &str = "rxe0";
const CABLE: &str = "rxv0,rxv1";

/// Adds a case for every test of the suites.
///
/// # Errors
/// When a program does not say what tests it has.
pub fn add(cases: &mut Vec<Case>, programs: &Programs) -> Result<()> {
    let suites = [
        ("conformance", &programs.conformance, ALONE),
        ("faults", &programs.faults, ALONE),
        ("status byte", &programs.mechanisms, CABLE),
    ];
    for (suite, program, devices) in suites {
        for test in tests(program)? {
            let name = format!("suite/{suite}/{test}");
            let program = program.display().to_string();
            cases.push(Case::new(name, move |lab: &mut Lab| {
                run(lab, &program, &test, devices)
            }));
        }
    }
    Ok(())
}

/// The names of a program's tests. This host has no RDMA device, so the program is told of one:
/// naming tests opens none.
fn tests(program: &Path) -> Result<Vec<String>> {
    let output = Command::new(program)
        .args(["--list", "--format", "terse"])
        .env(DEVICES, ALONE)
        .env(OWN_DEVICES, "1")
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<_> = names.map(str::to_owned).collect();
    ensure!(!names.is_empty(), "{} has no tests", program.display());
    Ok(names)
}

fn run(lab: &mut Lab, program: &str, test: &str, devices: &str) -> Result<()> {
    let start = Start::like_here([program, test, "--exact", "--nocapture", "--test-threads=1"])
        .with(DEVICES, devices)
        .with(OWN_DEVICES, "1")
        .with("CATCHMENT_TEST_SCALE", SCALE)
        .with("RUST_BACKTRACE", "0");
    let finished = lab.start(Site::Left, &start)?.wait(LIMIT)?;
    let passed = count_passed(&finished);
    finished.success()?;
    ensure!(passed == 1, "{passed} tests ran");
    Ok(())
}

/// From the line that a test program ends with.
fn count_passed(finished: &Finished) -> usize {
    let mut lines = finished.stdout.lines().rev();
    let counts = lines.find_map(|line| line.split_once("test result: ok. "));
    let number = counts.and_then(|(_, counts)| counts.split_once(" passed"));
    number.map_or(0, |(number, _)| number.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Ended;

    #[test]
    fn a_test_that_was_not_there_has_not_passed() {
        let finished = |stdout: &str| Finished {
            ended: Ended::Status(0),
            stdout: stdout.to_owned(),
            stderr: String::new(),
        };
        let one = "test a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n\n";
        assert_eq!(count_passed(&finished(one)), 1);
        let none = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\n";
        assert_eq!(count_passed(&finished(none)), 0);
        assert_eq!(count_passed(&finished("")), 0);
    }
}
