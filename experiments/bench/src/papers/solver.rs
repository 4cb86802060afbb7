//! `solver`: the rows of `cargo xtask bench drum`, read from its program, which stands beside this one.
use super::bench::Experiment;
use super::record::{Cell, Row};
use super::virtual_stream::conditions;
use crate::mechanism::Mechanism;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::Command;

const PROGRAM: &str = "catchment-drum";
/// What counts where a run did not get to the optimum: more than the longest run of either.
const NEVER: usize = 1000;
const ENOUGH: usize = 20;

#[derive(Deserialize)]
struct Solve {
    instance: String,
    alpha: f64,
    algorithm: String,
    precision: String,
    sided: String,
    start: Option<String>,
    iterations: Option<usize>,
}

#[derive(Deserialize)]
struct Loss {
    loss: f64,
    gap_rel_at_20: f64,
    gap_rel_worst_from_5: f64,
}

pub(super) fn measure(of: &mut Experiment<'_>) -> Result<()> {
    let solves: Vec<Solve> = rows_of("solve", of.bench.quick())?;
    let losses: Vec<Loss> = rows_of("loss", of.bench.quick())?;
    for (mechanism, bytes, blocks) in of.cells() {
        let cell = of.cell(mechanism, (bytes, blocks));
        add_iterations(of, &cell, &solves);
        if mechanism == Mechanism::Admm {
            add_sizes(of, &cell, &solves);
            add_losses(of, &cell, &losses);
        }
    }
    Ok(())
}

/// Runs the program for rows of one kind.
fn rows_of<T: for<'a> Deserialize<'a>>(what: &str, quick: bool) -> Result<Vec<T>> {
    let here = std::env::current_exe().context("the path of this program")?;
    let program = here.with_file_name(PROGRAM);
    let effort = if quick { "--quick" } else { "--full" };
    let output = Command::new(&program)
        .args(["drum", "--json", effort, "--only", what])
        .output()
        .with_context(|| format!("{PROGRAM}: cargo build --package {PROGRAM}"))?;
    ensure!(output.status.success(), "{PROGRAM}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).with_context(|| PROGRAM)?;
    let lines = text.lines().skip(1);
    let rows = lines.map(|line| serde_json::from_str(line).with_context(|| line.to_owned()));
    rows.collect()
}

fn name(mechanism: Mechanism) -> &'static str {
    match mechanism.name() {
        "admm" => "admm-",
        other => other,
    }
}

/// Returns whether a row is of this one. Ours has two forms, of one name, and the start that counts is each host's own
/// optimum; where that is the optimum, in one-sided problems, equal shares.
fn is_of(mechanism: Mechanism, row: &Solve) -> bool {
    let name = name(mechanism);
    let fits = row.algorithm == name || (name.ends_with('-') && row.algorithm.starts_with(name));
    let counts = if row.sided == "two" { "local" } else { "fair" };
    let is_judged = mechanism != Mechanism::Admm || row.start.as_deref() == Some(counts);
    fits && is_judged && row.precision == "f64"
}

fn add_iterations(of: &mut Experiment<'_>, cell: &Cell, solves: &[Solve]) {
    let said = conditions(None, None);
    let of_mine = |row: &&Solve| is_of(cell.mechanism, row);
    let all: Vec<usize> =
        solves.iter().filter(of_mine).map(|row| row.iterations.unwrap_or(NEVER)).collect();
    let reached = all.iter().filter(|count| **count <= ENOUGH).count() as f64 / all.len() as f64;
    // Instances that all have rows of, in the order of the first one.
    let rivals = [Mechanism::Admm, Mechanism::Subgradient, Mechanism::SubgradientBest];
    let find = |mechanism, instance: &str| {
        solves.iter().find(|row| is_of(mechanism, row) && row.instance == instance)
    };
    let mut beside = Vec::new();
    for row in solves.iter().filter(of_mine) {
        if rivals.iter().all(|rival| find(*rival, &row.instance).is_some()) {
            beside.push(row.iterations.unwrap_or(NEVER) as f64);
        }
    }
    let values: Vec<f64> = all.iter().map(|count| *count as f64).collect();
    let mut add = |metric, values: Vec<f64>| {
        if !values.is_empty() {
            of.rows.push(Row::new(of.id, cell, (metric, "1"), values, &said));
        }
    };
    add("iterations", values);
    add("iterations_beside", beside);
    if !all.is_empty() {
        add("reached_in_20", vec![reached]);
    }
}

/// Adds how far apart sizes of the drawn family are, for the worst of the alphas.
fn add_sizes(of: &mut Experiment<'_>, cell: &Cell, solves: &[Solve]) {
    let mut alphas: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let sizes = solves.iter().filter(|row| row.instance.starts_with("family-size-"));
    for row in sizes.filter(|row| is_of(cell.mechanism, row)) {
        let all = alphas.entry(row.alpha.to_string()).or_default();
        all.push(row.iterations.unwrap_or(NEVER) as f64);
    }
    let apart = |all: &Vec<f64>| {
        let most = all.iter().copied().fold(f64::MIN, f64::max);
        most - all.iter().copied().fold(f64::MAX, f64::min)
    };
    if let Some(most) = alphas.values().map(apart).max_by(f64::total_cmp) {
        let said = conditions(None, None);
        of.found(cell, &said, [(("iterations_over_sizes", "1"), most)]);
    }
}

/// Adds the worst of all seeds and alphas, by the part of messages that were lost.
fn add_losses(of: &mut Experiment<'_>, cell: &Cell, losses: &[Loss]) {
    let mut parts: Vec<f64> = losses.iter().map(|row| row.loss).collect();
    parts.sort_by(f64::total_cmp);
    parts.dedup();
    for part in parts {
        let of_part = || losses.iter().filter(|row| row.loss == part);
        let worst = |gap: fn(&Loss) -> f64| of_part().map(gap).fold(f64::MIN, f64::max);
        let gaps = [
            (("gap_rel_at_20", "1"), worst(|row| row.gap_rel_at_20)),
            (("gap_rel_worst_from_5", "1"), worst(|row| row.gap_rel_worst_from_5)),
        ];
        of.found(&cell.at(part, "1"), &conditions(None, None), gaps);
    }
}
