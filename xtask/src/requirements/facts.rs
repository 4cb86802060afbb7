//! The table of `docs/reference/requirements.md`.
use anyhow::{Context as _, Result, bail, ensure};

const HEAD: &str = "| id | state | tests | command | note |";
const RULE: &str = "|---|---|---|---|---|";

/// How far a requirement holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    True,
    Partly,
    Not,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Partly => "partly",
            Self::Not => "not",
        }
    }

    fn of(word: &str) -> Result<Self> {
        let all = [Self::True, Self::Partly, Self::Not];
        let found = all.into_iter().find(|state| state.word() == word);
        found.with_context(|| format!("{word:?} is none of true, partly, not"))
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) id: String,
    pub(super) state: State,
    /// Package and path of each test: `catchment-transfer::status_byte::s1_2_...`.
    pub(super) tests: Vec<String>,
    pub(super) command: String,
    pub(super) note: String,
}

/// Returns the rows of the page's table, of which there is one.
pub(super) fn read(page: &str) -> Result<Vec<Fact>> {
    let mut lines = page.lines().enumerate().skip_while(|(_, line)| *line != HEAD).skip(1);
    let rule = lines.next().with_context(|| format!("no table with the head {HEAD}"))?;
    ensure!(rule.1 == RULE, "line {}: not {RULE}", rule.0 + 1);
    let rows = lines.take_while(|(_, line)| line.starts_with('|'));
    rows.map(|(number, line)| row(line).with_context(|| format!("line {}: {line}", number + 1)))
        .collect()
}

fn row(line: &str) -> Result<Fact> {
    let inner = line.strip_prefix("| ").and_then(|rest| rest.strip_suffix(" |"));
    let cells: Vec<_> = inner.context("not a row")?.split(" | ").collect();
    let [id, state, tests, command, note] = cells[..] else {
        bail!("{} cells, not 5", cells.len());
    };
    ensure!(!note.trim().is_empty(), "a note is missing");
    let tests = match tests {
        "-" => Vec::new(),
        names => names.split(", ").map(name).collect::<Result<_>>()?,
    };
    let command = quoted(command)?;
    ensure!(command.contains("cargo "), "the command does not call cargo");
    Ok(Fact { id: id.to_owned(), state: State::of(state)?, tests, command, note: note.to_owned() })
}

fn name(cell: &str) -> Result<String> {
    let name = quoted(cell)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-:".contains(c);
    ensure!(name.contains("::") && name.chars().all(is_plain), "{name:?} is no package::test");
    Ok(name)
}

fn quoted(cell: &str) -> Result<String> {
    let text = cell.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    let text = text.filter(|text| !text.is_empty() && !text.contains('`'));
    Ok(text.with_context(|| format!("{cell:?} does not stand between backquotes"))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "| S1.2 | partly | `p::a`, `p-q::b::c` | `X=1 cargo test` | some: of *it* |";

    #[test]
    fn a_row_is_read() {
        let page = format!("words\n\n{HEAD}\n{RULE}\n{ROW}\n\n| S1.3 |\n");
        let facts = read(&page).unwrap();
        assert_eq!(facts.len(), 1);
        assert_eq!((facts[0].id.as_str(), facts[0].state), ("S1.2", State::Partly));
        assert_eq!(facts[0].tests, ["p::a", "p-q::b::c"]);
        assert_eq!(facts[0].command, "X=1 cargo test");
        assert_eq!(facts[0].note, "some: of *it*");
    }

    #[test]
    fn what_is_no_row_is_refused_with_its_line() {
        let refused = |row: &str| {
            let error = read(&format!("{HEAD}\n{RULE}\n{row}\n")).unwrap_err();
            assert!(error.to_string().starts_with("line 3: "), "{error}");
            error.root_cause().to_string()
        };
        assert!(refused(&ROW.replace("partly", "nearly")).contains("\"nearly\" is none of"));
        assert!(refused(&ROW.replace(" | some: of *it*", "")).contains("4 cells"));
        assert!(refused(&ROW.replace("some: of *it*", " ")).contains("note"));
        assert!(refused(&ROW.replace("`p::a`", "p::a")).contains("backquotes"));
        assert!(refused(&ROW.replace("`p::a`", "`a`")).contains("no package::test"));
        assert!(refused(&ROW.replace("X=1 cargo test", "make")).contains("cargo"));
        assert!(refused("|S1.2|").contains("not a row"));
        assert!(read(ROW).unwrap_err().to_string().contains("no table"));
    }
}
