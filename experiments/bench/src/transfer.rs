//! `transfer`: every mechanism in every cell, in turn, and the results as they come.
use crate::grid::{Cell, Options};
use crate::host::{Environment, Steal};
use crate::job::Outcome;
use crate::mechanism::Mechanism;
use crate::report::{Missing, Report};
use crate::row::Row;
use crate::{external, goals, pair};
use anyhow::{Result, bail};
use std::io::IsTerminal;
use std::time::Instant;

pub(crate) fn run(options: &Options) -> Result<()> {
    let cells = options.cells()?;
    let mut session = Session {
        options,
        report: Report::new(options.json, Environment::detect()),
        interactive: std::io::stderr().is_terminal(),
        failures: 0,
    };
    let (steal, began) = (Steal::start(), Instant::now());
    session.cache_line()?;
    session.report_missing(&cells)?;
    for cell in &cells {
        session.measure(cell)?;
    }
    let goals = goals::judge(&session.report.rows);
    session.report.finish(goals, began.elapsed(), steal.part())?;
    if let Some(path) = &options.markdown {
        session.report.write_markdown(path)?;
    }
    if let Some(path) = &options.csv {
        session.report.write_csv(path)?;
    }
    match session.failures {
        0 => Ok(()),
        n => bail!("{n} measurements failed; their errors are above"),
    }
}

struct Session<'a> {
    options: &'a Options,
    report: Report,
    interactive: bool,
    failures: usize,
}

impl Session<'_> {
    fn cache_line(&mut self) -> Result<()> {
        let job = self.options.job(Mechanism::CacheLine, 64, 1);
        let runs = 0..self.options.runs(64, 1);
        let outcomes: Vec<Outcome> = runs.map(|_| pair::run(&job)).collect::<Result<_>>()?;
        self.report.cache_line(Row::new(&job, &outcomes))
    }

    fn report_missing(&mut self, cells: &[Cell]) -> Result<()> {
        for what in [Mechanism::Ucx, Mechanism::Iceoryx2] {
            let asked = cells.iter().any(|cell| cell.mechanisms.contains(&what));
            if let Some(missing) = external::missing(what).filter(|_| asked) {
                self.report.missing(Missing { what, missing })?;
            }
        }
        Ok(())
    }

    fn measure(&mut self, cell: &Cell) -> Result<()> {
        let here = |what: &Mechanism| external::missing(*what).is_none();
        let mechanisms: Vec<Mechanism> = cell.mechanisms.iter().copied().filter(here).collect();
        let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); mechanisms.len()];
        for run in 0..self.options.runs(cell.bytes, cell.blocks) {
            for turn in 0..mechanisms.len() {
                let at = (run + turn) % mechanisms.len();
                self.progress(&progress(cell, mechanisms[at], run));
                let job = self.options.job(mechanisms[at], cell.bytes, cell.blocks);
                match external::measure(&job) {
                    Ok(outcome) => outcomes[at].push(outcome),
                    Err(error) => self.failed(cell, mechanisms[at], &error),
                }
            }
        }
        self.progress("");
        for (what, outcomes) in mechanisms.iter().zip(&outcomes).filter(|(_, all)| !all.is_empty())
        {
            let job = self.options.job(*what, cell.bytes, cell.blocks);
            self.report.row(Row::new(&job, outcomes))?;
        }
        Ok(())
    }

    fn progress(&self, text: &str) {
        if self.interactive {
            eprint!("\r{text:<60}\r");
        }
    }

    fn failed(&mut self, cell: &Cell, what: Mechanism, error: &anyhow::Error) {
        self.failures += 1;
        let name = what.name();
        eprintln!("\r{name}, {} bytes, {} blocks: {error:#}", cell.bytes, cell.blocks);
    }
}

fn progress(cell: &Cell, what: Mechanism, run: usize) -> String {
    let Cell { bytes, blocks, .. } = cell;
    format!("{bytes} bytes, {blocks} blocks, run {}: {}", run + 1, what.name())
}
