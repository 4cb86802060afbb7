//! `control`: what the transmission controller's service takes, over real sockets.
//!
//! The service is a process of its own; sources are the ends that ship, on one thread and one socket of this
//! process, and every datagram is authenticated both ways. A grant is a transfer that asked, waited, and may send. In
//! rows `rate` it is taken back then, so that a grant takes four messages; in `paper-rate` a frame is served, chunk by
//! chunk, at its rate. Frames are counted, not sent.
//!
//! | | |
//! |---|---|
//! | `service` | the process of the controller |
//! | `bare` | what sockets take without one |
//! | `sources` | those who ask |
//! | `failover` | controllers that end, sources and a collector that go on |
//! | `killed` | a source that is killed in its window, and one that waits for what it had |
//! | `paced` | how far the rate of a transfer is from the one that it was to have |
//! | `shared` | sources and a collector beside a controller, whose bottleneck is narrow |
//! | `row` | rows and goals |
mod bare;
mod failover;
mod killed;
mod load;
mod paced;
mod place;
mod row;
mod service;
mod shared;
mod sources;
mod timeline;

use crate::bound::{Goal, Goals};
use crate::host::Run;
use crate::output;
use crate::stats::{Spread, decimals, percentile};
use anyhow::{Result, ensure};
pub(crate) use bare::role as bare_role;
use failover::Case;
use row::{HEAD, Row};
use service::Controller;
pub(crate) use service::role;
use sources::{Offered, Plan, Seen, Sources};
use std::time::{Duration, Instant};

/// 10^5 devices on 1,000 sources.
const SOURCES: usize = 1000;
const DEVICES_EACH: u32 = 100;
/// No link is narrow here: all devices may send at once.
const WIDE_BPS: u64 = 1_000_000_000_000;
const DEVICE_BPS: u64 = 10_000_000;
/// 105 ms of a device: its window lasts long enough to be used on a busy machine.
const BYTES: u64 = 128 << 10;
/// What a device sends that has a rate: 1 Mbit/s.
const LEASE_BYTES: u64 = 5000;
const LEASE_PERIOD_NS: u64 = 40_000_000;
/// Transfers that wait or run at the same time.
const AT_ONCE: usize = 64;
/// The paper's: 12 senders of 10 Gbit/s, frames of 24,883,200 bytes over 20 Gbit/s at a load of 0.66.
const PAPER_SOURCES: usize = 12;
const PAPER_BPS: u64 = 20_000_000_000;
const PAPER_DEVICE_BPS: u64 = 10_000_000_000;
const PAPER_BYTES: u64 = 24_883_200;
const PAPER_GRANTS: f64 = 66.0;
/// Sources with a device each: before these are counted, and those that are.
const FIRST_SOURCES: usize = 200;
const LATER: &str = "standby-kubernetes";
const TIMELINE: &str = "timeline";
const WARM_UP: Duration = Duration::from_secs(1);

/// Measure what the transmission controller's service takes
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Seconds in place of minutes
    #[arg(long)]
    quick: bool,
    /// Seconds of each measurement, in place of 30, or 5 with --quick
    #[arg(long)]
    seconds: Option<f64>,
    /// One kind of rows only: memory, rate, leases, paper-rate, pacing or failover; or timeline, which is no part of all
    #[arg(long = "what")]
    only: Option<String>,
    /// One case of failover only: restart, standby-etcd, standby-planned or source
    #[arg(long = "case")]
    only_case: Option<String>,
    /// Rows of pacing only whose names have this text, as "3 sources, shm, 64 KiB, 400" or "granted, roce"
    #[arg(long = "only")]
    only_named: Option<String>,
    /// Sources with 100 devices each
    #[arg(long, default_value_t = SOURCES)]
    sources: usize,
}

impl Options {
    fn wants(&self, what: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == what)
    }

    fn time(&self) -> Duration {
        let usual = if self.quick { 5.0 } else { 30.0 };
        Duration::from_secs_f64(self.seconds.unwrap_or(usual).clamp(0.1, 3600.0))
    }

    const fn rounds(&self) -> usize {
        if self.quick { 3 } else { 20 }
    }

    const fn idle_sources(&self) -> usize {
        if self.quick { 2000 } else { 10_000 }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let known = ["memory", "rate", "leases", "paper-rate", "pacing", "failover", TIMELINE];
    ensure!(
        options.only.as_deref().is_none_or(|only| known.contains(&only)),
        "--what is one of {}",
        known.join(", ")
    );
    let cases: Vec<&str> =
        Case::ALL.map(Case::name).into_iter().chain([LATER, killed::CASE]).collect();
    ensure!(
        options.only_case.as_deref().is_none_or(|name| cases.contains(&name)),
        "--case is one of {}",
        cases.join(", ")
    );
    ensure!((1..=10_000).contains(&options.sources), "1 to 10,000 sources");
    let mode = if options.quick { "quick" } else { "full" };
    output::either(options.json, &Run::detect(mode), Run::line)?;
    if !options.json {
        output::line(HEAD)?;
    }
    let mut rows = Vec::new();
    let mut show = |row: Row| -> Result<()> {
        output::either(options.json, &row, Row::line)?;
        rows.push(row);
        Ok(())
    };
    if options.wants("memory") {
        show(idle_sources(options)?)?;
    }
    if ["memory", "rate", "leases"].iter().any(|what| options.wants(what)) {
        many_devices(options, &mut show)?;
    }
    if options.wants("paper-rate") {
        let bare = bare::measure(bare::Offered::Grants(PAPER_GRANTS), options.time())?;
        show(Row { offered: Some("paper-rate"), ..bare })?;
        show(paper_rate(options)?)?;
    }
    if options.wants("pacing") {
        let text = options.only_named.as_deref().unwrap_or_default();
        for case in paced::Case::all().filter(|case| case.is_named(text)) {
            show(case.measure(options.time())?)?;
        }
        for case in shared::Case::all().filter(|case| case.is_named(text)) {
            show(case.measure(options.time())?)?;
        }
    }
    if options.wants("failover") {
        let wanted = |name| options.only_case.as_deref().is_none_or(|only| only == name);
        for case in Case::ALL.into_iter().filter(|case| wanted(case.name())) {
            show(failover::measure(case, options.rounds())?)?;
        }
        if wanted(LATER) {
            // Its store comes with the platform.
            show(Row { what: "failover", case: Some(LATER), ..Row::default() })?;
        }
        if wanted(killed::CASE) {
            show(killed::measure(options.rounds())?)?;
        }
    }
    if options.only.as_deref() == Some(TIMELINE) {
        for point in timeline::measure()? {
            output::either(options.json, &point, timeline::Point::line)?;
        }
        return Ok(());
    }
    let goals = goals(&rows)
        .into_iter()
        .chain(paced::goals(&rows))
        .chain(row::shared_goals(&rows))
        .collect::<Vec<_>>();
    for goal in &goals {
        output::either(options.json, goal, Goal::line)?;
    }
    output::either(options.json, &Goals::of(&goals), Goals::line)
}

/// Measures what one more source takes that has a device and nothing to send.
fn idle_sources(options: &Options) -> Result<Row> {
    let controller = Controller::start(WIDE_BPS)?;
    let mut sources = Sources::new(&controller.address)?;
    let mut grow = |to: usize| -> Result<u64> {
        while sources.count() < to {
            sources.add(1, DEVICE_BPS)?;
        }
        sources.idle(WARM_UP);
        controller.rss_bytes()
    };
    let before = grow(FIRST_SOURCES)?;
    let after = grow(FIRST_SOURCES + options.idle_sources())?;
    let each = after.saturating_sub(before) as f64 / options.idle_sources() as f64;
    Ok(Row {
        what: "memory",
        devices: Some(sources.devices()),
        sources: Some(sources.count()),
        rss_bytes: Some(after),
        bytes_per_idle_source: Some(each.round()),
        ..Row::default()
    })
}

fn many_devices(options: &Options, show: &mut impl FnMut(Row) -> Result<()>) -> Result<()> {
    let controller = Controller::start(WIDE_BPS)?;
    let mut sources = Sources::new(&controller.address)?;
    for _ in 0..options.sources {
        sources.add(DEVICES_EACH, DEVICE_BPS)?;
    }
    sources.idle(WARM_UP);
    if options.wants("memory") {
        show(Row {
            what: "memory",
            devices: Some(sources.devices()),
            sources: Some(sources.count()),
            rss_bytes: Some(controller.rss_bytes()?),
            ..Row::default()
        })?;
    }
    if options.wants("rate") {
        rates(options, &controller, &mut sources, show)?;
    }
    if options.wants("leases") {
        show(leases(options, &controller, &mut sources)?)?;
    }
    Ok(())
}

/// Measures what it takes that all devices keep a rate: a source renews those of all its devices together.
fn leases(options: &Options, controller: &Controller, sources: &mut Sources) -> Result<Row> {
    sources.want_rates(LEASE_BYTES, LEASE_PERIOD_NS)?;
    sources.idle(WARM_UP);
    let (start, cpu_before, sent) = (Instant::now(), controller.cpu_ns()?, sources.sent());
    sources.idle(options.time());
    let (wall, cpu_ns) = (start.elapsed(), controller.cpu_ns()? - cpu_before);
    let (held, all) = (sources.with_rates(), sources.devices());
    ensure!(held == all, "{held} of {all} devices still have their rates");
    let renewals = (sources.sent() - sent) as f64 / wall.as_secs_f64();
    Ok(Row {
        what: "leases",
        devices: Some(all),
        sources: Some(sources.count()),
        renewals_per_s: Some(decimals(renewals, 1)),
        service_cores: Some(decimals(cpu_ns as f64 / wall.as_nanos() as f64, 3)),
        rss_bytes: Some(controller.rss_bytes()?),
        ..Row::default()
    })
}

fn rates(
    options: &Options,
    controller: &Controller,
    sources: &mut Sources,
    show: &mut impl FnMut(Row) -> Result<()>,
) -> Result<()> {
    let time = options.time();
    let bare = bare::measure(bare::Offered::Always(AT_ONCE), time)?;
    show(Row { offered: Some("most"), ..bare })?;
    for records in [1, 8] {
        let plan =
            Plan { records, bytes: BYTES, only_begins: true, offered: Offered::Always(AT_ONCE) };
        let row = measure("rate", controller, sources, plan, time)?;
        let half = row.grants_per_s.unwrap_or(0.0) / 2.0;
        show(Row { offered: Some("most"), ..row })?;
        if records == 1 {
            let bare = bare::measure(bare::Offered::Grants(half), time)?;
            show(Row { offered: Some("half"), ..bare })?;
        }
        let plan = Plan { offered: Offered::Rate(half), ..plan };
        let row = measure("rate", controller, sources, plan, time)?;
        show(Row { offered: Some("half"), ..row })?;
    }
    Ok(())
}

fn paper_rate(options: &Options) -> Result<Row> {
    let controller = Controller::start(PAPER_BPS)?;
    let mut sources = Sources::new(&controller.address)?;
    for _ in 0..PAPER_SOURCES {
        sources.add(1, PAPER_DEVICE_BPS)?;
    }
    let offered = Offered::Rate(PAPER_GRANTS);
    let plan = Plan { records: 1, bytes: PAPER_BYTES, only_begins: false, offered };
    measure("paper-rate", &controller, &mut sources, plan, options.time())
}

fn measure(
    what: &'static str,
    controller: &Controller,
    sources: &mut Sources,
    plan: Plan,
    time: Duration,
) -> Result<Row> {
    sources.run(plan, WARM_UP);
    let (start, cpu_before) = (Instant::now(), controller.cpu_ns()?);
    let seen = sources.run(plan, time);
    let (wall, cpu_ns) = (start.elapsed(), controller.cpu_ns()? - cpu_before);
    Sources::check(&seen)?;
    let Seen { grants, answers_us, begins_us } = seen;
    // What has begun ends before the next measurement.
    sources.idle(WARM_UP);
    let spread = Spread::of(&answers_us);
    Ok(Row {
        what,
        records_per_datagram: Some(plan.records),
        devices: Some(sources.devices()),
        sources: Some(sources.count()),
        grants_per_s: Some(decimals(grants as f64 / wall.as_secs_f64(), 1)),
        cpu_us_per_grant: Some(decimals(cpu_ns as f64 / 1e3 / grants as f64, 2)),
        service_cores: Some(decimals(cpu_ns as f64 / wall.as_nanos() as f64, 3)),
        answer_us_p50: Some(decimals(spread.p50, 1)),
        answer_us_p99: Some(decimals(percentile(&answers_us, 0.99), 1)),
        begins_us_p50: Some(decimals(Spread::of(&begins_us).p50, 1)),
        transfers: Some(grants),
        rss_bytes: Some(controller.rss_bytes()?),
        ..Row::default()
    })
}

fn goals(rows: &[Row]) -> Vec<Goal> {
    let rate = |records, offered| {
        rows.iter().find(move |row| {
            let is_so = row.records_per_datagram == Some(records) && row.offered == Some(offered);
            row.what == "rate" && is_so
        })
    };
    let full = |row: &&Row| row.devices == Some(SOURCES as u64 * u64::from(DEVICES_EACH));
    let (one, eight) = (rate(1, "most").filter(full), rate(8, "most").filter(full));
    let half = rate(1, "half").filter(full);
    let paper = rows.iter().find(|row| row.what == "paper-rate");
    let memory = || rows.iter().filter(|row| row.what == "memory");
    let rss = memory().find(full).and_then(|row| row.rss_bytes);
    let idle = memory().find_map(|row| row.bytes_per_idle_source);
    let cpu = |row: Option<&Row>| row.and_then(|row| row.cpu_us_per_grant);
    let grants = |row: Option<&Row>| row.and_then(|row| row.grants_per_s);
    let failovers = || rows.iter().filter(|row| row.what == "failover");
    let failover = |case: Case| failovers().find(move |row| row.case == Some(case.name()));
    let first = |case| failover(case).and_then(|row| row.first_grant_ms);
    let full_capacity = |case| failover(case).and_then(|row| row.full_capacity_ms);
    let lost = failovers().filter_map(|row| row.frames_lost).max().map(|frames| frames as f64);
    let dropped = failovers().filter_map(|row| row.packets_dropped).max();
    let dropped = match dropped {
        Some(packets) => {
            Goal::most("failover: packets_dropped in every gap", Some(packets as f64), 0.0)
        }
        None => Goal::unmeasured("failover: packets_dropped in every gap", "there is no router"),
    };
    let urgent = failovers().filter_map(|row| row.urgent_on_time).reduce(f64::min);
    let killed =
        failovers().find(|row| row.case == Some(killed::CASE)).map_or((None, None), |row| {
            (row.full_capacity_ms, row.granted_over_bps.map(|over_bps| over_bps as f64))
        });
    let leases = rows.iter().find(|row| row.what == "leases").filter(full);
    let leases = leases.and_then(|row| row.service_cores);
    vec![
        Goal::least("rate, a record a datagram: grants_per_s", grants(one), 200_000.0)
            .because(|| row::slower(rows, one)),
        Goal::most("rate, a record a datagram: cpu_us_per_grant", cpu(one), 8.0)
            .because(|| row::bare_takes(rows, "most")),
        Goal::least("rate, 8 records a datagram: grants_per_s", grants(eight), 500_000.0)
            .because(|| row::slower(rows, eight)),
        Goal::most("rate, 8 records a datagram: cpu_us_per_grant", cpu(eight), 8.0)
            .because(|| row::bare_takes(rows, "most")),
        Goal::most("rate, half: answer_us_p50", half.and_then(|row| row.answer_us_p50), 60.0)
            .because(|| row::bare_answers(rows, "half")),
        Goal::most("rate, half: answer_us_p99", half.and_then(|row| row.answer_us_p99), 1000.0)
            .because(|| row::bare_answers(rows, "half")),
        Goal::most("leases of 10^5 devices: service_cores", leases, 0.25),
        Goal::most("paper-rate: cpu_us_per_grant", cpu(paper), 50.0)
            .because(|| row::bare_takes(rows, "paper-rate")),
        Goal::most("memory: rss_bytes", rss.map(|rss| rss as f64), f64::from(128 << 20)),
        Goal::most("memory: bytes_per_idle_source", idle, 1024.0),
        Goal::most("failover, source: full_capacity_ms, two leases", killed.0, 400.0),
        Goal::most("failover, source: granted_over_bps", killed.1, 0.0),
        Goal::most("failover, restart: first_grant_ms", first(Case::Restart), 300.0),
        Goal::most(
            "failover, restart: full_capacity_ms, two leases more",
            full_capacity(Case::Restart),
            700.0,
        ),
        Goal::most("failover, standby-etcd: first_grant_ms", first(Case::Standby), 3000.0),
        Goal::most("failover, standby-etcd-tuned: first_grant_ms", first(Case::Tuned), 2000.0),
        Goal::most("failover, standby-planned: first_grant_ms", first(Case::Planned), 50.0),
        Goal::most("failover: frames_lost", lost, 0.0),
        dropped,
        Goal::least("failover: urgent_on_time in every gap", urgent, 0.95),
    ]
}
