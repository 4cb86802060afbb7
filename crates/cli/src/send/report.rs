//! Progress and summary of `catchment send`.
use super::Failures;
use crate::args::SendArgs;
use crate::failure::Failure;
use crate::output::events::{SendEvent, SendProgress, SendSummary, SentDevice, SentFates};
use crate::output::progress::Progress;
use crate::output::{self, table, units};
use catchment::observe::{SourceDeviceSnapshot, SourceSnapshot};

const DEVICES_LISTED: usize = 40;

pub(super) fn progress(
    args: &SendArgs,
    line: &Progress,
    snapshot: &SourceSnapshot,
) -> Result<(), Failure> {
    let totals = &snapshot.totals;
    let now = SendProgress {
        uptime_s: units::tenths(snapshot.uptime_s),
        frames_sent: totals.frames_sent,
        frames_dropped: SentFates::of(totals).dropped(),
        bytes_sent: totals.bytes_sent,
        deadlines_missed: totals.deadlines_missed,
        reconnects: snapshot.reconnects,
        cpu_percent: snapshot.cpu.map(|cpu| units::tenths(cpu.cpu_percent)),
        grant: snapshot.grant,
    };
    line.set_text(format!(
        "{} devices  {} frames  {}  dropped {}  CPU {:.0} %",
        snapshot.devices.len(),
        units::count(now.frames_sent),
        units::bytes(now.bytes_sent as f64),
        units::count(now.frames_dropped),
        now.cpu_percent.unwrap_or(0.0),
    ));
    if args.json {
        output::print_json(&SendEvent::Progress(now))?;
    }
    Ok(())
}

pub(super) fn summary(
    last: &SourceSnapshot,
    seconds: f64,
    cpu_percent: f64,
    failures: &Failures,
) -> SendSummary {
    let totals = &last.totals;
    SendSummary {
        seconds: (seconds * 1e3).round() / 1e3,
        fates: SentFates::of(totals),
        frames_undelivered: failures.undelivered,
        bytes_sent: totals.bytes_sent,
        deadlines_missed: totals.deadlines_missed,
        block_waits: totals.block_waits,
        block_wait_s: totals.block_wait_ns as f64 / 1e9,
        reconnects: last.reconnects,
        cpu_percent: units::tenths(cpu_percent),
        errors: failures.texts(),
        devices: last.devices.iter().map(device).collect(),
    }
}

fn device(device: &SourceDeviceSnapshot) -> SentDevice {
    let counters = &device.counters;
    let fates = SentFates::of(counters);
    SentDevice {
        name: device.name.clone(),
        format: device.format.clone(),
        fates,
        frames_dropped: fates.dropped(),
        bytes_sent: counters.bytes_sent,
        deadlines_missed: counters.deadlines_missed,
    }
}

pub(super) fn print_summary(args: &SendArgs, summary: &SendSummary) -> Result<(), Failure> {
    if args.json {
        return output::print_json(&SendEvent::Summary(summary.clone()));
    }
    output::print(&text(summary))
}

fn text(summary: &SendSummary) -> String {
    let mut table =
        table::Table::new(&["device", "format", "frames", "dropped", "lost", "bytes"], 2);
    let mut row = |name: String, format: String, [frames, dropped, lost, bytes]: [u64; 4]| {
        let [frames, dropped, lost] = [frames, dropped, lost].map(units::count);
        let counts = [frames, dropped, lost, units::bytes(bytes as f64)];
        table.row([name, format].into_iter().chain(counts).collect());
    };
    if summary.devices.len() <= DEVICES_LISTED {
        for device in &summary.devices {
            let fates = &device.fates;
            let numbers =
                [fates.frames_sent, fates.dropped(), fates.frames_lost, device.bytes_sent];
            row(device.name.clone(), device.format.clone(), numbers);
        }
    }
    if summary.devices.len() > 1 {
        let fates = &summary.fates;
        let numbers = [fates.frames_sent, fates.dropped(), fates.frames_lost, summary.bytes_sent];
        row(format!("{} devices", summary.devices.len()), String::new(), numbers);
    }
    let mut text = table.text();
    let late = summary.fates.frames_dropped_late;
    if late > 0 {
        let frames = if late == 1 { "frame" } else { "frames" };
        text.push_str(&format!("{} {frames} dropped because late\n", units::count(late)));
    }
    if summary.errors.is_empty() {
        let rate = units::bytes(summary.bytes_sent as f64 / summary.seconds.max(1e-3));
        text.push_str(&format!("all delivered in {:.1} s, {rate}/s\n", summary.seconds));
    }
    text
}
