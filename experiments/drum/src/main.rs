//! Measurements of the DRUM solver, and the paper's own forms beside it.
//!
//! Data in: options, a file of the format `drum-oracle/1`. Data out: a row a line, as JSON or text.
//!
//! | | |
//! |---|---|
//! | `rows`, `report`, `run`, `measure` | the fields of each row, the machine, how far iterations are from an optimum |
//! | `solve`, `course`, `loss`, `warm`, `topk`, `speed`, `scale` | one kind of row each |
//! | `literal`, `subgradient` | the paper's forms, with `price`; the product does not depend on them |
#![forbid(unsafe_code)]
use anyhow::Result;
use clap::Parser;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

mod course;
/// Problems are drawn as the tests draw them.
#[path = "../../../crates/control/tests/drum/family/mod.rs"]
mod family;
mod literal;
mod loss;
mod measure;
mod price;
mod report;
mod rows;
mod run;
mod scale;
mod solve;
mod speed;
mod subgradient;
mod topk;
mod warm;

/// Measurements of the DRUM solver
#[derive(Parser)]
#[command(version)]
enum Command {
    Drum(Options),
}

/// Shares of hosts: rounds to the optimum, lost messages, changes, choices, time of a round
#[derive(clap::Args)]
struct Options {
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Minutes, which is the default
    #[arg(long)]
    quick: bool,
    /// Every size and seed
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// A file in the format drum-oracle/1, in place of the public oracle and the drawn family
    #[arg(long, value_name = "FILE")]
    instances: Option<PathBuf>,
    /// Only rows of this kind
    #[arg(long, value_name = "WHAT")]
    only: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Solve,
    Course,
    Loss,
    Warm,
    Topk,
    Speed,
    Scale,
}

/// Where rows go.
struct Output {
    json: bool,
    full: bool,
}

impl Output {
    fn row<T: Serialize>(&self, row: &T) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string(row)?)?;
            return Ok(());
        }
        let value = serde_json::to_value(row)?;
        let fields = value.as_object().into_iter().flatten().filter(|field| !field.1.is_null());
        let words: Vec<String> = fields.map(|(name, value)| format!("{name} {value}")).collect();
        writeln!(out, "{}", words.join(", "))?;
        Ok(())
    }
}

fn main() -> Result<()> {
    let Command::Drum(options) = Command::parse();
    let output = Output { json: options.json, full: options.full };
    output.row(&run::Run::detect(options.full))?;
    let wanted = |kind| options.only.is_none_or(|only| only == kind);
    if wanted(Kind::Solve) || wanted(Kind::Topk) {
        let instances = solve::instances(options.instances.as_deref())?;
        if wanted(Kind::Solve) {
            solve::run(&output, &instances, options.instances.is_none())?;
        }
        if wanted(Kind::Topk) {
            topk::run(&output, &instances, options.instances.is_none())?;
        }
    }
    if options.instances.is_some() {
        return Ok(());
    }
    if wanted(Kind::Course) {
        course::run(&output)?;
    }
    if wanted(Kind::Loss) {
        loss::run(&output)?;
    }
    if wanted(Kind::Warm) {
        warm::run(&output)?;
    }
    if wanted(Kind::Speed) {
        speed::run(&output)?;
    }
    if wanted(Kind::Scale) {
        scale::run(&output)?;
    }
    Ok(())
}
