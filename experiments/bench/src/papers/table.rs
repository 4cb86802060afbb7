//! A table of what the experiments measured, a column for each mechanism. Every number names the row
//! that it is of.
use super::claim::number;
use super::record::{Cell, Conditions, Row};
use super::results::{Median, medians};
use super::scenario::{Line, Scenario};
use crate::mechanism::{Mechanism, Provider};
use crate::table;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;

const MECHANISMS: [Mechanism; 6] = [
    Mechanism::SbPaper,
    Mechanism::Sb,
    Mechanism::SwPaper,
    Mechanism::SwFair,
    Mechanism::SwSack,
    Mechanism::Rendezvous,
];

/// The table as Markdown, of the rows that the folder has, and rows that say of how many of its lines something was
/// measured.
pub(super) fn table(scenario: &Scenario, folder: &Path) -> Result<(String, Vec<Row>)> {
    let heads = ["", "measured in"].map(str::to_owned).into_iter();
    let heads = heads.chain(MECHANISMS.map(|one| one.label().to_owned()));
    let mut lines: Vec<Vec<String>> = vec![heads.collect()];
    let mut empty = 0;
    let mut rows = BTreeMap::new();
    for line in &scenario.lines {
        if !rows.contains_key(line.of.as_str()) {
            rows.insert(line.of.as_str(), medians(folder, &line.of)?);
        }
    }
    for line in &scenario.lines {
        let cells = MECHANISMS.map(|mechanism| cell(line, &rows[line.of.as_str()], mechanism));
        empty += u32::from(cells.iter().all(Option::is_none));
        let at: Vec<String> =
            line.at.iter().map(|(axis, span)| format!("{axis:?} {span:?}")).collect();
        let place = format!("{}, {}, {}{}", line.of, line.provider, line.metric, places(&at));
        let shown = |cell: Option<f64>| cell.map_or("-".to_owned(), |v| number(v * line.scale));
        let says = [line.says.clone(), place].into_iter();
        lines.push(says.chain(cells.map(shown)).collect());
    }
    let nothing = Cell::new(Provider::Shm, Mechanism::Sb, 0, 0);
    let counted = |metric: &'static str, count: f64| {
        let conditions = Conditions::default();
        Row::one(&scenario.id, &nothing, (metric, "1"), count, &conditions)
    };
    let rows = vec![
        counted("lines", scenario.lines.len() as f64),
        counted("lines_without_a_row", f64::from(empty)),
    ];
    Ok((table::markdown(&lines), rows))
}

fn places(at: &[String]) -> String {
    let words = at.join(", ").to_lowercase().replace("one(", "").replace(')', "").replace(".0", "");
    if words.is_empty() { words } else { format!(", {words}") }
}

/// The median of the one row that fits.
fn cell(line: &Line, rows: &[Median], mechanism: Mechanism) -> Option<f64> {
    let fits = |row: &&Median| {
        row.cell.provider == line.provider
            && row.cell.mechanism == mechanism
            && row.metric == line.metric
            && (line.variant.is_none() || line.variant == row.cell.variant)
            && line
                .at
                .iter()
                .all(|(axis, span)| axis.of(&row.cell).is_some_and(|value| span.has(value)))
    };
    let mut fitting = rows.iter().filter(fits);
    let row = fitting.next()?;
    fitting.next().is_none().then_some(row.value)
}
