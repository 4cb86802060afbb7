//! The claims that were registered and that no scenario measures.
use super::claim::{Changed, Registered};
use super::elsewhere::{Goals, Measured};
use anyhow::{Context as _, Result};
use serde::Deserialize;

const REGISTER: &str = include_str!("../../scenarios/register.toml");

/// A claim that no scenario measures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Other {
    pub(crate) id: String,
    pub(crate) experiment: String,
    pub(crate) registered: Registered,
    /// What it was before; the newest last.
    #[serde(default)]
    pub(crate) changed: Vec<Changed>,
    pub(crate) claim: String,
    /// The claim of a scenario that says the same.
    pub(crate) rests_on: Option<String>,
    /// What other benches measure of it.
    #[serde(default)]
    pub(crate) measured: Vec<Goals>,
    /// Tests that fail where it is not so, as FILE::TEST: nothing of it is a number that a run could measure.
    #[serde(default)]
    pub(crate) shown_by: Vec<String>,
}

impl Other {
    /// Returns what other benches measured of it, a goal at each place that there is.
    pub(super) fn measured_elsewhere(&self) -> Result<Vec<Measured>> {
        let found: Result<Vec<_>> = self.measured.iter().map(Goals::measured).collect();
        Ok(found?.into_iter().flatten().collect())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    #[serde(rename = "claim")]
    claims: Vec<Other>,
}

/// Returns the claims that no scenario measures.
pub(super) fn others() -> Result<Vec<Other>> {
    let register: Register = toml::from_str(REGISTER).context("register.toml")?;
    Ok(register.claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::RESULTS;
    use std::path::Path;

    #[test]
    fn every_test_that_a_claim_names_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for other in others().unwrap() {
            for shown in &other.shown_by {
                let (file, test) = shown.split_once("::").unwrap();
                let text = std::fs::read_to_string(root.join(file)).unwrap();
                assert!(text.contains(&format!("fn {test}(")), "{}: {shown}", other.id);
            }
        }
    }

    /// A goal that a bench calls otherwise now would be "not measured" for ever.
    #[test]
    fn every_goal_that_a_claim_names_is_one_of_the_rows_that_are_kept() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(RESULTS);
        let others = others().unwrap();
        assert!(others.iter().any(|other| !other.measured.is_empty()));
        for other in others {
            for goals in &other.measured {
                let found = goals.measured_in(&results).unwrap();
                assert!(!found.is_empty(), "{}: {goals:?}", other.id);
                assert!(results.join(goals.page()).exists(), "{}: {goals:?}", other.id);
            }
        }
    }
}
