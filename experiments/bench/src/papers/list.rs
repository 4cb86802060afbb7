//! Every claim that is registered, measured or not, as `--list` prints it.
use super::claim::{Changed, Registered};
use super::register::{JudgedBy, Other, others};
use super::scenario::Scenario;
use crate::output;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;

/// A claim as `--list` shows it.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    id: &'a str,
    experiment: &'a str,
    /// Where it is judged; empty where nothing measures it.
    providers: Vec<&'static str>,
    claim: &'a str,
    must: Option<String>,
    registered: &'a Registered,
    changed: &'a [Changed],
    rests_on: Option<&'a str>,
    /// Goals of other benches that it is judged by, or rows of the scenarios that all keep it.
    measured_by: Vec<String>,
    /// Tests that show it.
    shown_by: &'a [String],
}

impl Listed<'_> {
    fn line(&self) -> String {
        let Registered { commit, date } = self.registered;
        let must = match (&self.must, self.rests_on) {
            (Some(must), _) => must.clone(),
            (None, Some(other)) => format!("as {other}"),
            (None, None) => match (&self.measured_by[..], self.shown_by) {
                ([], []) => "not measured".to_owned(),
                ([], tests) => format!("shown by {}", tests.join(", ")),
                (goals, _) => goals.join("; "),
            },
        };
        let was: Vec<String> = self
            .changed
            .iter()
            .map(|one| format!("; until {} {}: {} ({})", one.commit, one.date, one.was, one.why))
            .collect();
        let providers = self.providers.join(" ");
        let providers = if providers.is_empty() { "-".to_owned() } else { providers };
        format!(
            "{:<9} {providers:<13} {commit} {date}  {}: {must}{}",
            self.id,
            self.claim,
            was.concat()
        )
    }
}

/// Prints every claim that is registered, a line each.
///
/// # Errors
/// Two claims have one id, or one rests on a claim that is not there.
pub(super) fn list(scenarios: &[Scenario], json: bool) -> Result<()> {
    let others = others()?;
    check(scenarios, &others)?;
    for scenario in scenarios {
        for claim in &scenario.claims {
            let listed = Listed {
                id: &claim.id,
                experiment: claim.experiment.as_ref().unwrap_or(&scenario.id),
                providers: claim.providers.iter().map(|one| one.name()).collect(),
                claim: &claim.claim,
                must: Some(claim.bounds()),
                registered: &claim.registered,
                changed: &claim.changed,
                rests_on: None,
                measured_by: Vec::new(),
                shown_by: &[],
            };
            output::either(json, &listed, Listed::line)?;
        }
    }
    others.iter().try_for_each(|other| {
        let measured_by = match &other.judged_by {
            JudgedBy::Goals(goals) => goals.iter().map(ToString::to_string).collect(),
            JudgedBy::Rows(rule) => vec![rule.must().to_owned()],
            JudgedBy::Nothing | JudgedBy::Claim(_) | JudgedBy::Tests(_) => Vec::new(),
        };
        let listed = Listed {
            id: &other.id,
            experiment: &other.experiment,
            providers: Vec::new(),
            claim: &other.claim,
            must: None,
            registered: &other.registered,
            changed: &other.changed,
            rests_on: other.rests_on(),
            measured_by,
            shown_by: other.tests(),
        };
        output::either(json, &listed, Listed::line)
    })
}

/// Finds ids that are not one claim's, days and commits that are none, and claims that rest on none.
fn check(scenarios: &[Scenario], others: &[Other]) -> Result<()> {
    let claims = scenarios.iter().flat_map(|scenario| &scenario.claims);
    let measured = claims.map(|claim| (claim.id.as_str(), &claim.registered));
    let others_registered = others.iter().map(|other| (other.id.as_str(), &other.registered));
    let mut known = BTreeMap::new();
    for (id, registered) in measured.chain(others_registered) {
        ensure!(known.insert(id, registered).is_none(), "two claims have the id {id}");
        let Registered { commit, date } = registered;
        let is_commit = commit.len() == 8 && commit.bytes().all(|b| b.is_ascii_hexdigit());
        ensure!(is_commit && date.len() == 10, "claim {id}: registered {commit} {date}");
    }
    for other in others {
        let known = other.rests_on().is_none_or(|id| known.contains_key(id));
        ensure!(known, "claim {} rests on one that is not there", other.id);
    }
    Ok(())
}
