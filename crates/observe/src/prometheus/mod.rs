//! All numbers in the text format that Prometheus reads (version 0.0.4).
//!
//! Each metric is one line of a table here; docs/reference/metrics.md lists the same, and a test
//! compares the two. Labels are escaped, since device names come from other machines.
mod network;

use super::snapshot::{
    CollectorSnapshot, CpuSnapshot, DeviceCounters, DeviceSnapshot, SourceDeviceSnapshot,
    SourceSnapshot,
};
use crate::granting::{GrantSnapshot, Standing};
use crate::histogram::HistogramSnapshot;
use std::fmt::{self, Write};

/// The `Content-Type` of these texts.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Latency buckets end at powers of two nanoseconds, from 4.1 µs to 17 s, where the histogram of the
/// data path is exact.
const LATENCY_BITS: std::ops::RangeInclusive<u32> = 12..=34;

/// One metric, and where its value is in a `T`.
#[derive(Debug, Clone, Copy)]
pub struct Metric<T> {
    /// Its name, unit included: seconds, bytes, bits a second; `_total` of a counter.
    pub name: &'static str,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// What it is, a sentence.
    pub help: &'static str,
    /// Its value.
    pub value: fn(&T) -> f64,
}

/// Returns metrics as text: a line of each for each `T`, with the labels of that.
#[must_use]
pub fn table<T>(metrics: &[Metric<T>], of: &[T], labels: impl Fn(&T) -> Labels) -> String {
    let mut text = Text::with_capacity(0);
    text.table(metrics, of, labels);
    text.0
}

/// Defines a table of [`Metric`](crate::prometheus::Metric)s: kind, name, value and help of each.
#[macro_export]
macro_rules! metrics {
    ($table:ident of |$of:ident: &$type:ty| $($kind:ident $name:literal = $value:expr => $help:literal;)*) => {
        const $table: &[$crate::prometheus::Metric<$type>] = &[$($crate::prometheus::Metric {
            name: $name,
            kind: stringify!($kind),
            help: $help,
            value: |$of: &$type| $value,
        },)*];
    };
}
use crate::metrics;

metrics! { COLLECTOR of |s: &CollectorSnapshot|
    gauge "catchment_uptime_seconds" = s.uptime_s => "Time since the collector started.";
    gauge "catchment_devices" = s.devices.len() as f64 => "Devices the collector knows.";
    gauge "catchment_sessions_open" = s.sessions_open as f64 => "Sessions open now.";
    counter "catchment_sessions_total" = s.sessions_total as f64 => "Sessions opened.";
}

metrics! { DEVICE of |d: &DeviceSnapshot|
    counter "catchment_frames_received_total" = d.counters.frames_received as f64 =>
        "Frames delivered to the sinks.";
    counter "catchment_received_bytes_total" = d.counters.bytes_received as f64 =>
        "Payload bytes of the frames received.";
    counter "catchment_frames_verified_total" = d.counters.frames_verified as f64 =>
        "Frames with a correct checksum.";
    counter "catchment_checksum_errors_total" = d.counters.checksum_errors as f64 =>
        "Blocks with a wrong checksum or commit word.";
    counter "catchment_frames_numbered_total" = d.counters.frames_numbered as f64 =>
        "Packet numbers passed: frames received, skipped and lost.";
    counter "catchment_frames_lost_total" = d.counters.frames_lost as f64 =>
        "Frames that could not be delivered.";
    counter "catchment_frames_skipped_total" = d.counters.frames_skipped as f64 =>
        "Frames the source dropped, inferred from packet numbers.";
    counter "catchment_frames_duplicate_total" = d.counters.frames_duplicate as f64 =>
        "Frames that arrived twice.";
    counter "catchment_frames_reordered_total" = d.counters.frames_reordered as f64 =>
        "Frames that arrived before an older one.";
    counter "catchment_sink_errors_total" = d.counters.sink_errors as f64 =>
        "Frames that a sink refused.";
    counter "catchment_frames_capture_ahead_total" = d.counters.frames_capture_ahead as f64 =>
        "Frames with a capture time in the future.";
    counter "catchment_reported_frames_sent_total" = d.counters.source_frames_sent as f64 =>
        "Frames sent, as the source reported.";
    gauge "catchment_blocks_in_flight" = d.blocks_in_flight as f64 =>
        "Blocks that hold frames of the device.";
    gauge "catchment_device_connected" = f64::from(u8::from(d.connected)) =>
        "1 while a source for the device is connected.";
    gauge "catchment_last_frame_timestamp_seconds" = d.last_frame_unix_ms as f64 / 1e3 =>
        "When the last frame was delivered.";
}

metrics! { PROCESS of |c: &CpuSnapshot|
    counter "process_cpu_seconds_total" = c.cpu_s => "Processor time of the process.";
    gauge "process_resident_memory_bytes" = c.rss_bytes as f64 => "Resident memory.";
}

metrics! { SOURCE of |s: &SourceSnapshot|
    gauge "catchment_source_uptime_seconds" = s.uptime_s => "Time since the source started.";
    counter "catchment_source_status_reads_total" = s.status_reads as f64 =>
        "READs of status bytes.";
    counter "catchment_source_reconnects_total" = s.reconnects as f64 =>
        "Sessions opened after one broke.";
}

metrics! { GRANT of |g: &GrantSnapshot|
    gauge "catchment_source_grant_since_timestamp_seconds" = g.since_unix_ms as f64 / 1e3 =>
        "Since when the source stands so with its controller.";
    gauge "catchment_source_grant_blocks_waiting" = g.blocks_waiting as f64 =>
        "Blocks written that may not go yet.";
    counter "catchment_source_grant_wait_seconds_total" = g.waited_ms as f64 / 1e3 =>
        "How long some block could not go.";
    counter "catchment_source_grants_total" = g.grants as f64 => "Windows granted to the source.";
    gauge "catchment_source_grant_safe_rate_bits_per_second" = g.safe_rate_bps as f64 =>
        "What the source may send while no controller answers.";
}

metrics! { SOURCE_DEVICE of |d: &SourceDeviceSnapshot|
    counter "catchment_source_frames_sent_total" = d.counters.frames_sent as f64 =>
        "Frames handed to the queue pair.";
    counter "catchment_source_frames_lost_total" = d.counters.frames_lost as f64 =>
        "Frames sent that could not be delivered.";
    counter "catchment_source_sent_bytes_total" = d.counters.bytes_sent as f64 =>
        "Payload bytes of the frames sent.";
    counter "catchment_source_grant_missed_total" = d.counters.deadlines_missed as f64 =>
        "Frames that cannot be there by their deadline.";
    counter "catchment_source_block_waits_total" = d.counters.block_waits as f64 =>
        "Times a frame waited for a block.";
    counter "catchment_source_block_wait_seconds_total" = d.counters.block_wait_ns as f64 / 1e9 =>
        "Time frames waited for blocks.";
    gauge "catchment_source_blocks_in_flight" = d.blocks_in_flight as f64 =>
        "Blocks written, not yet free again.";
}

/// Returns the metrics of a collector.
pub fn collector_text(snapshot: &CollectorSnapshot) -> String {
    let mut text = Text::with_capacity(2_000 + snapshot.devices.len() * 4_500);
    let device = |d: &DeviceSnapshot| vec![("device", d.name.clone())];
    text.table(COLLECTOR, std::slice::from_ref(snapshot), |_| Vec::new());
    text.refusals(snapshot);
    text.paths(&snapshot.paths);
    text.sessions(snapshot.sessions.iter());
    text.roce(&snapshot.roce);
    text.process(snapshot.cpu.as_ref());
    text.formats(snapshot);
    text.table(DEVICE, &snapshot.devices, device);
    text.losses(&snapshot.devices);
    text.reported_drops(&snapshot.devices);
    text.latencies(&snapshot.devices);
    text.0
}

/// Returns the metrics of a source.
pub fn source_text(snapshot: &SourceSnapshot) -> String {
    let mut text = Text::with_capacity(2_000 + snapshot.devices.len() * 800);
    let device = |d: &SourceDeviceSnapshot| vec![("device", d.name.clone())];
    text.table(SOURCE, std::slice::from_ref(snapshot), |_| Vec::new());
    text.sessions(snapshot.session.iter());
    text.grant(snapshot.grant.as_ref());
    text.roce(&snapshot.roce);
    text.process(snapshot.cpu.as_ref());
    text.table(SOURCE_DEVICE, &snapshot.devices, device);
    text.source_drops(&snapshot.devices);
    text.0
}

/// Label names and values, not escaped yet.
pub type Labels = Vec<(&'static str, String)>;

struct Text(String);

impl Text {
    fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    fn put(&mut self, arguments: fmt::Arguments<'_>) {
        // Writing to a String never fails.
        let _ = self.0.write_fmt(arguments);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn line(&mut self, name: &str, labels: &Labels, value: f64) {
        self.put(format_args!("{name}{} {value}\n", Escaped(labels)));
    }

    fn table<T>(&mut self, metrics: &[Metric<T>], of: &[T], labels: impl Fn(&T) -> Labels) {
        let labels: Vec<_> = of.iter().map(labels).collect();
        for metric in metrics {
            self.head(metric.name, metric.kind, metric.help);
            for (one, labels) in of.iter().zip(&labels) {
                self.line(metric.name, labels, (metric.value)(one));
            }
        }
    }

    fn process(&mut self, cpu: Option<&CpuSnapshot>) {
        self.table(PROCESS, cpu.map_or(&[], std::slice::from_ref), |_| Vec::new());
    }

    fn grant(&mut self, grant: Option<&GrantSnapshot>) {
        let name = "catchment_source_grant_standing";
        self.head(name, "gauge", "1 for how the source stands with its controller, else 0.");
        for standing in grant.iter().flat_map(|_| Standing::ALL) {
            let labels = vec![("standing", standing.name().to_owned())];
            let is_so = grant.is_some_and(|grant| grant.standing == standing);
            self.line(name, &labels, f64::from(u8::from(is_so)));
        }
        self.table(GRANT, grant.map_or(&[], std::slice::from_ref), |_| Vec::new());
    }

    fn refusals(&mut self, snapshot: &CollectorSnapshot) {
        let name = "catchment_sessions_refused_total";
        self.head(name, "counter", "Sources refused, by reason code.");
        for (code, &count) in &snapshot.sessions_refused {
            self.line(name, &vec![("code", code.clone())], count as f64);
        }
    }

    fn formats(&mut self, snapshot: &CollectorSnapshot) {
        let name = "catchment_device_info";
        self.head(name, "gauge", "Always 1; the label is the format of the device's frames.");
        for device in &snapshot.devices {
            let labels = vec![("device", device.name.clone()), ("format", device.format.clone())];
            self.line(name, &labels, 1.0);
        }
    }

    fn causes<const N: usize>(&mut self, name: &str, device: &str, causes: [(&str, u64); N]) {
        for (cause, count) in causes {
            let labels = vec![("device", device.to_owned()), ("cause", cause.to_owned())];
            self.line(name, &labels, count as f64);
        }
    }

    fn drops(&mut self, name: &str, device: &str, [oldest, newest, reconnect]: [u64; 3]) {
        let causes = [("drop_oldest", oldest), ("drop_newest", newest), ("reconnect", reconnect)];
        self.causes(name, device, causes);
    }

    fn losses(&mut self, devices: &[DeviceSnapshot]) {
        let name = "catchment_frames_lost_by_cause_total";
        self.head(name, "counter", "Frames that could not be delivered, by cause.");
        for device in devices {
            let DeviceCounters { lost_missing, lost_damaged, lost_sink, .. } = device.counters;
            let causes =
                [("missing", lost_missing), ("damaged", lost_damaged), ("sink", lost_sink)];
            self.causes(name, &device.name, causes);
        }
    }

    fn reported_drops(&mut self, devices: &[DeviceSnapshot]) {
        let name = "catchment_reported_frames_dropped_total";
        self.head(name, "counter", "Frames the source dropped on purpose, as it reported.");
        for device in devices {
            let counters = &device.counters;
            let dropped = [
                counters.source_dropped_oldest,
                counters.source_dropped_newest,
                counters.source_dropped_reconnect,
            ];
            self.drops(name, &device.name, dropped);
        }
    }

    fn source_drops(&mut self, devices: &[SourceDeviceSnapshot]) {
        let name = "catchment_source_frames_dropped_total";
        self.head(name, "counter", "Frames dropped on purpose, by cause.");
        for device in devices {
            let counters = &device.counters;
            let dropped =
                [counters.dropped_oldest, counters.dropped_newest, counters.dropped_reconnect];
            self.drops(name, &device.name, dropped);
            self.causes(name, &device.name, [("late", counters.dropped_late)]);
        }
    }

    fn latencies(&mut self, devices: &[DeviceSnapshot]) {
        let name = "catchment_frame_latency_seconds";
        self.head(name, "histogram", "Time from capture to delivery.");
        for device in devices {
            self.latency(name, &device.name, &device.histogram);
        }
    }

    fn latency(&mut self, name: &str, device: &str, histogram: &HistogramSnapshot) {
        let mut labels = vec![("device", device.to_owned()), ("le", String::new())];
        let bucket = format!("{name}_bucket");
        for bits in LATENCY_BITS {
            labels[1].1 = ((1u64 << bits) as f64 / 1e9).to_string();
            self.line(&bucket, &labels, histogram.count_up_to_power(bits) as f64);
        }
        let count = histogram.count() as f64;
        labels[1].1 = "+Inf".to_owned();
        self.line(&bucket, &labels, count);
        labels.truncate(1);
        self.line(&format!("{name}_sum"), &labels, histogram.sum_ns() as f64 / 1e9);
        self.line(&format!("{name}_count"), &labels, count);
    }
}

/// Labels in braces, with backslash, quote and line end escaped as the format asks.
struct Escaped<'a>(&'a Labels);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        for (i, (key, value)) in self.0.iter().enumerate() {
            write!(f, "{}{key}=\"", if i == 0 { '{' } else { ',' })?;
            for c in value.chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    other => f.write_char(other)?,
                }
            }
            f.write_char('"')?;
        }
        f.write_char('}')
    }
}
