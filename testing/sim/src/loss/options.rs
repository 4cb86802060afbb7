//! The command: which cells to run and how to show them.
use super::{Cell, Row, report};
use crate::parallel;
use catchment_roce::Recovery;
use catchment_roce::wire::PathMtu;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `bench loss`.
#[derive(Debug, Clone, clap::Args)]
pub struct LossOptions {
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Write the page of results to this file too
    #[arg(long)]
    pub markdown: Option<PathBuf>,
    /// Measured virtual time of each cell, in seconds
    #[arg(long, default_value_t = 4.0)]
    pub seconds: f64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only cells whose JSON line contains this text, such as go-back-n
    #[arg(long)]
    pub only: Option<String>,
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for recovery in [Recovery::SelectiveRepeat, Recovery::GoBackN] {
        for rate_bps in [1_000_000_000, 2_000_000_000] {
            for rtt_ms in [2, 10] {
                for path_mtu in [PathMtu::Mtu1024, PathMtu::Mtu2048] {
                    for burst in [1, 8] {
                        let cell =
                            |loss| Cell { recovery, rate_bps, rtt_ms, path_mtu, burst, loss };
                        cells.extend([0.0, 0.001, 0.01, 0.05].map(cell));
                    }
                }
            }
        }
    }
    for (rtt_ms, loss) in
        [20, 100, 200].into_iter().flat_map(|rtt_ms| [(rtt_ms, 0.0), (rtt_ms, 0.01)])
    {
        cells.push(Cell { loss, ..Cell::long(1_000_000_000, rtt_ms) });
    }
    cells
}

/// Runs the cells and prints a line for each.
///
/// # Errors
/// When an option is out of range or the page cannot be written.
pub fn run(options: &LossOptions) -> Result<(), String> {
    let seconds = options.seconds;
    if !(seconds > 0.0 && seconds <= 3600.0) {
        let remedy = "give more than 0 and at most 3600";
        return Err(format!("--seconds is {seconds}: {remedy}"));
    }
    let span = Duration::from_secs_f64(seconds);
    let cells: Vec<Cell> = cells().into_iter().filter(|cell| wanted(cell, options)).collect();
    let shown = if options.json { report::json } else { report::line };
    let mut rows: Vec<Row> = Vec::new();
    if !options.json {
        println!("{}", report::HEAD);
    }
    parallel::in_order(
        cells.len() as u64,
        |at| cells[at as usize].run(span, options.seed),
        |_, row| {
            println!("{}", shown(&row));
            rows.push(row);
            true
        },
    );
    eprintln!("{}", report::verdict(&rows));
    if let Some(path) = &options.markdown {
        let page = report::page(&rows, options);
        std::fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn wanted(cell: &Cell, options: &LossOptions) -> bool {
    options.only.as_deref().is_none_or(|text| report::json(&Row::new(cell)).contains(text))
}
