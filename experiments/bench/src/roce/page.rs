//! How the results are shown: lines, and a page.
use super::goals::Goal;
use super::row;
use super::row::Row;
use crate::host::Environment;
use crate::{output, table};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const HEAD: &str = include_str!("../../pages/roce.md");

pub(crate) fn print(
    environment: &Environment,
    rows: &[Row],
    goals: &[Goal],
    json: bool,
) -> Result<()> {
    if json {
        output::json(&serde_json::json!({ "environment": environment }))?;
    } else {
        output::line(&environment.line())?;
        output::line(table::aligned(&row::lines(rows)).trim_end())?;
    }
    for row in rows.iter().filter(|_| json) {
        output::json(row)?;
    }
    for goal in goals {
        output::either(json, goal, Goal::line)?;
    }
    Ok(())
}

pub(crate) fn write(
    path: &Path,
    environment: &Environment,
    rows: &[Row],
    goals: &[Goal],
) -> Result<()> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let goals = goals.iter();
    let goals: String = goals
        .map(|goal| format!("| {} | {:.2} | {} |\n", goal.goal, goal.ratio, goal.verdict()))
        .collect();
    let page = format!(
        "{HEAD}\nThis run:\n\n- Machine: {}.\n- Day: {}, {}, commit {}.\n\
         - Command: `catchment-bench {}`.\n- Rounds: {}.\n\n\
         ## Goals\n\n| goal | ratio | |\n|---|---|---|\n{goals}\n## Figures\n\n{}",
        environment.line(),
        environment.date,
        environment.rustc,
        environment.commit,
        command.join(" "),
        rows.first().map_or(0, |row| row.rounds),
        table::markdown(&row::lines(rows)),
    );
    fs::write(path, page).with_context(|| format!("writing {}", path.display()))
}
