//! `papers`: the experiments of the papers, each a scenario with what must hold, the rows that were
//! measured, pictures of them, and a page that says what held and what did not.
mod cameras;
mod claim;
mod ends;
mod lockstep;
mod page;
mod plot;
mod record;
mod scenario;
mod simulated;
mod singles;
mod stream;
mod table;
mod virtual_stream;

use crate::{
    csv, external, host,
    host::Environment,
    job::{Job, NetworkEnd, Outcome, Wait, What},
    mechanism::{Mechanism, Provider},
    pair, sys, ucx,
};
use anyhow::{Context, Result, bail};
use catchment_netns::{Namespace, VethPair};
use claim::{Claim, Verdict};
use record::{Row, Written};
use scenario::{Measure, Scenario, Workload};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    fs,
    io::{IsTerminal, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Run the experiments of the papers and say which of their claims hold
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// All of them in under 15 minutes
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// 30 repetitions in 5 fresh processes each, all sizes: hours [default: --quick]
    #[arg(long)]
    full: bool,
    /// One JSON object a claim on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Only this experiment, such as E1.13; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Only on this provider; may be repeated
    #[arg(long, value_enum)]
    provider: Vec<Provider>,
    /// A scenario file of your own, instead of those of this repository; may be repeated
    #[arg(long, value_name = "FILE")]
    scenario: Vec<PathBuf>,
    /// Where the page goes; pictures and rows go into a folder `papers` beside it
    #[arg(long, value_name = "FOLDER", default_value = "target/results")]
    out: PathBuf,
    /// Write the page of this repository with its pictures, in docs/results
    #[arg(long, conflicts_with_all = ["out", "only", "provider", "scenario"])]
    write: bool,
    /// Whether short timed parts get real-time priority: by default where it is allowed
    #[arg(long, value_enum, default_value = "auto")]
    realtime: Realtime,
}

/// Whether timed parts get real-time priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Realtime {
    Auto,
    On,
    Off,
}

/// What a run has in common.
pub(crate) struct Bench {
    options: Options,
    realtime: bool,
    interactive: bool,
    jobs: usize,
    /// What could not be measured in this experiment, and why.
    failures: Vec<String>,
    veth: Option<VethPair>,
}

/// MTU of the veth pair: room for the path MTU of 4096 that RoCE networks use.
const INTERFACE_MTU: u32 = 4200;

impl Bench {
    fn new(options: &Options) -> Result<Bench> {
        let allowed = sys::set_realtime(true).and_then(|()| sys::set_realtime(false));
        let realtime = match options.realtime {
            Realtime::Auto => allowed.is_ok(),
            Realtime::On => {
                allowed.context("real-time priority needs CAP_SYS_NICE; leave out --realtime")?;
                true
            }
            Realtime::Off => false,
        };
        Ok(Bench {
            options: options.clone(),
            realtime,
            interactive: std::io::stderr().is_terminal(),
            jobs: 0,
            failures: Vec::new(),
            veth: None,
        })
    }

    fn quick(&self) -> bool {
        !self.options.full
    }

    /// Whether timed parts get real-time priority. A device over a network has a thread on the core
    /// of its role, which would starve; who sleeps needs none.
    fn realtime(&self, provider: Provider, wait: Wait) -> bool {
        self.realtime && provider == Provider::Shm && wait.polls()
    }

    /// Where source and collector are: in two network namespaces that live as long as the run.
    fn network(&mut self, provider: Provider) -> Result<Option<[NetworkEnd; 2]>> {
        if provider != Provider::Roce {
            return Ok(None);
        }
        let pair = match &self.veth {
            Some(pair) => pair,
            None => self.veth.insert(VethPair::new(INTERFACE_MTU)?),
        };
        let end = |namespace: &Namespace, address| NetworkEnd {
            netns: namespace.path(),
            address,
        };
        Ok(Some([
            end(&pair.left, VethPair::LEFT_V4),
            end(&pair.right, VethPair::RIGHT_V4),
        ]))
    }

    /// The core of the second role.
    fn second_core(&self) -> usize {
        usize::from(host::cores() >= 2)
    }

    /// A name that no other measurement has.
    fn unique(&mut self) -> String {
        self.jobs += 1;
        format!("{}-{}", std::process::id(), self.jobs)
    }

    /// Measures the mechanisms of a cell in turn, so often. One that fails is noted and measured once
    /// more, later than the others; if it fails again it is left out, and the others go on.
    fn in_turn(
        &mut self,
        restarts: usize,
        name: &str,
        mechanisms: &[Mechanism],
        mut job: impl FnMut(&mut Bench, Mechanism) -> Job,
    ) -> Vec<(Mechanism, Vec<Outcome>)> {
        let found = mechanisms.iter().map(|&one| (one, Vec::new()));
        let mut found: Vec<(Mechanism, Vec<Outcome>)> = found.collect();
        for _ in 0..restarts {
            let jobs: Vec<Job> = found.iter().map(|(one, _)| job(self, *one)).collect();
            let outcomes = run_in_turn(&jobs);
            let mut gone = Vec::new();
            for ((mechanism, mine), outcome) in found.iter_mut().zip(outcomes) {
                let again = outcome.or_else(|error| {
                    let once = format!("{name}, {mechanism}, measured again: {error:#}");
                    self.failures.push(once);
                    run_one(&job(self, *mechanism))
                });
                match again {
                    Ok(outcome) => mine.push(outcome),
                    Err(error) => {
                        gone.push(*mechanism);
                        self.failures
                            .push(format!("{name}, {mechanism}: {error:#}"));
                    }
                }
            }
            found.retain(|(one, _)| !gone.contains(one));
        }
        found
    }

    /// Those that are on this machine; the others are named, with how to get them.
    fn present(&mut self, mechanisms: &[Mechanism]) -> Vec<Mechanism> {
        let mut present = mechanisms.to_vec();
        present.retain(|one| {
            let Some(remedy) = missing(*one) else {
                return true;
            };
            let text = format!("{} is not on this machine: {remedy}", one.label());
            if !self.failures.contains(&text) {
                self.failures.push(text);
            }
            false
        });
        present
    }

    /// Shows a person what is being done.
    fn progress(&self, text: &str) {
        if self.interactive {
            eprint!("\r{text:<70}\r");
        }
    }

    fn wants(&self, scenario: &Scenario) -> bool {
        let only = &self.options.only;
        let ids = scenario.experiments();
        let is_wanted = |id: &String| ids.iter().any(|one| one.eq_ignore_ascii_case(id));
        only.is_empty() || only.iter().any(is_wanted)
    }

    fn wants_provider(&self, provider: Provider) -> bool {
        let only = &self.options.provider;
        only.is_empty() || only.contains(&provider)
    }
}

/// Those of ours and of libraries side by side; programs of others one after the other.
fn run_in_turn(jobs: &[Job]) -> Vec<Result<Outcome>> {
    let has_roles = |job: &&Job| !matches!(job.what, What::Ucx | What::Program(_));
    let ours: Vec<Job> = jobs.iter().filter(has_roles).cloned().collect();
    let mut outcomes = pair::run_in_turn(&ours).into_iter();
    let outcome = |job| match has_roles(&job).then(|| outcomes.next()).flatten() {
        Some(outcome) => outcome,
        None => run_one(job),
    };
    jobs.iter().map(outcome).collect()
}

fn run_one(job: &Job) -> Result<Outcome> {
    if let What::Program(program) = job.what {
        external::run(program, job)
    } else if job.what == What::Ucx {
        ucx::run(job)
    } else {
        pair::run(job)
    }
}

/// What to type to get what is not here.
fn missing(mechanism: Mechanism) -> Option<&'static str> {
    match mechanism.peer() {
        Some(What::Ucx) if !ucx::is_installed() => Some(ucx::REMEDY),
        Some(What::Iceoryx2 | What::Iceoryx2Credit) if !cfg!(feature = "iceoryx2") => {
            Some("cargo build --features iceoryx2")
        }
        Some(What::Program(program)) => external::missing(program),
        _ => None,
    }
}

/// Which page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    /// The experiments of the papers.
    Papers,
    /// Other projects beside ours.
    Peers,
}

impl Page {
    fn name(self) -> &'static str {
        match self {
            Page::Papers => "papers",
            Page::Peers => "peers",
        }
    }

    fn scenarios(self) -> Result<Vec<Scenario>> {
        match self {
            Page::Papers => scenario::ours(),
            Page::Peers => scenario::peers(),
        }
    }
}

/// An experiment that was run.
struct Done {
    scenario: Scenario,
    rows: Vec<Row>,
    /// What the experiment shows as a table.
    table: Option<String>,
    /// What could not be measured, and why.
    failures: Vec<String>,
    verdicts: Vec<Judged>,
    /// Stems of the pictures' files.
    pictures: Vec<String>,
    took: Duration,
}

/// A claim on one provider, and what became of it.
struct Judged {
    experiment: String,
    claim: Claim,
    provider: Provider,
    verdict: Verdict,
}

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
    provider: Provider,
    claim: &'a str,
    paper: Option<&'a str>,
    must: String,
    measured: Option<f64>,
    ci_low: Option<f64>,
    ci_high: Option<f64>,
    held: Option<bool>,
    disturbed: bool,
    why_not: Option<&'a str>,
}

/// Runs the experiments that the options ask for.
///
/// # Errors
/// When a scenario is wrong, none is left, or results cannot be written. A measurement that fails is
/// shown among the results.
pub(crate) fn run(options: &Options, which: Page) -> Result<()> {
    let mut bench = Bench::new(options)?;
    let mut scenarios = match options.scenario.as_slice() {
        [] => which.scenarios()?,
        files => files
            .iter()
            .map(|path| scenario::load(path))
            .collect::<Result<_>>()?,
    };
    let known = scenarios.iter().flat_map(Scenario::experiments);
    let known: BTreeSet<String> = known.map(str::to_owned).collect();
    scenarios.retain(|scenario| bench.wants(scenario));
    if scenarios.is_empty() {
        let known: Vec<String> = known.into_iter().collect();
        bail!("--only leaves nothing; there are {}", known.join(", "));
    }
    let out = if options.write {
        Path::new("docs/results")
    } else {
        &options.out
    };
    let folder = out.join(which.name());
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let environment = Environment::detect();
    let (steal, began) = (host::Steal::start(), Instant::now());
    let mut done = Vec::new();
    // A table is of what the others measured.
    scenarios.sort_by_key(|scenario| scenario.workload == Workload::Table);
    for scenario in scenarios {
        let one = experiment(&mut bench, scenario, &done, &folder)?;
        done.push(one);
    }
    done.sort_by_key(|one: &Done| order(&one.scenario.id));
    bench.progress("");
    write_rows(&done, &environment, &folder, options.write)?;
    let run = page::Run {
        which,
        environment: &environment,
        quick: bench.quick(),
        realtime: bench.realtime,
        took: began.elapsed(),
        steal: steal.part(),
    };
    let page = page::page(&run, &done)?;
    let file = out.join(format!("{}.md", which.name()));
    fs::write(&file, page).with_context(|| format!("writing {}", file.display()))?;
    print(&done, options.json)
}

/// E1.2 comes before E1.10.
fn order(id: &str) -> Vec<u64> {
    let numbers = id.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

fn experiment(
    bench: &mut Bench,
    scenario: Scenario,
    before: &[Done],
    folder: &Path,
) -> Result<Done> {
    let began = Instant::now();
    let (table, mut rows) = if scenario.workload == Workload::Table {
        table::table(&scenario, before)
    } else {
        (None, Vec::new())
    };
    for part in &scenario.measure {
        for &provider in &part.providers {
            if !bench.wants_provider(provider) {
                continue;
            }
            let measured = measure(bench, &scenario, part, provider).or_else(|error| {
                let once = format!("{provider}, measured again: {error:#}");
                bench.failures.push(once);
                measure(bench, &scenario, part, provider)
            });
            match measured {
                Ok(more) => rows.extend(more),
                Err(error) => bench.failures.push(format!("{provider}: {error:#}")),
            }
        }
    }
    let mut verdicts = Vec::new();
    for claim in &scenario.claims {
        let wanted = claim.providers.iter().filter(|p| bench.wants_provider(**p));
        verdicts.extend(wanted.map(|&provider| Judged {
            verdict: claim.judge(provider, &rows),
            experiment: claim.experiment.as_ref().unwrap_or(&scenario.id).clone(),
            claim: claim.clone(),
            provider,
        }));
    }
    let mut pictures = Vec::new();
    for plot in &scenario.plots {
        for provider in [Provider::Shm, Provider::Roce, Provider::Sim] {
            pictures.extend(plot.draw(&scenario.id, provider, &rows, folder)?);
        }
    }
    let failures = std::mem::take(&mut bench.failures);
    for failure in &failures {
        eprintln!("\r{}: {failure}", scenario.id);
    }
    Ok(Done {
        took: began.elapsed(),
        scenario,
        rows,
        table,
        failures,
        verdicts,
        pictures,
    })
}

fn measure(
    bench: &mut Bench,
    scenario: &Scenario,
    part: &Measure,
    provider: Provider,
) -> Result<Vec<Row>> {
    let workload = part.workload.unwrap_or(scenario.workload);
    match (workload, provider) {
        (Workload::Stream, Provider::Sim) => virtual_stream::measure(bench, scenario, part),
        (Workload::Stream, Provider::Shm | Provider::Roce) => {
            stream::measure(bench, scenario, part, provider)
        }
        (
            Workload::Sync | Workload::Look | Workload::OneWay | Workload::Hold,
            Provider::Shm | Provider::Roce,
        ) => singles::measure(bench, scenario, part, provider),
        (Workload::Cameras, Provider::Shm | Provider::Roce) => {
            cameras::measure(bench, scenario, part, provider)
        }
        (
            Workload::Sync | Workload::Look | Workload::OneWay | Workload::Hold | Workload::Cameras,
            Provider::Sim,
        ) => bail!("single times are measured in real time"),
        (Workload::Table, _) => bail!("a table is of what other experiments measured"),
        (Workload::Interactions, _) => lockstep::interactions(bench, scenario, part, provider),
        (Workload::Queues, _) => lockstep::queues(bench, scenario, part, provider),
        (Workload::ReleaseOrder, Provider::Sim) => {
            virtual_stream::release_order(bench, scenario, part)
        }
        (Workload::ReleaseOrder, Provider::Shm | Provider::Roce) => {
            bail!("the order of releases is measured in virtual time")
        }
    }
}

/// All rows; for the repository in one form only.
fn write_rows(done: &[Done], environment: &Environment, folder: &Path, once: bool) -> Result<()> {
    let rows = || {
        let rows = done.iter().flat_map(|one| &one.rows);
        rows.map(|row| Written::new(row, environment))
    };
    let lines: Result<Vec<String>, _> = rows().map(|row| serde_json::to_string(&row)).collect();
    let mut json = lines?.join("\n");
    json.push('\n');
    if !once {
        fs::write(folder.join("rows.json"), json).context("writing rows.json")?;
    }
    fs::write(folder.join("rows.csv"), csv::table(rows())?).context("writing rows.csv")
}

fn print(done: &[Done], json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for one in done {
        for judged in &one.verdicts {
            if json {
                let line = serde_json::to_string(&line(&judged.experiment, judged))?;
                writeln!(out, "{line}").context("standard output")?;
            }
        }
    }
    if !json {
        out.write_all(page::table(done).as_bytes())
            .context("standard output")?;
    }
    Ok(())
}

fn line<'a>(experiment: &'a str, judged: &'a Judged) -> Line<'a> {
    let (measured, interval, held, disturbed, why_not) = match &judged.verdict {
        Verdict::Judged {
            measured,
            interval,
            held,
            disturbed,
        } => (Some(*measured), *interval, *held, *disturbed, None),
        Verdict::Missing(reason) => (None, None, None, false, Some(reason.as_str())),
    };
    Line {
        experiment,
        provider: judged.provider,
        claim: &judged.claim.claim,
        paper: judged.claim.paper.as_deref(),
        must: judged.claim.bounds(),
        measured,
        ci_low: interval.map(|(low, _)| low),
        ci_high: interval.map(|(_, high)| high),
        held,
        disturbed,
        why_not: why_not.or(if held == Some(false) {
            judged.claim.note.as_deref()
        } else {
            None
        }),
    }
}
