//! What all experiments of a run have in common: options, priorities, the network, and turns.
use super::record::{Cell, Conditions, Row};
use super::scenario::{Effort, Measure, Scenario, Workload};
use super::{Options, Realtime};
use crate::job::{Job, NetworkEnd, Outcome, Program, Wait};
use crate::mechanism::{Mechanism, Provider};
use crate::{external, pair, sys};
use anyhow::{Context, Result};
use catchment_netns::{Namespace, VethPair};
use std::io::IsTerminal;

pub(crate) struct Bench {
    pub(super) options: Options,
    pub(super) realtime: bool,
    interactive: bool,
    /// What could not be measured in this experiment, and why.
    pub(super) failures: Vec<String>,
    veth: Option<VethPair>,
}

/// MTU of the veth pair: room for the path MTU of 4096 that RoCE networks use.
const INTERFACE_MTU: u32 = 4200;

impl Bench {
    pub(super) fn new(options: &Options) -> Result<Self> {
        let allowed = sys::set_realtime(true).and_then(|()| sys::set_realtime(false));
        let realtime = match options.realtime {
            Realtime::Auto => allowed.is_ok(),
            Realtime::On => {
                allowed.context("real-time priority needs CAP_SYS_NICE; leave out --realtime")?;
                true
            }
            Realtime::Off => false,
        };
        Ok(Self {
            options: options.clone(),
            realtime,
            interactive: std::io::stderr().is_terminal(),
            failures: Vec::new(),
            veth: None,
        })
    }

    pub(super) fn quick(&self) -> bool {
        !self.options.full
    }

    /// Returns whether timed parts get real-time priority: who sleeps needs none.
    pub(super) fn realtime(&self, provider: Provider, wait: Wait) -> bool {
        self.realtime && provider.allows_realtime() && wait.polls()
    }

    /// Makes two network namespaces that live as long as the run, where the provider needs them.
    pub(super) fn make_network(&mut self, provider: Provider) -> Result<()> {
        if provider == Provider::Roce && self.veth.is_none() {
            self.veth = Some(VethPair::new(INTERFACE_MTU)?);
        }
        Ok(())
    }

    fn network(&self, provider: Provider) -> Option<[NetworkEnd; 2]> {
        let pair = self.veth.as_ref().filter(|_| provider == Provider::Roce)?;
        let end = |namespace: &Namespace, address| NetworkEnd { netns: namespace.path(), address };
        Some([end(&pair.left, VethPair::LEFT_V4), end(&pair.right, VethPair::RIGHT_V4)])
    }

    /// Those that are on this machine; the others are named, with how to get them.
    pub(super) fn present(&mut self, mechanisms: &[Mechanism]) -> Vec<Mechanism> {
        let mut present = mechanisms.to_vec();
        present.retain(|one| {
            let Some(remedy) = external::missing(*one) else { return true };
            let text = format!("{} is not on this machine: {remedy}", one.label());
            if !self.failures.contains(&text) {
                self.failures.push(text);
            }
            false
        });
        present
    }

    pub(super) fn progress(&self, text: &str) {
        if self.interactive {
            eprint!("\r{text:<70}\r");
        }
    }

    pub(super) fn wants(&self, scenario: &Scenario) -> bool {
        scenario.experiments().into_iter().any(|id| self.wants_experiment(id))
    }

    pub(super) fn wants_experiment(&self, id: &str) -> bool {
        let only = &self.options.only;
        only.is_empty() || only.iter().any(|one| one.eq_ignore_ascii_case(id))
    }

    pub(super) fn wants_provider(&self, provider: Provider) -> bool {
        let only = &self.options.provider;
        only.is_empty() || only.contains(&provider)
    }
}

/// A part of a scenario on one provider: what is to be measured, and the rows that were found.
pub(super) struct Experiment<'a> {
    pub(super) bench: &'a mut Bench,
    pub(super) id: &'a str,
    pub(super) workload: Workload,
    pub(super) part: &'a Measure,
    pub(super) effort: &'a Effort,
    pub(super) provider: Provider,
    pub(super) rows: Vec<Row>,
}

impl Experiment<'_> {
    pub(super) fn sizes(&self) -> Vec<(usize, usize)> {
        self.part.sizes(self.bench.quick())
    }

    pub(super) fn cells(&self) -> Vec<(Mechanism, usize, usize)> {
        self.part.cells(self.bench.quick())
    }

    pub(super) fn cell(&self, mechanism: Mechanism, (bytes, blocks): (usize, usize)) -> Cell {
        Cell::new(self.provider, mechanism, bytes, blocks)
    }

    pub(super) fn progress(&self, text: &str) {
        self.bench.progress(&format!("{} {}: {text}", self.id, self.provider));
    }

    fn realtime(&self) -> bool {
        self.bench.realtime(self.provider, self.part.wait)
    }

    pub(super) fn conditions(&self, outcomes: &[Outcome]) -> Conditions {
        Conditions::of(self.part.wait, self.realtime(), outcomes)
    }

    /// Adds rows of one cell that have one value each.
    pub(super) fn found(
        &mut self,
        cell: &Cell,
        conditions: &Conditions,
        values: impl IntoIterator<Item = ((&'static str, &'static str), f64)>,
    ) {
        let row = |(metric, value)| Row::one(self.id, cell, metric, value, conditions);
        self.rows.extend(values.into_iter().map(row));
    }

    /// Returns both ends of the network that the provider has.
    pub(super) fn network(&self) -> Option<[NetworkEnd; 2]> {
        self.bench.network(self.provider)
    }

    /// Returns the measurement of one mechanism in a cell, as the part's effort says.
    pub(super) fn job(&self, mechanism: Mechanism, size: (usize, usize), program: Program) -> Job {
        Job {
            realtime: self.realtime(),
            batch_ms: self.effort.milliseconds,
            batches: self.effort.repetitions,
            program,
            network: self.network(),
            provider: self.provider,
            ..Job::new(mechanism, size, self.part.wait)
        }
    }

    /// Measures the mechanisms of a cell in turn, so often. One that fails is noted and measured once
    /// more, later than the others; if it fails again it is left out, and the others go on.
    pub(super) fn in_turn(
        &mut self,
        restarts: usize,
        mechanisms: &[Mechanism],
        size: (usize, usize),
        program: Program,
    ) -> Vec<(Mechanism, Vec<Outcome>)> {
        let name = format!("{}, {} B, {} blocks", self.provider, size.0, size.1);
        let found = mechanisms.iter().map(|&one| (one, Vec::new()));
        let mut found: Vec<(Mechanism, Vec<Outcome>)> = found.collect();
        for _ in 0..restarts {
            let jobs: Vec<Job> =
                found.iter().map(|(one, _)| self.job(*one, size, program)).collect();
            let outcomes = run_in_turn(&jobs);
            let mut gone = Vec::new();
            for ((mechanism, mine), outcome) in found.iter_mut().zip(outcomes) {
                let again = outcome.or_else(|error| {
                    let once = format!("{name}, {mechanism}, measured again: {error:#}");
                    self.bench.failures.push(once);
                    external::measure(&self.job(*mechanism, size, program), None)
                });
                match again {
                    Ok(outcome) => mine.push(outcome),
                    Err(error) => {
                        gone.push(*mechanism);
                        self.bench.failures.push(format!("{name}, {mechanism}: {error:#}"));
                    }
                }
            }
            found.retain(|(one, _)| !gone.contains(one));
        }
        found
    }
}

/// Those of ours and of libraries side by side; programs of others one after the other.
fn run_in_turn(jobs: &[Job]) -> Vec<Result<Outcome>> {
    let has_roles = |job: &&Job| !job.what.is_program();
    let ours: Vec<Job> = jobs.iter().filter(has_roles).cloned().collect();
    let mut outcomes = pair::run_in_turn(&ours).into_iter();
    let outcome = |job| match has_roles(&job).then(|| outcomes.next()).flatten() {
        Some(outcome) => outcome,
        None => external::measure(job, None),
    };
    jobs.iter().map(outcome).collect()
}
