//! `papers`: the experiments of the papers, each a scenario with what must hold, the rows that were
//! measured, pictures of them, and a page that says what held and what did not.
mod bench;
mod cameras;
mod claim;
mod derive;
mod duplex;
mod elsewhere;
mod ends;
mod grants;
mod index;
mod judge;
mod list;
mod lockstep;
mod nic;
mod page;
mod plan;
mod plot;
mod polled;
mod reason;
mod record;
mod register;
mod release_order;
mod results;
mod rules;
mod scenario;
mod simulated;
mod singles;
mod solver;
mod stream;
mod table;
mod virtual_stream;

pub(crate) use lockstep::requests_per_block;
pub(crate) use plot::{Plot, Series};

use crate::host;
use crate::host::Environment;
use crate::link::device::{KERNEL_DEVICES_HINT, kernel_devices};
use crate::mechanism::Provider;
use crate::output::RESULTS;
use anyhow::{Context, Result, bail};
use bench::{Bench, Experiment};
use record::Row;
use register::Other;
use results::{Done, Judged, Kept, Run};
use scenario::{Measure, Scenario, Workload};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

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
    /// Write the pages of this repository with their pictures, in docs/results; a quick run leaves those of full runs
    #[arg(long, conflicts_with_all = ["out", "provider", "scenario"])]
    write: bool,
    /// Say how long it will take, and do nothing
    #[arg(long)]
    plan: bool,
    /// List every claim with its id, when it was registered and what it was before, and do nothing
    #[arg(long)]
    list: bool,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    Papers,
    Peers,
}

impl Page {
    fn name(self) -> &'static str {
        match self {
            Self::Papers => "papers",
            Self::Peers => "peers",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Papers => "The papers' experiments",
            Self::Peers => "Beside other projects",
        }
    }

    fn scenarios(self) -> Result<Vec<Scenario>> {
        match self {
            Self::Papers => scenario::ours(),
            Self::Peers => scenario::peers(),
        }
    }

    /// Returns the claims that none of its scenarios measures.
    fn others(self) -> Result<Vec<Other>> {
        match self {
            Self::Papers => register::others(),
            Self::Peers => Ok(Vec::new()),
        }
    }

    /// Returns where the page of all its experiments is.
    pub(crate) fn path(self, out: &Path) -> PathBuf {
        out.join(format!("{}.md", self.name()))
    }

    /// Returns the page of all its experiments, from what the folder has of them.
    pub(crate) fn text(self, out: &Path) -> Result<String> {
        index::text(self, out, &in_order(self.scenarios()?))
    }
}

fn in_order(mut scenarios: Vec<Scenario>) -> Vec<Scenario> {
    scenarios.sort_by_key(|one| order(&one.id));
    scenarios
}

pub(crate) fn run(options: &Options, which: Page) -> Result<()> {
    let mut bench = Bench::new(options)?;
    let all = in_order(match options.scenario.as_slice() {
        [] => which.scenarios()?,
        files => files.iter().map(|path| scenario::load(path)).collect::<Result<_>>()?,
    });
    let mut scenarios = wanted(&bench, &all)?;
    if options.list {
        return list::list(&scenarios, options.json);
    }
    scenarios.retain(has_devices);
    let out = if options.write { Path::new(RESULTS) } else { &options.out };
    let folder = out.join(which.name());
    if options.write && !options.full {
        scenarios = without_full(scenarios, &folder)?;
    }
    plan::say(&bench, &scenarios)?;
    if options.plan {
        return Ok(());
    }
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let others = others(&bench, which)?;
    let environment = Environment::detect();
    let mut judged = Vec::new();
    for scenario in scenarios {
        let mut done = experiment(&mut bench, scenario, which, &environment, &folder)?;
        let before = Kept::read(&folder, &done.scenario.id)?;
        done.kept = done.kept.replace(before);
        // Hours may follow: what is there is there, whatever becomes of the rest.
        results::write(&folder, &done, &environment, &page::page(which, &done)?)?;
        index::write(which, out, &all)?;
        judged.push((order(&done.scenario.id), done.kept.claims));
    }
    bench.progress("");
    judged.sort_by(|a, b| a.0.cmp(&b.0));
    let judged: Vec<Judged> = judged.into_iter().flat_map(|(_, claims)| claims).collect();
    index::print(&judged, &others, options.json)
}

/// Says which one is left out since this machine has none of the devices that all of it needs.
fn has_devices(scenario: &Scenario) -> bool {
    let mut providers = scenario.measure.iter().flat_map(|part| &part.providers);
    let needs = !scenario.measure.is_empty() && providers.all(|one| *one == Provider::Rxe);
    if needs && kernel_devices().is_none() {
        eprintln!("{}: left out, {KERNEL_DEVICES_HINT}", scenario.id);
        return false;
    }
    true
}

/// Returns those that were asked for; a table comes last, as it is of what the others measured.
fn wanted(bench: &Bench, all: &[Scenario]) -> Result<Vec<Scenario>> {
    let mut wanted: Vec<Scenario> =
        all.iter().filter(|scenario| bench.wants(scenario)).cloned().collect();
    if wanted.is_empty() {
        let known: BTreeSet<&str> = all.iter().flat_map(Scenario::experiments).collect();
        let known: Vec<&str> = known.into_iter().collect();
        bail!("--only matches nothing; there are {}", known.join(", "));
    }
    wanted.sort_by_key(|scenario| scenario.workload == Workload::Table);
    Ok(wanted)
}

/// Leaves out what has a page of a full run, which says more than a quick one would.
fn without_full(scenarios: Vec<Scenario>, folder: &Path) -> Result<Vec<Scenario>> {
    let mut left = Vec::new();
    for scenario in scenarios {
        match Kept::read(folder, &scenario.id)? {
            Some(kept) if kept.run.full => {
                let Environment { date, commit, .. } = &kept.run.environment;
                let id = &scenario.id;
                eprintln!("{id}: left out, its page has the full run of {date}, commit {commit}");
            }
            Some(_) | None => left.push(scenario),
        }
    }
    Ok(left)
}

/// Returns the claims that no scenario measures, those that were asked for.
fn others(bench: &Bench, which: Page) -> Result<Vec<Other>> {
    let mut others = which.others()?;
    let has_ours = bench.options.scenario.is_empty();
    others.retain(|other| has_ours && bench.wants_experiment(&other.experiment));
    Ok(others)
}

/// E1.2 comes before E1.10, and what has no number last.
fn order(id: &str) -> Vec<u64> {
    let numbers = id.split(|c: char| !c.is_ascii_digit());
    let numbers: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
    if numbers.is_empty() { vec![u64::MAX] } else { numbers }
}

fn experiment(
    bench: &mut Bench,
    scenario: Scenario,
    which: Page,
    environment: &Environment,
    folder: &Path,
) -> Result<Done> {
    let (steal, began) = (host::Steal::start(), Instant::now());
    let (mut table, mut rows) = (None, Vec::new());
    if scenario.workload == Workload::Table {
        let (text, counted) = table::table(&scenario, folder)?;
        (table, rows) = (Some(text), counted);
    }
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
    let derived: Vec<Row> = scenario.derive.iter().flat_map(|one| one.rows(&rows)).collect();
    rows.extend(derived);
    let claims = judge(bench, &scenario, &rows);
    let mut pictures = Vec::new();
    for plot in &scenario.plots {
        for provider in [Provider::Shm, Provider::Roce, Provider::Rxe, Provider::Sim] {
            pictures.extend(plot.draw(&scenario.id, provider, &rows, folder)?);
        }
    }
    let failures = std::mem::take(&mut bench.failures);
    for failure in &failures {
        eprintln!("\r{}: {failure}", scenario.id);
    }
    let count =
        |wanted: Option<bool>| claims.iter().filter(|one| one.verdict.held == wanted).count();
    let run = Run {
        experiment: scenario.id.clone(),
        command: page::command(which, &bench.options, &scenario.id),
        full: bench.options.full,
        seconds: began.elapsed().as_secs(),
        realtime: bench.realtime,
        steal_fraction: steal.part(),
        failures,
        held: count(Some(true)),
        not_held: count(Some(false)),
        not_measured: claims.iter().filter(|one| one.verdict.is_missing()).count(),
        environment: environment.clone(),
    };
    let kept = Kept { run, claims, replaced: Vec::new() };
    Ok(Done { scenario, rows, table, pictures, kept })
}

fn judge(bench: &Bench, scenario: &Scenario, rows: &[Row]) -> Vec<Judged> {
    let mut claims = Vec::new();
    for claim in &scenario.claims {
        let wanted = claim.providers.iter().filter(|provider| bench.wants_provider(**provider));
        claims.extend(
            wanted.map(|&provider| {
                Judged::new(scenario, claim, provider, claim.judge(provider, rows))
            }),
        );
    }
    claims
}

fn measure(
    bench: &mut Bench,
    scenario: &Scenario,
    part: &Measure,
    provider: Provider,
) -> Result<Vec<Row>> {
    bench.make_network(provider)?;
    let workload = part.workload.unwrap_or(scenario.workload);
    let effort = part.effort(bench.quick());
    let id = &scenario.id;
    let mut one = Experiment { bench, id, workload, part, effort, provider, rows: Vec::new() };
    match (workload, provider) {
        (Workload::Stream, Provider::Sim) => virtual_stream::measure(&mut one),
        (Workload::Stream, Provider::Shm | Provider::Roce | Provider::Rxe) => {
            stream::measure(&mut one);
            Ok(())
        }
        (
            Workload::Sync | Workload::Look | Workload::OneWay | Workload::Hold,
            Provider::Shm | Provider::Roce | Provider::Rxe,
        ) => {
            singles::measure(&mut one);
            Ok(())
        }
        (Workload::Cameras, Provider::Shm | Provider::Roce) => cameras::measure(&mut one),
        (
            Workload::Sync
            | Workload::Look
            | Workload::OneWay
            | Workload::Hold
            | Workload::Cameras
            | Workload::Duplex,
            Provider::Sim,
        ) => bail!("this workload is measured in real time: use shm or roce, not sim"),
        (
            Workload::Cameras
            | Workload::Grants
            | Workload::Connections
            | Workload::Background
            | Workload::Store
            | Workload::Solver,
            Provider::Rxe,
        ) => bail!("only blocks of one source, and duplex, are measured over rxe"),
        (Workload::Grants, Provider::Sim) => grants::measure(&mut one),
        (Workload::Grants, Provider::Shm | Provider::Roce) => {
            bail!("grants are measured in virtual time: use sim, not shm or roce")
        }
        (Workload::Connections | Workload::Background | Workload::Store, Provider::Sim) => {
            nic::measure(&mut one)
        }
        (Workload::Connections, Provider::Shm) => polled::measure(&mut one),
        (Workload::Connections, Provider::Roce)
        | (Workload::Background | Workload::Store, Provider::Shm | Provider::Roce) => {
            bail!("a NIC is modelled in virtual time: use sim, not shm or roce")
        }
        (Workload::Solver, Provider::Sim) => solver::measure(&mut one),
        (Workload::Solver, Provider::Shm | Provider::Roce) => {
            bail!("the solver has no provider: use sim, not shm or roce")
        }
        (Workload::Table, _) => {
            bail!("a table shows what other experiments measured and measures nothing")
        }
        (Workload::Duplex, Provider::Shm | Provider::Roce | Provider::Rxe) => {
            duplex::measure(&mut one);
            Ok(())
        }
        (Workload::Interactions, _) => lockstep::interactions(&mut one),
        (Workload::Queues, _) => lockstep::queues(&mut one),
        (Workload::ReleaseOrder, _) => release_order::measure(&mut one),
    }?;
    Ok(one.rows)
}
