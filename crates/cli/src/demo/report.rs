//! Messages and summary of a demo.
use super::plan::Plan;
use crate::args::DemoArgs;
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::events::{
    CollectSummary, DemoSummary, Listening, Received, SendSummary, SentFates,
};
use crate::output::{self, say, table, units};
use anyhow::anyhow;
use catchment::observe::{Ledger, QueueSizes};

pub(super) fn announce(args: &DemoArgs, plan: &Plan, listening: &Listening) {
    say!(
        "a source process sends {} to a collector process for {} s",
        units::counted(plan.devices as u64, "device"),
        args.seconds.as_secs_f64()
    );
    if let Some(url) = &listening.dashboard {
        say!("live page: {url}");
    }
    if plan.out().is_none() {
        say!("frames are verified and not stored; --out DIR stores them");
    }
}

pub(super) struct Parts<'a> {
    pub(super) plan: &'a Plan,
    pub(super) listening: &'a Listening,
    pub(super) sent: &'a SendSummary,
    pub(super) collected: &'a CollectSummary,
    pub(super) cpu_percent_collector: f64,
    pub(super) cpu_percent_agent: Option<f64>,
    pub(super) queues: Queues,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Queues {
    pub(super) source: Option<QueueSizes>,
    pub(super) collector: Option<QueueSizes>,
}

pub(super) fn summary(parts: &Parts<'_>) -> DemoSummary {
    let (sent, collected) = (parts.sent, parts.collected);
    let received = &collected.received;
    let seconds = sent.seconds.max(1e-3);
    let device_seconds = seconds * parts.plan.devices as f64;
    DemoSummary {
        devices: parts.plan.devices,
        format: formats(sent),
        seconds: sent.seconds,
        rate_asked: parts.plan.rate_asked(),
        rate_achieved: units::tenths(received.frames_received as f64 / device_seconds),
        frames_sent: sent.fates.frames_sent,
        frames_received: received.frames_received,
        frames_verified: received.frames_verified,
        frames_lost: received.frames_lost,
        frames_dropped: sent.fates.dropped(),
        bytes_received: received.bytes_received,
        throughput_bytes_per_s: (received.bytes_received as f64 / seconds).round(),
        latency_us_p50: received.latency_us_p50,
        latency_us_p99: received.latency_us_p99,
        latency_us_p999: collected.latency_us_p999,
        cpu_percent_source: sent.cpu_percent,
        cpu_percent_collector: units::tenths(parts.cpu_percent_collector),
        cpu_percent_agent: parts.cpu_percent_agent.map(units::tenths),
        queue_pairs: collected.queue_pairs,
        provider: collected.provider.clone(),
        source_provider: collected.source_provider.clone(),
        provider_reason: collected.provider_reason.clone(),
        queues_source: parts.queues.source,
        queues_collector: parts.queues.collector,
        dashboard: parts.listening.dashboard.clone(),
        out_dir: parts.plan.out().map(|path| path.display().to_string()),
    }
}

fn formats(sent: &SendSummary) -> String {
    let mut formats: Vec<&str> = sent.devices.iter().map(|d| d.format.as_str()).collect();
    formats.sort_unstable();
    formats.dedup();
    formats.join(", ")
}

pub(super) fn print_summary(
    args: &DemoArgs,
    plan: &Plan,
    summary: &DemoSummary,
) -> Result<(), Failure> {
    if args.json {
        return output::print_json(summary);
    }
    output::print(&text(plan, summary))
}

fn text(plan: &Plan, s: &DemoSummary) -> String {
    let asked = match s.rate_asked {
        Some(rate) => format!("{rate} frames/s asked, {} reached", s.rate_achieved),
        None => format!("{} frames/s reached", s.rate_achieved),
    };
    let path = match (&s.provider, &s.provider_reason) {
        (Some(provider), Some(reason)) => format!("{} over {provider} ({reason})", s.queue_pairs),
        _ => s.queue_pairs.to_string(),
    };
    let latency = format!(
        "p50 {}, p99 {}, p99.9 {}",
        units::latency(s.latency_us_p50),
        units::latency(s.latency_us_p99),
        units::latency(s.latency_us_p999)
    );
    let agent = s.cpu_percent_agent.map(|percent| format!(", agent {percent:.0} %"));
    let cpu = format!(
        "source {:.0} %, collector {:.0} %{} of one core",
        s.cpu_percent_source,
        s.cpu_percent_collector,
        agent.unwrap_or_default()
    );
    let frames = match &s.out_dir {
        Some(out) => format!("{out}/DEVICE/, the newest {} of each device", plan.keep_frames),
        None => "not stored; --out DIR stores them".to_owned(),
    };
    let mut rows = vec![
        ("devices", format!("{} of {}, each {asked}", s.devices, s.format)),
        ("queue pairs", path),
        ("frames sent", format!("{} in {:.1} s", units::count(s.frames_sent), s.seconds)),
        ("frames received", units::count(s.frames_received)),
        ("frames verified", format!("{} by checksum", units::count(s.frames_verified))),
        ("frames lost", units::count(s.frames_lost)),
    ];
    if s.frames_dropped > 0 {
        rows.push(("frames dropped", units::count(s.frames_dropped)));
    }
    rows.extend([
        ("throughput", format!("{}/s", units::bytes(s.throughput_bytes_per_s))),
        ("latency", latency),
        ("CPU", cpu),
        ("frames", frames),
    ]);
    table::pairs(&rows)
}

pub(super) fn check(parts: &Parts<'_>, summary: &DemoSummary) -> Result<(), Failure> {
    for device in &parts.sent.devices {
        let mut there = parts.collected.devices.iter();
        if let Some(there) = there.find(|there| there.name == device.name) {
            let sum = both_ends(&device.fates, &there.received);
            sum.check(&device.name, "two ends").or_fail(Code::Failed)?;
        }
    }
    let sent = summary.frames_sent;
    let all = [summary.frames_received, summary.frames_verified];
    if summary.frames_lost == 0 && all == [sent, sent] {
        return Ok(());
    }
    let error = anyhow!(
        "of {sent} frames sent, {} were received, {} verified, {} lost",
        summary.frames_received,
        summary.frames_verified,
        summary.frames_lost
    );
    Err(Failure::new(Code::Failed, error).hint("run it again with RUST_LOG=debug and report it"))
}

/// Returns what became of the frames of a device: the source says how many there were, the collector the
/// rest.
fn both_ends(sent: &SentFates, received: &Received) -> Ledger {
    Ledger {
        sent: sent.frames_sent + sent.dropped(),
        delivered: received.frames_received,
        dropped: received.dropped(),
        lost: received.frames_lost,
    }
}
