//! Runs cases and says what came of each.

use crate::cases::{Case, Lab};
use serde::Serialize;
use std::time::{Duration, Instant};

/// What came of a case.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub case: String,
    /// Whether it passed.
    pub passed: bool,
    /// How long it took.
    pub seconds: f64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How outcomes are written on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line for each case, for people.
    Table,
    /// A JSON object a line.
    Json,
}

impl Outcome {
    /// Runs a case.
    pub fn of(case: &Case, lab: &mut Lab) -> Self {
        let start = Instant::now();
        let result = case.run(lab);
        Self {
            case: case.name.clone(),
            passed: result.is_ok(),
            seconds: start.elapsed().as_secs_f64(),
            error: result.err().map(|error| format!("{error:#}")),
        }
    }

    /// One line.
    #[must_use]
    pub fn line(&self, format: Format) -> String {
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

/// The last line: counts in the form that `cargo test` has, so that the same eyes and programs
/// read it.
#[must_use]
pub fn summary(outcomes: &[Outcome], packets_checked: u64, took: Duration) -> String {
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    let passed = outcomes.len() - failed;
    let word = if failed == 0 { "ok" } else { "FAILED" };
    format!(
        "{packets_checked} packets of the guest had the right ICRC\n\
         test result: {word}. {passed} passed; {failed} failed; 0 ignored; finished in {:.1} s",
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
        assert_eq!(
            json,
            r#"{"case":"responder/gap/v4","passed":true,"seconds":0.25}"#
        );
    }

    #[test]
    fn the_summary_counts() {
        let text = summary(&[outcome(true), outcome(false)], 9, Duration::from_secs(2));
        assert!(text.contains("test result: FAILED. 1 passed; 1 failed; 0 ignored"));
    }
}
