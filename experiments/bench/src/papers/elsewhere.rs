//! Claims that other benches measure: goals of the rows that are kept in `docs/results`.
use super::claim::{NOT_MEASURED, Verdict};
use crate::goal::OF_GOAL;
use crate::output::RESULTS;
use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// Goals of the rows of one file, by their text.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Goals {
    /// The file of JSON lines, in `docs/results`.
    rows: PathBuf,
    goal: String,
    /// Fields that say where it was measured; left out, all that have this text.
    #[serde(default)]
    at: Map<String, Value>,
}

/// A goal, where it was measured, and what came out.
#[derive(Debug)]
pub(super) struct Measured {
    /// The goal with its limit.
    pub(super) must: String,
    pub(super) place: String,
    /// Of the folder of results: where the rows are explained.
    pub(super) page: String,
    pub(super) verdict: Verdict,
}

impl fmt::Display for Goals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.goal, self.rows.display())?;
        self.at.iter().try_for_each(|(name, value)| write!(f, ", {name} {value}"))?;
        f.write_str(")")
    }
}

impl Goals {
    /// Returns all that fit, as the last run left them: none, one, or one for each place.
    ///
    /// # Errors
    /// A line of the file is not JSON. A file that is not there has nothing.
    pub(super) fn measured(&self) -> Result<Vec<Measured>> {
        self.measured_in(Path::new(RESULTS))
    }

    pub(super) fn measured_in(&self, results: &Path) -> Result<Vec<Measured>> {
        let path = results.join(&self.rows);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut found = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let row: Map<String, Value> = serde_json::from_str(line)
                .with_context(|| format!("{}, line {}", path.display(), number + 1))?;
            let fits = row.get("goal").is_some_and(|goal| *goal == *self.goal)
                && self.at.iter().all(|(name, value)| row.get(name) == Some(value));
            if fits {
                found.push(self.judge(&row));
            }
        }
        Ok(found)
    }

    fn judge(&self, row: &Map<String, Value>) -> Measured {
        let places = row.iter().filter(|(name, value)| {
            !OF_GOAL.contains(&name.as_str()) && !self.at.contains_key(*name) && !value.is_null()
        });
        let places: Vec<String> = places.map(|(name, value)| format!("{name} {value}")).collect();
        let place = places.join(", ").replace('"', "");
        let page = self.page();
        let said = row.get("why_not").and_then(Value::as_str).unwrap_or(NOT_MEASURED);
        let number = |name: &str| row.get(name).and_then(Value::as_f64);
        let verdict = match (number("ratio").or_else(|| number("value")), row.get("held")) {
            (Some(ratio), Some(Value::Bool(held))) => Verdict {
                measured: Some(ratio),
                held: Some(*held),
                disturbed: row.get("disturbed").and_then(Value::as_bool),
                unit: Some("1".to_owned()),
                why_not: (!held).then(|| format!("{ratio} at {place}; {RESULTS}/{page} says why")),
                ..Verdict::default()
            },
            _ => Verdict::missing(said.to_owned()),
        };
        Measured { must: self.goal.clone(), place, page, verdict }
    }

    pub(super) fn page(&self) -> String {
        let folder = self.rows.parent().unwrap_or(Path::new(""));
        format!("{}.md", folder.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_found_by_text_and_place() {
        let folder = tempfile::tempdir().unwrap();
        let rows = concat!(
            r#"{"what":"run"}"#,
            "\n",
            r#"{"what":"goal","goal":"A, at most 1","bytes":64,"ratio":0.5,"limit":1.0,"held":true}"#,
            "\n",
            r#"{"what":"goal","goal":"A, at most 1","bytes":128,"ratio":2.5,"limit":1.0,"held":false}"#,
            "\n",
            r#"{"what":"goal","goal":"B","ratio":null,"held":null,"why_not":"no line"}"#,
            "\n"
        );
        fs::create_dir(folder.path().join("some")).unwrap();
        fs::write(folder.path().join("some/rows.jsonl"), rows).unwrap();
        let find = |text: &str| {
            let goals: Goals = toml::from_str(text).unwrap();
            let found = goals.measured_in(folder.path()).unwrap();
            found.into_iter().map(|one| one.verdict).collect::<Vec<_>>()
        };
        let all = find("rows = \"some/rows.jsonl\"\ngoal = \"A, at most 1\"");
        let held: Vec<_> = all.iter().map(|one| (one.measured, one.held)).collect();
        assert_eq!(held, [(Some(0.5), Some(true)), (Some(2.5), Some(false))]);
        let why = all[1].why_not.as_deref().unwrap();
        assert_eq!(why, "2.5 at bytes 128; docs/results/some.md says why");
        let at = find("rows = \"some/rows.jsonl\"\ngoal = \"A, at most 1\"\nat = { bytes = 64 }");
        assert_eq!(at.len(), 1);
        let unmeasured = find("rows = \"some/rows.jsonl\"\ngoal = \"B\"");
        assert_eq!(unmeasured[0].why_not.as_deref(), Some("no line"));
        assert!(find("rows = \"none/rows.jsonl\"\ngoal = \"B\"").is_empty());
    }
}
