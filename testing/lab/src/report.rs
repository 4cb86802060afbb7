//! Runs cases and prints their outcomes.
use anyhow::Result;
use serde::Serialize;
use std::time::{Duration, Instant};

type Run<L> = Box<dyn Fn(&mut L) -> Result<()>>;

pub(crate) struct Case<L> {
    /// Group, what is tried, and over what, separated by slashes.
    pub(crate) name: String,
    run: Run<L>,
}

impl<L> Case<L> {
    pub(crate) fn new(name: String, run: impl Fn(&mut L) -> Result<()> + 'static) -> Self {
        let run = Box::new(run);
        Self { name, run }
    }
}

/// Runs the cases one after the other and prints a line for each; calls `recover` after a failure.
pub(crate) fn run_all<L>(
    cases: &[Case<L>],
    lab: &mut L,
    recover: fn(&mut L),
    format: Format,
) -> Vec<Outcome> {
    let run = |case: &Case<L>| {
        let outcome = Outcome::of(case, lab);
        if !outcome.passed {
            recover(lab);
        }
        println!("{}", outcome.line(format));
        outcome
    };
    cases.iter().map(run).collect()
}

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) case: String,
    pub(crate) passed: bool,
    pub(crate) seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
}

impl Outcome {
    pub(crate) fn of<L>(case: &Case<L>, lab: &mut L) -> Self {
        let start = Instant::now();
        let result = (case.run)(lab);
        Self {
            case: case.name.clone(),
            passed: result.is_ok(),
            seconds: start.elapsed().as_secs_f64(),
            error: result.err().map(|error| format!("{error:#}")),
        }
    }

    pub(crate) fn line(&self, format: Format) -> String {
        match format {
            Format::Json => serde_json::to_string(self).unwrap_or_default(),
            Format::Table => {
                let word = if self.passed { "pass" } else { "FAIL" };
                let error = self.error.as_deref().unwrap_or_default();
                format!("{word} {:>8.3} s  {}  {error}", self.seconds, self.case)
                    .trim_end()
                    .to_owned()
            }
        }
    }
}

/// Returns the last line: counts in the format of `cargo test`, for the same readers and programs.
pub(crate) fn summary(outcomes: &[Outcome], took: Duration) -> String {
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    let passed = outcomes.len() - failed;
    let word = if failed == 0 { "ok" } else { "FAILED" };
    format!(
        "test result: {word}. {passed} passed; {failed} failed; 0 ignored; finished in {:.1} s",
        took.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(passed: bool) -> Outcome {
        Outcome {
            case: "responder/gap/v4".to_owned(),
            passed,
            seconds: 0.25,
            error: (!passed).then(|| "no packet".to_owned()),
        }
    }

    #[test]
    fn lines_tell_name_time_and_reason() {
        let table = outcome(false).line(Format::Table);
        assert_eq!(table, "FAIL    0.250 s  responder/gap/v4  no packet");
        let json = outcome(true).line(Format::Json);
        assert_eq!(json, r#"{"case":"responder/gap/v4","passed":true,"seconds":0.25}"#);
    }

    #[test]
    fn every_case_runs_also_after_one_that_failed() {
        let case = |name: &str, passes: bool| {
            Case::new(name.to_owned(), move |ran: &mut u32| {
                *ran += 1;
                anyhow::ensure!(passes, "as it should");
                Ok(())
            })
        };
        let mut ran = 0;
        let cases = [case("a", false), case("b", true)];
        let outcomes = run_all(&cases, &mut ran, |ran| *ran += 10, Format::Table);
        assert_eq!(ran, 12, "one failed, and one was run after it");
        assert!(!outcomes[0].passed && outcomes[1].passed);
    }

    #[test]
    fn the_summary_counts() {
        let text = summary(&[outcome(true), outcome(false)], Duration::from_secs(2));
        assert!(text.contains("test result: FAILED. 1 passed; 1 failed; 0 ignored"));
    }
}
