//! How results are shown: JSON lines, a table, a page.
use crate::goals::{Goal, Place};
use crate::host::Environment;
use crate::mechanism::What;
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
    pub(crate) what: What,
    pub(crate) missing: &'static str,
}

pub(crate) struct Report {
    json: bool,
    environment: Environment,
    cache_line: Option<Row>,
    pub(crate) rows: Vec<Row>,
    missing: Vec<Missing>,
    goals: Vec<Goal>,
    took: Duration,
    steal: Option<f64>,
}

/// The first line: the floor and the machine.
#[derive(Serialize)]
struct CacheLineLine<'a> {
    #[serde(flatten)]
    row: &'a Row,
    environment: &'a Environment,
}

const TABLE_HEAD: &str = "what                     bytes blocks      GB/s    blocks/s  p50 us    p99 us  \
                          CPU s/GB source, collector";

impl Report {
    pub(crate) fn new(json: bool, environment: Environment) -> Report {
        Report {
            json,
            environment,
            cache_line: None,
            rows: Vec::new(),
            missing: Vec::new(),
            goals: Vec::new(),
            took: Duration::ZERO,
            steal: None,
        }
    }

    pub(crate) fn cache_line(&mut self, row: Row) -> Result<()> {
        if self.json {
            output::json(&CacheLineLine { row: &row, environment: &self.environment })?;
        } else {
            output::line(&self.environment.line())?;
            output::line(&floor_line(&row))?;
            output::line(TABLE_HEAD)?;
        }
        self.cache_line = Some(row);
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
        goals: Vec<Goal>,
        took: Duration,
        steal: Option<f64>,
    ) -> Result<()> {
        for goal in &goals {
            output::either(self.json, goal, Goal::line)?;
        }
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
        let mut page = String::from(MARKDOWN_HEAD);
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
            let Goal { goal: name, place: Place { bytes, blocks }, ratio, .. } = goal;
            let verdict = goal.verdict();
            writeln!(page, "| {name} | {bytes} | {blocks} | {ratio:.2} | {verdict} |")?;
        }
        Ok(())
    }

    fn rows_markdown(&self, page: &mut String) -> Result<()> {
        let mut size = None;
        for row in &self.rows {
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

fn table_line(row: &Row) -> String {
    format!(
        "{:<22} {:>7} {:>6} {:>9.3} {:>11.0} {:>7.3} {:>9.3}  {:.3} {:.3}{}",
        row.what.name(),
        row.bytes,
        row.blocks,
        row.bytes_per_s / 1e9,
        row.blocks_per_s,
        row.latency_ns_p50 / 1e3,
        row.latency_ns_p99 / 1e3,
        row.cpu_s_per_gb_source,
        row.cpu_s_per_gb_collector,
        if row.disturbed { "  disturbed" } else { "" }
    )
}

fn markdown_row(row: &Row) -> String {
    let gb = |rate: f64| rate / 1e9;
    format!(
        "| {} | {} | {:.3} ({:.3}-{:.3}) | {:.0} | {:.3} ({:.3}-{:.3}) | {:.3} | {:.3} | {:.3} | {} |",
        row.what.name(),
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
        (true, _) => format!("{runs}, disturbed"),
        (false, 0) => runs,
        (false, n) => format!("{runs}, {n} repeated"),
    }
}

const MARKDOWN_HEAD: &str = "\
# Transfer between two processes of one machine

Written by `cargo xtask bench transfer --markdown docs/results/transfer.md`. Do not edit.

How it is measured:

- Every mechanism runs in a fresh pair of processes, a source and a collector, each bound to a
  core of its own. The mechanisms of a cell take turns, several times.
- Throughput: blocks as fast as they go, from the source's first send to the collector's last
  receive. One copy of the payload is charged to every mechanism, out of a buffer of as many
  blocks as are on their way. `ours-copy` sends a block of the source's own memory with
  `post_send`; `ours-in-place` and iceoryx2 copy into the block that the collector will read;
  `memcpy` is that copy alone, by one process, and nobody is told. The kernel's streams copy more
  inside. The collector looks at the first and the last byte and gives the block back.
- Latency: half of the round trip of one block there and one block back, one at a time, by the
  same method for the cache line and for every mechanism. The answer goes out before the block is
  given back. For `memcpy` it is the duration of the copy.
- Floor: how long a cache line takes from one core to the other. It wanders during a
  run (about 30 or about 240 ns on our machine, probably where the hypervisor puts the cores), so it
  is measured between the same two processes directly before each latency batch, and the goal is
  held against the ratio of each batch to its floor.
- `--csv FILE` has the same numbers and more, the same columns for every mechanism: peak memory of
  both processes, queues of the device, looks at the status bytes for each block and how long one
  takes after the collector has changed a byte.
- CPU: getrusage of each process, over the throughput batches. A polling role has 100 % of its
  core, whatever it moves: the seconds for a gigabyte are the other side of the throughput.
- Goals compare run by run, since the two then ran directly one after the other, and take the
  median of the ratios.
- `iceoryx2` waits for room by its own means, which yield; `iceoryx2-credit` polls a shared
  counter for room first. Goals are held against the better one.
- `paper` is the mechanism as published: one request at a time, and a READ of all status bytes
  that the sender waits for when it knows of no free block. `status-read-prefetched` and
  `status-read-when-empty` are `ours-copy`, told to read when half of the blocks are left, or none.
  The provider for processes of one host does a READ while it is posted.
- `ucx` is ucx_perftest's `ucp_put_bw` and `ucp_put_lat` over shared memory: puts into one buffer
  that nobody takes away, many outstanding. It does less than the others: no blocks, no hand-over.
  Its processes are not run at real-time priority.
- Numbers are medians over all batches; in brackets the range from the 5th to the 95th percentile.
  The last column shows fresh pairs of processes x batches of each. A batch in which a polling
  role had less than 97 % of its core was repeated; a row in which this did not help is marked
  `disturbed`.

This run:

";

const GOALS_HEAD: &str = "
## Goals

They were set before the first run. A missed goal stays here; docs/results/README.md says why.

| goal | bytes | blocks | reached | |
|---|---|---|---|---|
";

const ROWS_HEAD: &str = "\
| what | blocks | GB/s | blocks/s | latency p50 us | p99 us | CPU s/GB source | collector | runs |
|---|---|---|---|---|---|---|---|---|
";
