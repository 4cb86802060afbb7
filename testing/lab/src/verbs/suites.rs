//! Test programs of this repository, run in the first guest on its RDMA devices. Each of their tests is
//! a case. Starting a program there takes longer than most tests, so it runs all selected tests, one
//! after the other, and each case waits for its result.
use crate::lab::{Case, Lab, Programs, Site};
use crate::remote::Start;
use crate::remote::process::Process;
use anyhow::{Context as _, Result, bail, ensure};
use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

const DEVICES: &str = "CATCHMENT_IBVERBS_DEVICE";
const OWN_DEVICES: &str = "CATCHMENT_IBVERBS_FAULTS";

/// Limit for one test. In an emulated guest, beside other work, the longest take a minute.
const LIMIT: Duration = Duration::from_secs(240);

/// Limit for all tests that follow a failed one.
const REST_LIMIT: Duration = Duration::from_secs(600);

/// Scale of tests that move many blocks: an emulated machine is a hundred times slower.
const SCALE: &str = "0.01";

const ROUNDS: &str = "0.2";

/// One device with both ends; and two devices joined by a cable.
const ALONE: &str = "rxe0";
const CABLE: &str = "rxv0,rxv1";

pub(crate) fn add(
    cases: &mut Vec<Case>,
    programs: &Programs,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let suites = [
        ("conformance", &programs.conformance, ALONE),
        ("faults", &programs.faults, ALONE),
        ("status byte", &programs.status_byte, CABLE),
        ("channel", &programs.channel, CABLE),
        ("mechanisms", &programs.mechanisms, CABLE),
        ("agent", &programs.agent, ALONE),
        ("two agents", &programs.agents, ALONE),
    ];
    for (name, program, devices) in suites {
        let case = |test: &String| format!("suite/{name}/{test}");
        let (wanted, unwanted) =
            tests(program)?.into_iter().partition(|test| is_wanted(&case(test)));
        let suite = Rc::new(Suite {
            program: program.display().to_string(),
            devices,
            wanted,
            unwanted,
            running: RefCell::default(),
        });
        for at in 0..suite.wanted.len() {
            let suite = Rc::clone(&suite);
            let name = case(&suite.wanted[at]);
            cases.push(Case::new(name, move |lab: &mut Lab| suite.result(lab, at)));
        }
    }
    Ok(())
}

/// Returns the names of a program's tests, in the order in which it runs them. The device named here
/// need not exist on this host: listing tests opens none.
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

struct Suite {
    program: String,
    devices: &'static str,
    wanted: Vec<String>,
    unwanted: Vec<String>,
    running: RefCell<Option<Running>>,
}

struct Running {
    process: Process,
    /// Index of the first of the wanted tests that it runs.
    first: usize,
}

impl Suite {
    fn result(&self, lab: &mut Lab, at: usize) -> Result<()> {
        let mut running = self.running.borrow_mut();
        let is_asked = |running: &Running| running.first <= at;
        let running = match running.take().filter(is_asked) {
            Some(asked) => running.insert(asked),
            None => running.insert(self.start(lab, at)?),
        };
        let test = &self.wanted[at];
        let verdict =
            running.process.wait_for("its result", LIMIT, |stdout, _| verdict(stdout, test));
        let Ok(verdict) = verdict else {
            // The next case starts the program again, after this test.
            running.first = usize::MAX;
            return verdict.map(drop);
        };
        if verdict == "ok" {
            return Ok(());
        }
        // The reason is printed at the end of the program.
        let finished = running.process.wait(REST_LIMIT)?;
        bail!("{verdict}: {}", failure(&finished.stdout, test))
    }

    fn start(&self, lab: &mut Lab, first: usize) -> Result<Running> {
        let words = [&self.program, "--exact", "--test-threads=1"];
        let not_again = self.unwanted.iter().chain(&self.wanted[..first]);
        let skip = not_again.flat_map(|test| ["--skip", test]);
        let start = Start::like_here(words.into_iter().chain(skip))
            .with(DEVICES, self.devices)
            .with(OWN_DEVICES, "1")
            .with("CATCHMENT_TEST_SCALE", SCALE)
            .with("CATCHMENT_CONFORMANCE_ROUNDS", ROUNDS)
            .with("RUST_BACKTRACE", "0");
        let process = lab.start(Site::Left, &start)?;
        Ok(Running { process, first })
    }
}

/// Returns the result of a test once it is there: behind the name of the test, or, where the test printed
/// something, on a line of its own before the next name.
fn verdict(stdout: &str, test: &str) -> Option<String> {
    let mut is_ours = false;
    // A line that is not whole yet may become another one.
    for line in stdout.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let behind_name = line.strip_prefix("test ").and_then(|line| line.split_once(" ... "));
        let text = match behind_name {
            Some((name, text)) => {
                // A test that must panic has a suffix.
                is_ours = name.trim().trim_end_matches(" - should panic") == test;
                text
            }
            None => line,
        };
        if is_ours && matches!(text.trim(), "ok" | "FAILED") {
            return Some(text.trim().to_owned());
        }
    }
    None
}

fn failure(stdout: &str, test: &str) -> String {
    let is_head = |line: &&str| line.starts_with("---- ");
    let lines = stdout.lines().skip_while(|line| {
        let name = line.strip_prefix("---- ").unwrap_or_default();
        name.split(' ').next() != Some(test)
    });
    let message = lines.skip(1).take_while(|line| !is_head(line) && *line != "failures:");
    message.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 4 tests
test a        ... ok
test ab::long ... FAILED
test ab::panics - should panic ... ok
test b        ... ";

    #[test]
    fn a_result_is_that_of_the_test_and_whole() {
        let of = |test| verdict(OUTPUT, test);
        assert_eq!(of("a").as_deref(), Some("ok"));
        assert_eq!(of("ab::long").as_deref(), Some("FAILED"));
        assert_eq!(of("ab::panics").as_deref(), Some("ok"));
        assert_eq!(of("b"), None);
        assert_eq!(of("long"), None);
    }

    /// What a test prints comes between its name and its result.
    #[test]
    fn a_result_is_found_behind_what_the_test_printed() {
        let output = "test a ... did S1.2: 10 blocks\nok, so far\nok\n\
                      test b ... one\ntwo\nFAILED\ntest c ... did S3.4\ntest d ... ok\ntest e ... ok";
        let of = |test| verdict(output, test);
        assert_eq!(of("a").as_deref(), Some("ok"));
        assert_eq!(of("b").as_deref(), Some("FAILED"));
        // The result of the next test is not its own, and half a line is none.
        assert_eq!((of("c"), of("e")), (None, None));
        assert_eq!(of("d").as_deref(), Some("ok"));
    }

    #[test]
    fn a_failure_is_told_without_those_of_others() {
        let end = "\nfailures:\n\n---- a stdout ----\nthread 'a' panicked\nat once\n\n\
                   ---- ab ----\ntest panicked: no\n\n\nfailures:\n    a\n    ab\n";
        assert_eq!(failure(end, "a"), "thread 'a' panicked\nat once");
        assert_eq!(failure(end, "ab"), "test panicked: no");
        assert_eq!(failure(end, "b"), "");
    }
}
