//! Claims that other benches measure: goals of the rows that are kept in `docs/results`.
use super::claim::{NOT_MEASURED, Verdict};
use crate::kept::{self, Row};
use crate::output::RESULTS;
use anyhow::Result;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt;
use std::path::{Path, PathBuf};

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
    /// A line of the file is no row. A file that is not there has nothing.
    pub(super) fn measured(&self) -> Result<Vec<Measured>> {
        self.measured_in(Path::new(RESULTS))
    }

    pub(super) fn measured_in(&self, results: &Path) -> Result<Vec<Measured>> {
        let path = results.join(&self.rows);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let rows = kept::read(&path)?;
        let fits = |row: &&Row| *row.get("goal") == *self.goal && row.fits(&self.at);
        Ok(rows.iter().filter(fits).map(|row| self.judge(row)).collect())
    }

    fn judge(&self, row: &Row) -> Measured {
        let places =
            row.place().filter(|(name, value)| !self.at.contains_key(*name) && !value.is_null());
        let places: Vec<String> = places.map(|(name, value)| format!("{name} {value}")).collect();
        let place = places.join(", ").replace('"', "");
        let page = self.page();
        let verdict = match (row.reached().and_then(Value::as_f64), row.get("held")) {
            (Some(ratio), Value::Bool(held)) => Verdict {
                measured: Some(ratio),
                held: Some(*held),
                disturbed: row.get("disturbed").as_bool(),
                unit: Some("1".to_owned()),
                why_not: (!held).then(|| format!("{ratio} at {place}; {RESULTS}/{page} says why")),
                ..Verdict::default()
            },
            _ => Verdict::missing(row.get("why_not").as_str().unwrap_or(NOT_MEASURED).to_owned()),
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
    use std::fs;

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
