//! One line of the output.
use crate::{host::Environment, stats::Spread};
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// What one measurement found.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Payload that arrived, in bytes per second; `None` where latency was measured.
    pub(crate) bytes_per_s: Option<f64>,
    /// One way, half of the median round trip.
    pub(crate) latency_ns: Option<f64>,
    /// CPU seconds for 10^9 bytes of payload, all of the process.
    pub(crate) cpu_s_per_gb_sender: Option<f64>,
    /// The same at the receiver.
    pub(crate) cpu_s_per_gb_receiver: Option<f64>,
    /// Packets that were sent and did not arrive.
    pub(crate) lost_packets: u64,
}

/// The median over the rounds of one measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    what: &'static str,
    op: &'static str,
    /// Payload of a packet; `null` for TCP, which cuts as it likes.
    path_mtu: Option<usize>,
    /// Bytes of an operation.
    bytes: usize,
    bytes_per_s: Option<f64>,
    bytes_per_s_p5: Option<f64>,
    bytes_per_s_p95: Option<f64>,
    latency_ns_p50: Option<f64>,
    cpu_s_per_gb_sender: Option<f64>,
    cpu_s_per_gb_receiver: Option<f64>,
    lost_packets: u64,
    rounds: usize,
}

impl Row {
    /// Of all rounds of one measurement.
    pub(crate) fn of(
        what: &'static str,
        op: &'static str,
        path_mtu: Option<usize>,
        bytes: usize,
        samples: &[Sample],
    ) -> Row {
        let rate = spread(samples, |s| s.bytes_per_s);
        let median = |field: fn(&Sample) -> Option<f64>| spread(samples, field).map(|s| s.p50);
        Row {
            what,
            op,
            path_mtu,
            bytes,
            bytes_per_s: rate.map(|s| s.p50),
            bytes_per_s_p5: rate.map(|s| s.p5),
            bytes_per_s_p95: rate.map(|s| s.p95),
            latency_ns_p50: median(|s| s.latency_ns),
            cpu_s_per_gb_sender: median(|s| s.cpu_s_per_gb_sender),
            cpu_s_per_gb_receiver: median(|s| s.cpu_s_per_gb_receiver),
            lost_packets: samples.iter().map(|s| s.lost_packets).sum(),
            rounds: samples.len(),
        }
    }

    fn line(&self) -> String {
        let number = |value: Option<f64>, unit: f64| {
            value.map_or_else(|| "-".to_owned(), |v| format!("{:.2}", v / unit))
        };
        let path_mtu = self.path_mtu.map_or("-".to_owned(), |mtu| mtu.to_string());
        format!(
            "{:<9} {:<7} {path_mtu:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>6}",
            self.what,
            self.op,
            self.bytes,
            number(self.bytes_per_s, 1e9 / 8.0),
            number(self.latency_ns_p50, 1e3),
            number(self.cpu_s_per_gb_sender, 1.0),
            number(self.cpu_s_per_gb_receiver, 1.0),
            self.lost_packets,
        )
    }
}

fn spread(samples: &[Sample], field: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
    let values: Vec<f64> = samples.iter().filter_map(field).collect();
    (!values.is_empty()).then(|| Spread::of(&values))
}

/// Prints all rows, as a table or as lines of JSON with the machine first.
pub(crate) fn print(rows: &[Row], environment: &Environment, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::json!({ "environment": environment }));
        for row in rows {
            println!("{}", serde_json::to_string(row)?);
        }
        return Ok(());
    }
    println!("{}", environment.line());
    println!(
        "{:<9} {:<7} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>6}",
        "what", "op", "path_mtu", "bytes", "Gbit/s", "us p50", "cpu/GB tx", "cpu/GB rx", "lost"
    );
    for row in rows {
        println!("{}", row.line());
    }
    Ok(())
}
