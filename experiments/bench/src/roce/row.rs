//! One line of the output.
use crate::stats::Spread;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Payload that arrived, in bytes per second; `None` where latency was measured.
    pub(crate) bytes_per_s: Option<f64>,
    /// One way, half of the median round trip.
    pub(crate) latency_ns: Option<f64>,
    /// CPU seconds for 10^9 bytes of payload, all of the process.
    pub(crate) cpu_s_per_gb_sender: Option<f64>,
    pub(crate) cpu_s_per_gb_receiver: Option<f64>,
    /// Packets in one message to the kernel (GSO); `None` where it was not counted.
    pub(crate) packets_per_send: Option<f64>,
    /// Packets in one message from the kernel (GRO).
    pub(crate) packets_per_receive: Option<f64>,
    /// Packets that were sent and did not arrive; ours: that were sent again.
    pub(crate) lost_packets: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Cell {
    pub(crate) what: &'static str,
    pub(crate) op: &'static str,
    /// How ours waits where latency is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) polling: Option<&'static str>,
    /// Payload of a packet; `null` for TCP, which cuts as it likes.
    pub(crate) path_mtu: Option<usize>,
    pub(crate) bytes: usize,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    bytes_per_s: Option<f64>,
    bytes_per_s_p5: Option<f64>,
    bytes_per_s_p95: Option<f64>,
    latency_ns_p50: Option<f64>,
    cpu_s_per_gb_sender: Option<f64>,
    cpu_s_per_gb_receiver: Option<f64>,
    operations_per_s: Option<f64>,
    packets_per_send: Option<f64>,
    packets_per_receive: Option<f64>,
    lost_packets: u64,
    pub(crate) rounds: usize,
    /// Round by round, for comparisons.
    #[serde(skip)]
    pub(crate) samples: Vec<Sample>,
}

impl Row {
    pub(crate) fn of(cell: Cell, samples: Vec<Sample>) -> Self {
        let rate = spread(&samples, |s| s.bytes_per_s);
        let median = |field: fn(&Sample) -> Option<f64>| spread(&samples, field).map(|s| s.p50);
        Self {
            cell,
            bytes_per_s: rate.map(|s| s.p50),
            bytes_per_s_p5: rate.map(|s| s.p5),
            bytes_per_s_p95: rate.map(|s| s.p95),
            latency_ns_p50: median(|s| s.latency_ns),
            cpu_s_per_gb_sender: median(|s| s.cpu_s_per_gb_sender),
            cpu_s_per_gb_receiver: median(|s| s.cpu_s_per_gb_receiver),
            operations_per_s: rate.map(|s| s.p50 / cell.bytes as f64),
            packets_per_send: median(|s| s.packets_per_send),
            packets_per_receive: median(|s| s.packets_per_receive),
            lost_packets: samples.iter().map(|s| s.lost_packets).sum(),
            rounds: samples.len(),
            samples,
        }
    }

    /// What a person reads, in the order of [`HEAD`].
    fn cells(&self) -> [String; 12] {
        let number = |value: Option<f64>, unit: f64| {
            value.map_or_else(|| "-".to_owned(), |v| format!("{:.2}", v / unit))
        };
        let cell = &self.cell;
        let op =
            cell.polling.map_or(cell.op.to_owned(), |polling| format!("{}, {polling}", cell.op));
        [
            cell.what.to_owned(),
            op,
            cell.path_mtu.map_or("-".to_owned(), |mtu| mtu.to_string()),
            cell.bytes.to_string(),
            self.rate_text(),
            number(self.operations_per_s, 1e3),
            number(self.latency_ns_p50, 1e3),
            number(self.cpu_s_per_gb_sender, 1.0),
            number(self.cpu_s_per_gb_receiver, 1.0),
            number(self.packets_per_send, 1.0),
            number(self.packets_per_receive, 1.0),
            self.lost_packets.to_string(),
        ]
    }

    fn rate_text(&self) -> String {
        let gbit = |rate: f64| rate * 8.0 / 1e9;
        match (self.bytes_per_s, self.bytes_per_s_p5, self.bytes_per_s_p95) {
            (Some(p50), Some(p5), Some(p95)) => {
                format!("{:.2} [{:.2}, {:.2}]", gbit(p50), gbit(p5), gbit(p95))
            }
            _ => "-".to_owned(),
        }
    }
}

const HEAD: [&str; 12] = [
    "what", "op", "path MTU", "bytes", "Gbit/s", "1000 ops/s", "us p50", "CPU s/GB tx",
    "CPU s/GB rx", "pkts/send", "pkts/recv", "lost",
];

fn spread(samples: &[Sample], field: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
    let values: Vec<f64> = samples.iter().filter_map(field).collect();
    (!values.is_empty()).then(|| Spread::of(&values))
}

/// Returns the lines of a table of the rows.
pub(crate) fn lines(rows: &[Row]) -> Vec<Vec<String>> {
    let head = HEAD.map(str::to_owned).to_vec();
    std::iter::once(head).chain(rows.iter().map(|row| row.cells().to_vec())).collect()
}
