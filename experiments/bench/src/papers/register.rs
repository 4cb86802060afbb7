//! The claims that were registered and that no scenario measures.
use super::claim::{Changed, Registered};
use super::elsewhere::{Goals, Measured};
use super::rules::{Published, Rule};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

const REGISTER: &str = include_str!("../../scenarios/register.toml");

/// A claim that no scenario measures.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Entry")]
pub(crate) struct Other {
    pub(crate) id: String,
    pub(crate) experiment: String,
    pub(crate) registered: Registered,
    /// What it was before; the newest last.
    pub(crate) changed: Vec<Changed>,
    pub(crate) claim: String,
    pub(crate) judged_by: JudgedBy,
}

/// What says whether a claim is true that no scenario measures.
#[derive(Debug, Clone)]
pub(crate) enum JudgedBy {
    Nothing,
    /// The claim of a scenario that says the same.
    Claim(String),
    /// What other benches measure of it.
    Goals(Vec<Goals>),
    /// The rows that are kept of the scenarios.
    Rows(Rule),
    /// Tests that fail where it is not so, as FILE::TEST: nothing of it is a number that a run could measure.
    Tests(Vec<String>),
}

/// As it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    experiment: String,
    registered: Registered,
    #[serde(default)]
    changed: Vec<Changed>,
    claim: String,
    rests_on: Option<String>,
    measured: Option<Vec<Goals>>,
    rows: Option<Rule>,
    shown_by: Option<Vec<String>>,
}

impl TryFrom<Entry> for Other {
    type Error = anyhow::Error;

    fn try_from(entry: Entry) -> Result<Self> {
        let Entry { id, experiment, registered, changed, claim, .. } = entry;
        let ways = [
            entry.rests_on.map(JudgedBy::Claim),
            entry.measured.map(JudgedBy::Goals),
            entry.rows.map(JudgedBy::Rows),
            entry.shown_by.map(JudgedBy::Tests),
        ];
        let mut ways: Vec<JudgedBy> = ways.into_iter().flatten().collect();
        ensure!(ways.len() <= 1, "claim {id} is judged in {} ways", ways.len());
        let judged_by = ways.pop().unwrap_or(JudgedBy::Nothing);
        Ok(Self { id, experiment, registered, changed, claim, judged_by })
    }
}

impl Other {
    /// Returns the claim of a scenario that says the same.
    pub(super) fn rests_on(&self) -> Option<&str> {
        if let JudgedBy::Claim(id) = &self.judged_by { Some(id) } else { None }
    }

    /// Returns the tests that show it.
    pub(super) fn tests(&self) -> &[String] {
        if let JudgedBy::Tests(tests) = &self.judged_by { tests } else { &[] }
    }

    /// Returns what rows that are kept say of it, a goal at each place that there is.
    pub(super) fn measured_elsewhere(&self, published: &Published) -> Result<Vec<Measured>> {
        match &self.judged_by {
            JudgedBy::Goals(goals) => {
                let found: Result<Vec<_>> = goals.iter().map(Goals::measured).collect();
                Ok(found?.into_iter().flatten().collect())
            }
            JudgedBy::Rows(rule) => Ok(rule.measured(published).into_iter().collect()),
            JudgedBy::Nothing | JudgedBy::Claim(_) | JudgedBy::Tests(_) => Ok(Vec::new()),
        }
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
            for shown in other.tests() {
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
        let is_measured = |other: &Other| matches!(other.judged_by, JudgedBy::Goals(_));
        assert!(others.iter().any(is_measured));
        for other in others {
            let JudgedBy::Goals(goals) = &other.judged_by else { continue };
            for goals in goals {
                let found = goals.measured_in(&results).unwrap();
                assert!(!found.is_empty(), "{}: {goals:?}", other.id);
                assert!(results.join(goals.page()).exists(), "{}: {goals:?}", other.id);
            }
        }
    }
}
