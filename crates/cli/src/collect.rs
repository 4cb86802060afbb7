//! `catchment collect`: a collector until it is asked to end.
use crate::args::{CollectArgs, SinkKind};
use crate::cert::{reread_on_hangup, tls_failure};
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::events::{
    CollectEvent, CollectProgress, CollectSummary, CollectedDevice, Listening, Received,
};
use crate::output::progress::Progress;
use crate::output::{self, say, table, units};
use crate::{hint, stop};
use anyhow::{Context as _, anyhow};
use catchment::collector::{Collector, CollectorBuilder, CollectorError, END_LIMIT, forget_owner};
use catchment::observe::{
    CollectorMetrics, CollectorSnapshot, Dashboard, DashboardConfig, DeviceCounters,
    DeviceSnapshot, LatencySummary, PageTls, Sampler, cpu,
};
use catchment::session::names::DeviceName;
use catchment::sink::{DirectorySink, DiskLimit};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// The file in `--out` that says whose device names are.
const OWNERS: &str = ".owners";
const TICK: Duration = Duration::from_secs(1);
const SESSIONS_LISTED: usize = 20;
/// Devices that the table lists; of more, only those with losses.
const DEVICES_LISTED: usize = 40;

pub(crate) fn run(args: &CollectArgs) -> Result<(), Failure> {
    if let Some(device) = &args.forget {
        return forget(args, device);
    }
    let stop = stop::watch(args.until_stdin_closes, || {})?;
    let collector = builder(args)?.start().map_err(start_failure)?;
    reread_on_hangup(&stop, collector.tls());
    hint::warn_insecure(collector.local_addr(), args.security.insecure);
    let dashboard = dashboard(args, &collector)?;
    announce(args, &collector, dashboard.as_ref())?;
    let progress = if args.until_stdin_closes { Progress::none() } else { Progress::text() };
    let mut sampler = Sampler::new(collector.metrics().clone());
    let mut sessions = Sessions::default();
    while !stop.wait(TICK) {
        sessions.report(args, collector.metrics())?;
        if !args.json && !progress.is_shown() {
            continue;
        }
        let snapshot = sampler.sample();
        if args.json {
            output::print_json(&CollectEvent::Progress(progress_of(&snapshot)))?;
        }
        progress.set_text(progress_text(&snapshot));
    }
    drop(progress);
    sessions.report(args, collector.metrics())?;
    say_what_waits(&collector);
    let last = collector.stop_within(END_LIMIT);
    drop(dashboard);
    print_summary(args, &last)?;
    check_fates(&last)
}

/// Says for what the end waits, if it does.
fn say_what_waits(collector: &Collector) {
    let refusing = collector.refusing();
    let Some((device, reason)) = refusing.first() else { return };
    let devices = units::counted(refusing.len() as u64, "device");
    say!(
        "waiting up to {} s for frames of {devices} that cannot be stored ({device}: {reason}); Ctrl-C gives them up",
        END_LIMIT.as_secs()
    );
}

/// Frees a device name.
fn forget(args: &CollectArgs, device: &DeviceName) -> Result<(), Failure> {
    let out = args.out.as_deref().unwrap_or_else(|| Path::new("."));
    let owner = forget_owner(&out.join(OWNERS), device.as_str()).or_fail(Code::Local)?;
    match owner {
        Some(owner) => say!("device {device} does not belong to certificate \"{owner}\" any more"),
        None => say!("device {device} belongs to no certificate"),
    }
    Ok(())
}

/// Fails unless every frame is delivered, or dropped by its source on purpose.
fn check_fates(last: &CollectorSnapshot) -> Result<(), Failure> {
    for device in &last.devices {
        let sum = device.counters.ledger().check(&device.name, "collector");
        sum.or_fail(Code::Failed)?;
    }
    let mut missing = Vec::new();
    let totals = &last.totals;
    let is = |frames: u64| if frames == 1 { "is" } else { "are" };
    if totals.frames_lost > 0 {
        let causes = [
            (totals.lost_missing, "never came"),
            (totals.lost_damaged, "came damaged and could not be had again"),
            (totals.lost_sink, "made the sink panic"),
        ];
        let causes = causes.iter().filter(|(frames, _)| *frames > 0);
        let causes: Vec<_> =
            causes.map(|(frames, what)| format!("{} {what}", units::count(*frames))).collect();
        let lost = units::counted(totals.frames_lost, "frame");
        missing.push(format!("{lost} {} lost: {}", is(totals.frames_lost), causes.join(", ")));
    }
    let given_up = last.frames_given_up;
    if given_up > 0 {
        missing.push(format!(
            "{} {} given up: they could not be stored, or did not come when they were asked for again; sources \
             that live send them again",
            units::counted(given_up, "frame"),
            is(given_up)
        ));
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Code::Failed, anyhow!("{}", missing.join("; "))))
}

#[derive(Default)]
struct Sessions {
    reported: u64,
}

impl Sessions {
    fn report(&mut self, args: &CollectArgs, metrics: &CollectorMetrics) -> Result<(), Failure> {
        let (new, opened) = metrics.sessions_since(self.reported);
        let more = (opened - self.reported).saturating_sub(SESSIONS_LISTED as u64);
        self.reported = opened;
        if args.json {
            let mut events = new.into_iter().map(CollectEvent::Session);
            return events.try_for_each(|event| output::print_json(&event));
        }
        for session in new.iter().rev().take(SESSIONS_LISTED).rev() {
            let (peer, devices) = (&session.peer, units::counted(session.devices, "device"));
            say!("{peer} sends {devices}: {session}; {}", session.reason);
        }
        if more > 0 {
            say!("{} more sources have connected", units::count(more));
        }
        Ok(())
    }
}

fn start_failure(error: CollectorError) -> Failure {
    if let CollectorError::Tls(error) = error {
        return tls_failure(error);
    }
    Failure::new(Code::Local, error)
}

fn builder(args: &CollectArgs) -> Result<CollectorBuilder, Failure> {
    let listen = args.listen.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut builder = Collector::builder(listen)
        .insecure(args.security.insecure)
        .lease(args.lease)
        .ring_bytes_max(args.ring_bytes)
        .look_every(Duration::from_micros(args.look_every_us))
        .devices_max(args.devices_max)
        .allow(args.allow.iter().cloned())
        .providers(args.providers.secured(&args.security)?);
    if let Some(files) = args.security.files() {
        builder = builder.tls(files);
    }
    let Some(out) = out(args)? else { return Ok(builder) };
    std::fs::create_dir_all(out)
        .with_context(|| format!("cannot make the directory {}", out.display()))
        .map_err(|e| {
            Failure::new(Code::Local, e).hint("give a directory you may write to with --out")
        })?;
    let limit = args.keep_frames.map_or(DiskLimit::KeepAll, DiskLimit::KeepNewest);
    Ok(builder.sink(DirectorySink::new(out).limit(limit)).owners_file(out.join(OWNERS)))
}

/// The directory for frames, unless they go nowhere.
fn out(args: &CollectArgs) -> Result<Option<&Path>, Failure> {
    SinkKind::check(args.sink, args.out.as_deref(), args.keep_frames)?;
    match (args.sink.unwrap_or(SinkKind::Dir), &args.out) {
        (SinkKind::Null, _) => Ok(None),
        (SinkKind::Dir, Some(out)) => Ok(Some(out)),
        (SinkKind::Dir, None) => {
            let error = anyhow!("no --out: where should the frames go?");
            Err(Failure::new(Code::Usage, error)
                .hint("give a directory with --out DIR, or --sink null to store nothing"))
        }
    }
}

/// The live page. One that the user did not ask for may fail.
fn dashboard(args: &CollectArgs, collector: &Collector) -> Result<Option<Dashboard>, Failure> {
    if args.no_dashboard {
        return Ok(None);
    }
    let config = DashboardConfig {
        listen: args.dashboard.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        tls: collector.tls().cloned().map(|tls| PageTls::new(move || tls.current())),
        insecure_remote: args.security.insecure,
        host_names: args.dashboard_name.clone(),
    };
    match Dashboard::start(config, collector.metrics().clone()) {
        Ok(dashboard) => Ok(Some(dashboard)),
        Err(error) if args.dashboard.is_some() => Err(Failure::new(Code::Local, error)),
        Err(error) => {
            say!("warning: no live page: {error}");
            Ok(None)
        }
    }
}

fn announce(
    args: &CollectArgs,
    collector: &Collector,
    dashboard: Option<&Dashboard>,
) -> Result<(), Failure> {
    let out = out(args)?.map(|path| path.display().to_string());
    let address = collector.local_addr().to_string();
    let dashboard = dashboard.map(|page| hint::page(page, &args.security));
    if args.json {
        return output::print_json(&CollectEvent::Listening(Listening {
            address,
            dashboard,
            out,
            pid: std::process::id(),
        }));
    }
    say!(
        "collecting at {address}; sources: {}",
        hint::send(collector.local_addr(), &args.security)
    );
    match out {
        Some(out) => say!("frames go to {out}/DEVICE/"),
        None => say!("frames are verified and not stored"),
    }
    if let Some(url) = dashboard {
        say!("live page: {url}");
    }
    say!("Ctrl-C ends it");
    Ok(())
}

fn received(
    counters: &DeviceCounters,
    latency_us_p50: Option<f64>,
    latency_us_p99: Option<f64>,
) -> Received {
    Received {
        frames_received: counters.frames_received,
        frames_verified: counters.frames_verified,
        frames_numbered: counters.frames_numbered,
        frames_lost: counters.frames_lost,
        frames_lost_missing: counters.lost_missing,
        frames_lost_damaged: counters.lost_damaged,
        frames_lost_sink: counters.lost_sink,
        frames_skipped: counters.frames_skipped,
        frames_dropped_oldest: counters.source_dropped_oldest,
        frames_dropped_newest: counters.source_dropped_newest,
        frames_dropped_reconnect: counters.source_dropped_reconnect,
        bytes_received: counters.bytes_received,
        latency_us_p50: latency_us_p50.map(units::tenths),
        latency_us_p99: latency_us_p99.map(units::tenths),
    }
}

fn received_so_far(counters: &DeviceCounters, latency: &LatencySummary) -> Received {
    received(counters, latency.latency_us_p50, latency.latency_us_p99)
}

fn progress_of(snapshot: &CollectorSnapshot) -> CollectProgress {
    let recent = snapshot.recent.as_ref();
    let (p50, p99) =
        recent.map_or((None, None), |recent| (recent.latency_us_p50, recent.latency_us_p99));
    CollectProgress {
        uptime_s: units::tenths(snapshot.uptime_s),
        sessions_open: snapshot.sessions_open,
        devices: snapshot.devices.iter().filter(|d| d.connected).count(),
        received: received(&snapshot.totals, p50, p99),
        frames_per_s: recent.map(|r| units::tenths(r.frames_per_s)),
        bytes_per_s: recent.map(|r| r.bytes_per_s.round()),
        cpu_percent: snapshot.cpu.map(|cpu| units::tenths(cpu.cpu_percent)),
    }
}

fn progress_text(snapshot: &CollectorSnapshot) -> String {
    let now = progress_of(snapshot);
    format!(
        "{} devices  {:.0} frames/s  {}/s  p50 {}  lost {}  CPU {:.0} %",
        now.devices,
        now.frames_per_s.unwrap_or(0.0),
        units::bytes(now.bytes_per_s.unwrap_or(0.0)),
        units::latency(now.received.latency_us_p50),
        units::count(now.received.frames_lost),
        now.cpu_percent.unwrap_or(0.0),
    )
}

fn print_summary(args: &CollectArgs, last: &CollectorSnapshot) -> Result<(), Failure> {
    let out = out(args)?.map(|path| path.display().to_string());
    let summary = summary(last, out);
    if args.json {
        return output::print_json(&CollectEvent::Summary(summary));
    }
    output::print(&summary_text(&summary))
}

fn summary(last: &CollectorSnapshot, out: Option<String>) -> CollectSummary {
    let totals = &last.totals;
    let path = last.paths.iter().max_by_key(|path| path.sessions_total);
    CollectSummary {
        uptime_s: units::tenths(last.uptime_s),
        received: received_so_far(totals, &last.latency),
        frames_duplicate: totals.frames_duplicate,
        checksum_errors: totals.checksum_errors,
        sink_errors: totals.sink_errors,
        latency_us_p999: last.latency.latency_us_p999.map(units::tenths),
        latency_us_max: last.latency.latency_us_max.map(units::tenths),
        cpu_s: cpu::usage_of_self().map_or(0.0, |usage| usage.cpu_s),
        queue_pairs: last.sessions_total,
        provider: path.map(|path| path.provider.clone()),
        source_provider: path.map(|path| path.source_provider.clone()),
        provider_reason: path.map(|path| path.reason.clone()),
        sessions_refused: last.sessions_refused.values().sum(),
        frames_given_up: last.frames_given_up,
        out,
        devices: last.devices.iter().map(device).collect(),
    }
}

fn device(device: &DeviceSnapshot) -> CollectedDevice {
    CollectedDevice {
        name: device.name.clone(),
        format: device.format.clone(),
        received: received_so_far(&device.counters, &device.latency),
    }
}

fn summary_text(summary: &CollectSummary) -> String {
    if summary.devices.is_empty() {
        return "no source came\n".to_owned();
    }
    let heading =
        ["device", "format", "frames", "verified", "lost", "dropped", "bytes", "p50", "p99"];
    let mut table = table::Table::new(&heading, 2);
    let all = summary.devices.len() <= DEVICES_LISTED;
    for device in &summary.devices {
        if all || device.received.frames_lost > 0 {
            table.row(row(device.name.clone(), device.format.clone(), &device.received));
        }
    }
    let total = format!("{} devices", summary.devices.len());
    table.row(row(total, String::new(), &summary.received));
    table.text()
}

fn row(name: String, format: String, received: &Received) -> Vec<String> {
    vec![
        name,
        format,
        units::count(received.frames_received),
        units::count(received.frames_verified),
        units::count(received.frames_lost),
        units::count(received.dropped()),
        units::bytes(received.bytes_received as f64),
        units::latency(received.latency_us_p50),
        units::latency(received.latency_us_p99),
    ]
}
