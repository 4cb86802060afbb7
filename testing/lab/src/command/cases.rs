//! `catchment-lab rxe`, `verbs` and `all`: run cases.
use super::Place;
use crate::lab::{Case, Lab, Programs};
use crate::report::{self, Format};
use crate::{cases, cover, verbs};
use anyhow::{Context as _, Result, ensure};
use std::time::Instant;

/// Which cases run, and how their outcomes are written.
#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Run all cases, not only enough to cover every value of every group
    #[arg(long)]
    full: bool,
    /// Run all cases whose name contains this text, and no others; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// List the names of the cases
    #[arg(long)]
    list: bool,
    /// One JSON object a line instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct Rxe {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    choice: Choice,
}

#[derive(clap::Args)]
pub(crate) struct Verbs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    programs: Programs,
}

pub(crate) fn rxe(args: &Rxe) -> Result<bool> {
    args.choice.run(cases::all(), &args.place, Programs::default())
}

pub(crate) fn verbs(args: &Verbs) -> Result<bool> {
    args.run(Vec::new())
}

pub(crate) fn all(args: &Verbs) -> Result<bool> {
    args.run(cases::all())
}

impl Verbs {
    fn run(&self, mut cases: Vec<Case>) -> Result<bool> {
        let mut programs = self.programs.clone();
        let Programs {
            catchment,
            conformance,
            faults,
            status_byte,
            channel,
            mechanisms,
            agent,
            agents,
        } = &mut programs;
        let suites = [conformance, faults, status_byte, channel, mechanisms, agent, agents];
        for program in suites.into_iter().chain([catchment]) {
            // Absolute paths: guests start programs in other folders.
            *program = program.canonicalize().with_context(|| {
                format!("no program {}: `cargo xtask lab verbs` builds it", program.display())
            })?;
        }
        cases.extend(verbs::all(&programs, &|name| self.choice.holds(name))?);
        self.choice.run(cases, &self.place, programs)
    }
}

impl Choice {
    fn holds(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text))
    }

    fn of(&self, mut cases: Vec<Case>) -> Vec<Case> {
        cases.retain(|case| self.holds(&case.name));
        let all = cases.len();
        if !self.full && self.only.is_empty() {
            cover::retain(&mut cases, |case| &case.name);
            eprintln!("{} of {all} cases; --full runs all", cases.len());
        }
        cases
    }

    fn run(&self, cases: Vec<Case>, place: &Place, programs: Programs) -> Result<bool> {
        let cases = self.of(cases);
        ensure!(
            !cases.is_empty(),
            "no case has any of {:?} in its name: --list shows the names",
            self.only
        );
        if self.list {
            cases.iter().for_each(|case| println!("{}", case.name));
            return Ok(true);
        }
        let (_turn, kernel) = super::prepare(place)?;
        let mut lab = Lab::new(kernel, place.cache.clone(), programs)?;
        Ok(self.run_in(&mut lab, &cases))
    }

    fn run_in(&self, lab: &mut Lab, cases: &[Case]) -> bool {
        let start = Instant::now();
        let format = if self.json { Format::Json } else { Format::Table };
        let outcomes = report::run_all(cases, lab, Lab::forget_guests, format);
        let packets = lab.packets_checked();
        let mut lines = Vec::new();
        if packets > 0 {
            lines.push(format!("{packets} packets of the guest had the right ICRC"));
        }
        lines.push(report::summary(&outcomes, start.elapsed()));
        match format {
            Format::Table => println!("{}", lines.join("\n")),
            Format::Json => eprintln!("{}", lines.join("\n")),
        }
        outcomes.iter().all(|outcome| outcome.passed)
    }
}
