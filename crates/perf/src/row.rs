//! What came out of a measurement.
use crate::stats::of_sorted;
use serde::Serialize;
use std::time::Duration;

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Row {
    /// Of a bandwidth test.
    Bandwidth(Bandwidth),
    /// Of a latency test.
    Latency(Latency),
}

/// Bytes a second. CPU is of all threads of a process, the engine's too, in percent of one core.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bandwidth {
    /// Bytes of a request.
    pub bytes: u64,
    /// Requests that were done.
    pub iterations: u64,
    /// The best 10 ms; `None` for blocks.
    pub peak_bytes_per_s: Option<f64>,
    /// All.
    pub average_bytes_per_s: f64,
    /// Requests a second.
    pub messages_per_s: f64,
    /// Of the client.
    pub client_cpu_percent: f64,
    /// Of the server.
    pub server_cpu_percent: f64,
}

/// Times of one request in nanoseconds: of WRITE and SEND half of a round trip, of READ all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Bytes of a request.
    pub bytes: u64,
    /// Requests that were timed.
    pub iterations: u64,
    /// The shortest.
    pub min_ns: f64,
    /// The longest.
    pub max_ns: f64,
    /// The median.
    pub typical_ns: f64,
    /// The mean.
    pub average_ns: f64,
    /// The standard deviation.
    pub stdev_ns: f64,
    /// 99 of 100 are not longer.
    pub p99_ns: f64,
    /// 999 of 1000 are not longer.
    pub p999_ns: f64,
    /// Of the client.
    pub client_cpu_percent: f64,
    /// Of the server.
    pub server_cpu_percent: f64,
}

impl Bandwidth {
    /// Returns the figures of so many requests of so many bytes; processor time comes later.
    pub(crate) fn of(
        bytes: u64,
        requests: u64,
        time: Duration,
        peak_bytes_per_s: Option<f64>,
    ) -> Self {
        let messages_per_s = requests as f64 / time.as_secs_f64();
        Self {
            bytes,
            iterations: requests,
            peak_bytes_per_s,
            average_bytes_per_s: messages_per_s * bytes as f64,
            messages_per_s,
            client_cpu_percent: 0.0,
            server_cpu_percent: 0.0,
        }
    }
}

impl Latency {
    /// Returns the figures of these times, in any order.
    pub fn of(bytes: u64, mut times_ns: Vec<f64>) -> Self {
        times_ns.sort_unstable_by(f64::total_cmp);
        let count = times_ns.len().max(1) as f64;
        let at = |part: f64| of_sorted(&times_ns, part);
        let average_ns = times_ns.iter().sum::<f64>() / count;
        let square = |time: &f64| (time - average_ns).powi(2);
        Self {
            bytes,
            iterations: times_ns.len() as u64,
            min_ns: at(0.0),
            max_ns: at(1.0),
            typical_ns: at(0.5),
            average_ns,
            stdev_ns: (times_ns.iter().map(square).sum::<f64>() / count).sqrt(),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            client_cpu_percent: 0.0,
            server_cpu_percent: 0.0,
        }
    }
}

impl Row {
    /// Adds the processor time of both sides, in percent of one core.
    pub fn set_cpu(&mut self, active: f64, passive: f64) {
        let (client, server) = match self {
            Self::Bandwidth(row) => (&mut row.client_cpu_percent, &mut row.server_cpu_percent),
            Self::Latency(row) => (&mut row.client_cpu_percent, &mut row.server_cpu_percent),
        };
        (*client, *server) = (active, passive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_latency_are_those_of_its_times() {
        let times = (1..=1001).rev().map(f64::from).collect();
        let latency = Latency::of(64, times);
        assert_eq!(latency.iterations, 1001);
        assert_eq!((latency.min_ns, latency.max_ns), (1.0, 1001.0));
        assert_eq!((latency.typical_ns, latency.average_ns), (501.0, 501.0));
        assert_eq!((latency.p99_ns, latency.p999_ns), (991.0, 1000.0));
        assert!((latency.stdev_ns - 288.964).abs() < 0.01, "{latency:?}");
    }
}
