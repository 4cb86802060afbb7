//! How results are shown: JSON lines, a table, a page.
use crate::goal::Unmeasured;
use crate::goals::Goal;
use crate::host::Environment;
use crate::mechanism::{Mechanism, Provider};
use crate::row::Row;
use crate::{csv, output};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Missing {
    pub(crate) what: Mechanism,
    pub(crate) missing: &'static str,
}

pub(crate) struct Report {
    json: bool,
    environment: Environment,
    cache_line: Option<Row>,
    pub(crate) rows: Vec<Row>,
    missing: Vec<Missing>,
    goals: Vec<Goal>,
    unmeasured: Vec<Unmeasured>,
    took: Duration,
    steal: Option<f64>,
}

/// The first line: the floor and the machine.
#[derive(Serialize)]
struct CacheLineLine<'a> {
    #[serde(flatten)]
    row: Option<&'a Row>,
    environment: &'a Environment,
}

const TABLE_HEAD: &str = "what                     bytes blocks      GB/s    blocks/s  p50 us    p99 us  \
                          CPU s/GB source, collector";

impl Report {
    pub(crate) fn new(json: bool, environment: Environment) -> Self {
        Self {
            json,
            environment,
            cache_line: None,
            rows: Vec::new(),
            missing: Vec::new(),
            goals: Vec::new(),
            unmeasured: Vec::new(),
            took: Duration::ZERO,
            steal: None,
        }
    }

    /// Begins with the floor, where it could be measured, and the machine.
    pub(crate) fn cache_line(&mut self, row: Option<Row>) -> Result<()> {
        if self.json {
            output::json(&CacheLineLine { row: row.as_ref(), environment: &self.environment })?;
        } else {
            output::line(&self.environment.line())?;
            row.as_ref().map_or(Ok(()), |row| output::line(&floor_line(row)))?;
            output::line(TABLE_HEAD)?;
        }
        self.cache_line = row;
        Ok(())
    }

    pub(crate) fn missing(&mut self, missing: Missing) -> Result<()> {
        output::either(self.json, &missing, missing_line)?;
        self.missing.push(missing);
        Ok(())
    }

    pub(crate) fn row(&mut self, row: Row) -> Result<()> {
        output::either(self.json, &row, table_line)?;
        self.rows.push(row);
        Ok(())
    }

    pub(crate) fn finish(
        &mut self,
        (goals, unmeasured): (Vec<Goal>, Vec<Unmeasured>),
        took: Duration,
        steal: Option<f64>,
    ) -> Result<()> {
        for goal in &goals {
            output::either(self.json, goal, Goal::line)?;
        }
        for goal in &unmeasured {
            output::either(self.json, goal, Unmeasured::line)?;
        }
        self.unmeasured = unmeasured;
        (self.goals, self.took, self.steal) = (goals, took, steal);
        Ok(())
    }

    pub(crate) fn write_markdown(&self, path: &Path) -> Result<()> {
        fs::write(path, self.markdown()?).with_context(|| format!("writing {}", path.display()))
    }

    /// Writes all rows, the floor first.
    pub(crate) fn write_csv(&self, path: &Path) -> Result<()> {
        let text = csv::table(self.cache_line.iter().chain(&self.rows))?;
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    fn markdown(&self) -> Result<String> {
        let mut page = format!("{MARKDOWN_HEAD}\n");
        let machine = &self.environment;
        writeln!(page, "- Machine: {}.", machine.line())?;
        writeln!(page, "- Day: {}, {}.", machine.date, machine.rustc)?;
        let command: Vec<String> = std::env::args().skip(1).collect();
        writeln!(page, "- Command: `catchment-bench {}`.", command.join(" "))?;
        writeln!(page, "- The run took {} s.", self.took.as_secs())?;
        if let Some(steal) = self.steal {
            let percent = steal * 100.0;
            writeln!(page, "- Time that the hypervisor gave to others: {percent:.1} %.")?;
        }
        if let Some(floor) = &self.cache_line {
            writeln!(page, "- {}", floor_line(floor))?;
        }
        for missing in &self.missing {
            writeln!(page, "- {}", missing_line(missing))?;
        }
        self.goals_markdown(&mut page)?;
        self.rows_markdown(&mut page)?;
        Ok(page)
    }

    fn goals_markdown(&self, page: &mut String) -> Result<()> {
        page.push_str(GOALS_HEAD);
        for goal in &self.goals {
            let Goal { goal: name, place, ratio, .. } = goal;
            let verdict = goal.verdict();
            writeln!(page, "| {name} | {} | {ratio:.3} | {verdict} |", place.words())?;
        }
        for goal in &self.unmeasured {
            writeln!(page, "| {} | | | {} |", goal.goal(), goal.why_not())?;
        }
        Ok(())
    }

    fn rows_markdown(&self, page: &mut String) -> Result<()> {
        let mut size = None;
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| (row.bytes, row.blocks));
        for row in rows {
            if size.replace(row.bytes) != Some(row.bytes) {
                writeln!(page, "\n### {} bytes\n", row.bytes)?;
                page.push_str(ROWS_HEAD);
            }
            writeln!(page, "{}", markdown_row(row))?;
        }
        Ok(())
    }
}

fn floor_line(row: &Row) -> String {
    format!(
        "Cache line, one way: {:.0} ns (p5 {:.0}, p95 {:.0}; p99 of single hand-overs {:.0}), wait: {}.",
        row.latency_ns_p50,
        row.latency_ns_p50_p5,
        row.latency_ns_p50_p95,
        row.latency_ns_p99,
        row.wait
    )
}

fn missing_line(missing: &Missing) -> String {
    format!("Not measured: {}; to have it: {}", missing.what.name(), missing.missing)
}

/// Returns what a row is called: with what moves the bytes, where others of the name are moved by shared memory.
fn named(row: &Row) -> String {
    let name = row.what.name();
    if row.provider == Provider::Roce.name() { format!("{name}, roce") } else { name.to_owned() }
}

fn table_line(row: &Row) -> String {
    format!(
        "{:<22} {:>7} {:>6} {:>9.3} {:>11.0} {:>7.3} {:>9.3}  {:.3} {:.3}{}",
        named(row),
        row.bytes,
        row.blocks,
        row.bytes_per_s / 1e9,
        row.blocks_per_s,
        row.latency_ns_p50 / 1e3,
        row.latency_ns_p99 / 1e3,
        row.cpu_s_per_gb_source,
        row.cpu_s_per_gb_collector,
        if row.disturbed == Some(true) { "  disturbed" } else { "" }
    )
}

fn markdown_row(row: &Row) -> String {
    let gb = |rate: f64| rate / 1e9;
    format!(
        "| {} | {} | {:.3} ({:.3}-{:.3}) | {:.0} | {:.3} ({:.3}-{:.3}) | {:.3} | {:.3} | {:.3} | {} |",
        named(row),
        row.blocks,
        gb(row.bytes_per_s),
        gb(row.bytes_per_s_p5),
        gb(row.bytes_per_s_p95),
        row.blocks_per_s,
        row.latency_ns_p50 / 1e3,
        row.latency_ns_p50_p5 / 1e3,
        row.latency_ns_p50_p95 / 1e3,
        row.latency_ns_p99 / 1e3,
        row.cpu_s_per_gb_source,
        row.cpu_s_per_gb_collector,
        notes(row),
    )
}

fn notes(row: &Row) -> String {
    let runs = format!("{} x {}", row.runs, row.batches / row.runs.max(1));
    match (row.disturbed, row.batches_repeated) {
        (Some(true), _) => format!("{runs}, disturbed"),
        (_, 0) => runs,
        (_, n) => format!("{runs}, {n} repeated"),
    }
}

const MARKDOWN_HEAD: &str = include_str!("../pages/transfer.md");

const GOALS_HEAD: &str = "
## Goals

They were set before the first run. A missed goal stays here; docs/results/README.md says why.

| goal | where | reached | |
|---|---|---|---|
";

const ROWS_HEAD: &str = "\
| what | blocks | GB/s | blocks/s | latency p50 us | p99 us | CPU s/GB source | collector | runs |
|---|---|---|---|---|---|---|---|---|
";
