//! What a case found, as a line and in the committed lists.
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What a case found.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) held: bool,
    pub(crate) detail: String,
}

impl Verdict {
    pub(crate) fn new(held: bool, detail: impl Into<String>) -> Self {
        Self { held, detail: detail.into() }
    }

    /// Holds if nothing is wrong; otherwise says what is, after `seen`.
    pub(crate) fn unless(faults: &[String], seen: impl Into<String>) -> Self {
        let seen = seen.into();
        let parts = faults.iter().cloned().chain((!seen.is_empty()).then_some(seen));
        Self::new(faults.is_empty(), parts.collect::<Vec<_>>().join("; "))
    }
}

/// Most characters of a detail.
const DETAIL_CHARS: usize = 400;

/// One line of output or of a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) case: String,
    pub(crate) held: bool,
    pub(crate) detail: String,
}

impl Line {
    pub(crate) fn new(case: &str, outcome: Result<Verdict>) -> Self {
        let verdict = outcome.unwrap_or_else(|error| {
            Verdict::new(false, format!("could not be played to its end: {error:#}"))
        });
        let detail = verdict.detail.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { case: case.to_owned(), held: verdict.held, detail }
    }

    /// Leaves out a folder of this machine, and what is too long to read.
    pub(crate) fn without(mut self, folder: &Path) -> Self {
        self.detail = self.detail.replace(&folder.display().to_string(), "");
        self.detail = self.detail.chars().take(DETAIL_CHARS).collect();
        self
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        let word = if self.held { "held" } else { "FELL" };
        format!("{word}  {:<28} {}", self.case, self.detail)
    }
}

/// Reads a list: what held, by case.
pub(crate) fn read(path: &Path) -> Result<BTreeMap<String, bool>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines = text.lines().map(serde_json::from_str::<Line>);
    lines.map(|line| line.map(|line| (line.case, line.held)).map_err(Into::into)).collect()
}

/// Writes the lines of these cases into a list; those of others stay.
pub(crate) fn record(path: &Path, lines: &[Line]) -> Result<()> {
    let known = fs::read_to_string(path).unwrap_or_default();
    let known = known.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let all: BTreeMap<_, _> =
        known.chain(lines.iter().cloned()).map(|line| (line.case.clone(), line)).collect();
    let text: String = all.values().map(|line| line.json() + "\n").collect();
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Cases that hold by the list and did not now.
pub(crate) fn fallen<'a>(lines: &'a [Line], list: &BTreeMap<String, bool>) -> Vec<&'a Line> {
    let holds = |line: &&Line| list.get(&line.case) == Some(&true);
    lines.iter().filter(|line| !line.held).filter(holds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(case: &str, held: bool) -> Line {
        Line::new(case, Ok(Verdict::new(held, "a\nb")))
    }

    #[test]
    fn lines_are_one_line_and_a_case_that_fails_to_run_did_not_hold() {
        assert_eq!(line("2.x", true).json(), r#"{"case":"2.x","held":true,"detail":"a b"}"#);
        let error = Line::new("2.x", Err(anyhow::anyhow!("no tool")));
        assert!(!error.held && error.detail.ends_with("no tool"), "{}", error.detail);
    }

    #[test]
    fn only_what_the_list_says_holds_can_fall() {
        let list = BTreeMap::from([("1.a".to_owned(), true), ("1.b".to_owned(), false)]);
        let lines = [line("1.a", true), line("1.b", false), line("1.c", false)];
        assert!(fallen(&lines, &list).is_empty());
        assert_eq!(fallen(&[line("1.a", false)], &list)[0].case, "1.a");
    }
}
