//! What is measured, and what came out.

use super::PerfError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// SEND into posted receives.
    Send,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Bytes a second.
    Bandwidth,
    /// Time of one request.
    Latency,
}

/// A measurement, by the name that perftest gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Test {
    /// What a request does.
    pub operation: Operation,
    /// What is asked.
    pub figure: Figure,
}

impl Test {
    /// All there are.
    pub const ALL: [(&'static str, Test); 6] = [
        ("write_bw", Test::new(Operation::Write, Figure::Bandwidth)),
        ("write_lat", Test::new(Operation::Write, Figure::Latency)),
        ("read_bw", Test::new(Operation::Read, Figure::Bandwidth)),
        ("read_lat", Test::new(Operation::Read, Figure::Latency)),
        ("send_bw", Test::new(Operation::Send, Figure::Bandwidth)),
        ("send_lat", Test::new(Operation::Send, Figure::Latency)),
    ];

    const fn new(operation: Operation, figure: Figure) -> Test {
        Test { operation, figure }
    }

    /// Its name: `write_bw` and so on.
    pub fn name(self) -> &'static str {
        let mut all = Test::ALL.into_iter();
        all.find(|(_, test)| *test == self)
            .map_or("", |(name, _)| name)
    }

    /// Whether the server's program waits for what comes, and answers.
    pub(super) fn is_answered(self) -> bool {
        self.figure == Figure::Latency && self.operation != Operation::Read
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No test has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no test \"{seen}\"; there are: {}", names())]
pub struct TestParseError {
    seen: String,
}

fn names() -> String {
    Test::ALL.map(|(name, _)| name).join(", ")
}

impl FromStr for Test {
    type Err = TestParseError;

    fn from_str(text: &str) -> Result<Test, TestParseError> {
        let mut all = Test::ALL.into_iter();
        let found = all.find(|(name, _)| *name == text);
        found.map(|(_, test)| test).ok_or_else(|| TestParseError {
            seen: text.chars().take(32).collect(),
        })
    }
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// So many requests, at least 1.
    Iterations(u64),
    /// For so long, above 0.
    Seconds(f64),
}

impl Amount {
    /// Whether it is some.
    ///
    /// # Errors
    /// [`PerfError::Plan`].
    pub(super) fn check(self) -> Result<(), PerfError> {
        let fault = match self {
            Amount::Iterations(0) => Some("at least 1 request is needed".to_owned()),
            Amount::Seconds(s) if !(s > 0.0 && s <= Plan::SECONDS_MAX) => {
                let most = Plan::SECONDS_MAX;
                Some(format!("a measurement takes above 0 to {most} s, not {s}"))
            }
            Amount::Iterations(_) | Amount::Seconds(_) => None,
        };
        fault.map_or(Ok(()), |fault| Err(PerfError::Plan(fault)))
    }

    /// When to stop, and after how many requests.
    pub(super) fn limits(self) -> (Duration, u64) {
        match self {
            Amount::Iterations(count) => (Duration::MAX, count),
            Amount::Seconds(seconds) => {
                let limit = Duration::try_from_secs_f64(seconds);
                (limit.unwrap_or(Duration::MAX), u64::MAX)
            }
        }
    }
}

/// How both sides wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// Look again and again, letting others have the core between two looks.
    Yield,
    /// Sleep until a completion comes.
    Sleep,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What.
    pub test: Test,
    /// Bytes of a request, 1 to [`Plan::BYTES_MAX`].
    pub bytes: u64,
    /// How much.
    pub amount: Amount,
    /// Requests outstanding at once, for bandwidth. 1 to [`Plan::DEPTH_MAX`].
    pub depth: u32,
    /// How both sides wait.
    pub waiting: Waiting,
}

impl Plan {
    /// Longest request.
    pub const BYTES_MAX: u64 = 1 << 28;
    /// Most requests outstanding.
    pub const DEPTH_MAX: u32 = 4096;
    /// Longest measurement.
    pub const SECONDS_MAX: f64 = 3600.0;

    /// Whether it can be carried out.
    ///
    /// # Errors
    /// [`PerfError::Plan`] with the limit that it does not keep.
    pub fn check(&self) -> Result<(), PerfError> {
        self.amount.check()?;
        self.fault()
            .map_or(Ok(()), |fault| Err(PerfError::Plan(fault)))
    }

    fn fault(&self) -> Option<String> {
        if !(1..=Plan::BYTES_MAX).contains(&self.bytes) {
            let most = Plan::BYTES_MAX;
            return Some(format!(
                "a request has 1 to {most} bytes, not {}",
                self.bytes
            ));
        }
        if !(1..=Plan::DEPTH_MAX).contains(&self.depth) {
            let most = Plan::DEPTH_MAX;
            return Some(format!(
                "1 to {most} requests can be outstanding, not {}",
                self.depth
            ));
        }
        let looks = self.test.operation == Operation::Write && self.test.figure == Figure::Latency;
        if looks && self.waiting == Waiting::Sleep {
            return Some(
                "write_lat looks at memory, for which nobody is woken: wait by yielding, or measure \
                 send_lat"
                    .to_owned(),
            );
        }
        None
    }
}

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

impl Latency {
    /// Of these times, in any order, at least one.
    pub(super) fn of(bytes: u64, mut times_ns: Vec<f64>) -> Latency {
        times_ns.sort_unstable_by(f64::total_cmp);
        let count = times_ns.len().max(1) as f64;
        let at = |share: f64| {
            let last = times_ns.len().saturating_sub(1);
            let place = (share * last as f64).round() as usize;
            times_ns.get(place).copied().unwrap_or(f64::NAN)
        };
        let average_ns = times_ns.iter().sum::<f64>() / count;
        let square = |time: &f64| (time - average_ns).powi(2);
        Latency {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_tests_and_back() {
        for (name, test) in Test::ALL {
            assert_eq!(name.parse(), Ok(test));
            assert_eq!(test.to_string(), name);
        }
        let wrong = "write_bww".parse::<Test>().unwrap_err().to_string();
        assert!(
            wrong.contains("write_bww") && wrong.contains("send_lat"),
            "{wrong}"
        );
    }

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

    #[test]
    fn plans_that_cannot_be_carried_out_say_why() {
        let good = Plan {
            test: "write_lat".parse().unwrap(),
            bytes: 64,
            amount: Amount::Iterations(1),
            depth: 1,
            waiting: Waiting::Yield,
        };
        good.check().unwrap();
        for (wrong, why) in [
            (Plan { bytes: 0, ..good }, "1 to"),
            (
                Plan {
                    bytes: 1 << 40,
                    ..good
                },
                "1 to",
            ),
            (Plan { depth: 0, ..good }, "outstanding"),
            (
                Plan {
                    waiting: Waiting::Sleep,
                    ..good
                },
                "send_lat",
            ),
            (
                Plan {
                    amount: Amount::Iterations(0),
                    ..good
                },
                "at least 1",
            ),
            (
                Plan {
                    amount: Amount::Seconds(-1.0),
                    ..good
                },
                "above 0",
            ),
            (
                Plan {
                    amount: Amount::Seconds(f64::NAN),
                    ..good
                },
                "above 0",
            ),
        ] {
            let fault = wrong.check().unwrap_err().to_string();
            assert!(fault.contains(why), "{wrong:?}: {fault}");
        }
    }
}
