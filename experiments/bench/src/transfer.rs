//! `transfer`: every mechanism in every cell, in turn, and the results as they come.
use crate::grid::{Cell, Options};
use crate::host::{Environment, Steal};
use crate::job::{Job, NetworkEnd, Outcome};
use crate::mechanism::{Mechanism, Provider};
use crate::pair::PassedLimit;
use crate::report::{Missing, Report};
use crate::row::Row;
use crate::{clauses, external, goals, output, pair};
use anyhow::{Result, bail};
use catchment_netns::{Namespace, VethPair};
use serde::Serialize;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// MTU of the veth pair: room for the path MTU of 4096 that RoCE networks use.
const INTERFACE_MTU: u32 = 4200;

pub(crate) fn run(options: &Options) -> Result<()> {
    let cells = options.cells()?;
    let began = Instant::now();
    let mut session = Session {
        options,
        report: Report::new(options.json, Environment::detect()),
        interactive: std::io::stderr().is_terminal(),
        failures: 0,
        began,
        veth: None,
    };
    let steal = Steal::start();
    session.cache_line()?;
    session.report_missing(&cells)?;
    // Before the cells, which take what time is left.
    let mut clauses = if options.is_whole() { clauses::measure(options) } else { Vec::new() };
    for (done, cell) in cells.iter().enumerate() {
        session.measure(cell, cells.len() - done)?;
    }
    clauses.splice(0..0, goals::judge(&session.report.rows));
    let unmeasured = goals::unmeasured(&clauses, options.is_whole());
    session.report.finish((clauses, unmeasured), began.elapsed(), steal.part())?;
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
    began: Instant,
    veth: Option<VethPair>,
}

/// A row that took longer than it may, as a line.
#[derive(Serialize)]
struct Passed {
    what: &'static str,
    row: &'static str,
    provider: Provider,
    bytes: usize,
    blocks: usize,
    limit_s: u64,
}

impl Session<'_> {
    fn cache_line(&mut self) -> Result<()> {
        let job = self.options.job(Mechanism::CacheLine, 64, 1);
        let runs = 0..self.options.runs(64, 1);
        let limit = Some(self.options.limit());
        let mut outcomes = Vec::new();
        for _ in runs {
            match pair::run(&job, limit) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) if error.is::<PassedLimit>() => {
                    self.failed_at((Mechanism::CacheLine, Provider::Shm), (64, 1), &error)?;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let row = (!outcomes.is_empty()).then(|| Row::new(&job, &outcomes));
        self.report.cache_line(row)
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

    /// Returns the time after which a cell begins no further run: its part of what is left for it and
    /// those after it.
    fn allowance(&self, cells_left: usize) -> Option<Duration> {
        let left = self.options.whole()?.saturating_sub(self.began.elapsed());
        Some(left / u32::try_from(cells_left).unwrap_or(u32::MAX))
    }

    fn measure(&mut self, cell: &Cell, cells_left: usize) -> Result<()> {
        let (began, allowance) = (Instant::now(), self.allowance(cells_left));
        let is_late = |now: Duration| self.options.whole().is_some_and(|whole| now > whole);
        if is_late(self.began.elapsed()) {
            let Cell { bytes, blocks, provider, .. } = cell;
            eprintln!("\r{provider}, {bytes} bytes, {blocks} blocks: not begun, the time is over");
            return Ok(());
        }
        if !self.has_network(cell) {
            return Ok(());
        }
        let here = |what: &Mechanism| external::missing(*what).is_none();
        let mechanisms: Vec<Mechanism> = cell.mechanisms.iter().copied().filter(here).collect();
        // Of each run; nothing from the one on that failed, so that all have theirs in one place.
        let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); mechanisms.len()];
        let mut has_failed = vec![false; mechanisms.len()];
        for run in 0..self.options.runs(cell.bytes, cell.blocks) {
            if allowance.is_some_and(|most| began.elapsed() >= most) && run > 1 {
                break;
            }
            for turn in 0..mechanisms.len() {
                let at = (run + turn) % mechanisms.len();
                let is_late =
                    self.options.whole().is_some_and(|whole| self.began.elapsed() > whole);
                if has_failed[at] || is_late {
                    continue;
                }
                self.progress(&progress(cell, mechanisms[at], run));
                let job = self.job(cell, mechanisms[at]);
                match external::measure(&job, Some(self.options.limit())) {
                    Ok(outcome) if outcomes[at].len() == run => outcomes[at].push(outcome),
                    Ok(_) => {}
                    Err(error) => {
                        has_failed[at] = true;
                        self.failed(cell, mechanisms[at], &error)?;
                    }
                }
            }
        }
        self.progress("");
        for (what, outcomes) in mechanisms.iter().zip(&outcomes).filter(|(_, all)| !all.is_empty())
        {
            self.report.row(Row::new(&self.job(cell, *what), outcomes))?;
        }
        Ok(())
    }

    fn job(&self, cell: &Cell, what: Mechanism) -> Job {
        let end = |namespace: &Namespace, address| NetworkEnd { netns: namespace.path(), address };
        let ends = self.veth.as_ref().filter(|_| cell.provider == Provider::Roce);
        let job = self.options.job(what, cell.bytes, cell.blocks);
        Job {
            provider: cell.provider,
            realtime: job.realtime && cell.provider.allows_realtime(),
            network: ends.map(|pair| {
                let right = end(&pair.right, VethPair::RIGHT_V4);
                [end(&pair.left, VethPair::LEFT_V4), right]
            }),
            ..job
        }
    }

    /// Makes the network that a cell needs. Where that is not allowed its goals are not measured.
    fn has_network(&mut self, cell: &Cell) -> bool {
        if cell.provider != Provider::Roce || self.veth.is_some() {
            return true;
        }
        match VethPair::new(INTERFACE_MTU) {
            Ok(pair) => self.veth = Some(pair),
            Err(error) => eprintln!("\rno row over roce: {error:#}"),
        }
        self.veth.is_some()
    }

    fn progress(&self, text: &str) {
        if self.interactive {
            eprint!("\r{text:<60}\r");
        }
    }

    fn failed(&mut self, cell: &Cell, what: Mechanism, error: &anyhow::Error) -> Result<()> {
        self.failed_at((what, cell.provider), (cell.bytes, cell.blocks), error)
    }

    /// Says which row failed; one that only took too long is no failure of the run.
    fn failed_at(
        &mut self,
        (what, provider): (Mechanism, Provider),
        (bytes, blocks): (usize, usize),
        error: &anyhow::Error,
    ) -> Result<()> {
        let name = what.name();
        eprintln!("\r{name}, {provider}, {bytes} bytes, {blocks} blocks: {error:#}");
        if error.is::<PassedLimit>() {
            let limit_s = self.options.limit().as_secs();
            let passed = Passed { what: "limit", row: name, provider, bytes, blocks, limit_s };
            return if self.options.json { output::json(&passed) } else { Ok(()) };
        }
        self.failures += 1;
        Ok(())
    }
}

fn progress(cell: &Cell, what: Mechanism, run: usize) -> String {
    let Cell { bytes, blocks, .. } = cell;
    format!("{bytes} bytes, {blocks} blocks, run {}: {}", run + 1, what.name())
}
