//! What is printed: a line for each phase of a run.
use serde::Serialize;
use std::fs;
use std::process::Command;

/// The machine that `wall_s` belongs to; everything else is the same anywhere.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    what: &'static str,
    commit: Option<String>,
    machine: Option<String>,
    cores: usize,
    /// Processes that wanted to run, one-minute mean.
    load: Option<f64>,
    length: &'static str,
}

impl Run {
    pub(super) fn detect(full: bool) -> Self {
        let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok();
        let commit = commit.filter(|output| output.status.success());
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            what: "run",
            commit: commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            machine: cpu.map(|(_, name)| name.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load: load.split_whitespace().next().and_then(|load| load.parse().ok()),
            length: if full { "full" } else { "quick" },
        }
    }
}

/// One change, and how hosts came to agree after it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) hosts: usize,
    pub(super) apps_per_host: u32,
    pub(super) active: usize,
    pub(super) edges: usize,
    pub(super) alpha: f64,
    pub(super) rtt_us: f64,
    pub(super) jitter_us: f64,
    pub(super) loss: f64,
    /// Fraction of messages that are 100 ms late, and of those that come twice.
    pub(super) late: f64,
    pub(super) double: f64,
    /// Whether data carry numbers, too, and how many of them hosts took in place of messages.
    pub(super) carries: bool,
    pub(super) carried: u64,
    pub(super) change: &'static str,
    pub(super) seed: u64,
    /// Rounds of the host that made most, until rates in force stay within 99.5 % of the optimum.
    pub(super) rounds_to_995: Option<u64>,
    pub(super) virtual_us_to_995: Option<f64>,
    pub(super) fraction_after_10_rounds: Option<f64>,
    /// Least fraction, at the ends of round times, once every application has a rate.
    pub(super) fraction_least: Option<f64>,
    pub(super) fraction_last: Option<f64>,
    /// What shares of hosts alone are worth: the start of the central solver.
    pub(super) fraction_alone: f64,
    /// Round times, past those that were watched, until all were still before the second at rest.
    pub(super) settled_after: Option<u64>,
    pub(super) over_capacity_unit_s: f64,
    pub(super) rounds: u64,
    pub(super) messages_per_host_round: Option<f64>,
    pub(super) bytes_per_host_s: f64,
    pub(super) fell_back: u64,
    pub(super) trace_hash: String,
    pub(super) wall_s: f64,
}

impl Row {
    /// Most rounds that the issue allows, by what is lost; `None` where it says nothing.
    pub(super) fn goal(&self) -> Option<u64> {
        let converges = ["cold", "replaced", "lost", "joined"].contains(&self.change);
        let most = match self.loss {
            0.0 => 10,
            loss if loss <= 0.05 => 12,
            loss if loss <= 0.1 => 15,
            _ => return None,
        };
        (converges && self.late == 0.0).then_some(most)
    }

    /// What does not hold, in words.
    pub(super) fn misses(&self) -> Vec<String> {
        let mut misses = Vec::new();
        if self.over_capacity_unit_s > 0.0 {
            misses.push(format!("{} Mops s above a capacity", self.over_capacity_unit_s));
        }
        if let Some(most) = self.goal()
            && self.rounds_to_995.is_none_or(|rounds| rounds > most)
        {
            misses.push(format!("rounds {:?}, {most} allowed", self.rounds_to_995));
        }
        if self.change == "still" && self.settled_after.is_none() {
            misses.push("hosts do not come to rest".to_owned());
        }
        if self.change == "still" && self.rounds > 0 {
            misses.push(format!("{} rounds while all should be still", self.rounds));
        }
        let least = self.fraction_least.filter(|_| self.goal().is_none());
        if least.is_some_and(|least| least < 0.95 * self.fraction_alone) {
            misses.push(format!(
                "{least:?} of the optimum, hosts alone have {}",
                self.fraction_alone
            ));
        }
        misses
    }

    pub(super) fn line(&self) -> String {
        let number =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.5}"));
        format!(
            "{:5} hosts, rtt {:>6} us, loss {:.2}{}, late {:.2}, {:8} seed {}: rounds {:>3}, after 10 {}, least {}, last {}, alone {:.5}, over {}, {:.0} bytes/s a host, fell back {}",
            self.hosts,
            self.rtt_us,
            self.loss,
            if self.carries { " carried" } else { "" },
            self.late,
            self.change,
            self.seed,
            self.rounds_to_995.map_or("-".to_owned(), |rounds| rounds.to_string()),
            number(self.fraction_after_10_rounds),
            number(self.fraction_least),
            number(self.fraction_last),
            self.fraction_alone,
            self.over_capacity_unit_s,
            self.bytes_per_host_s,
            self.fell_back,
        )
    }
}
