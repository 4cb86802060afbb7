//! What software RoCE set out to reach beside TCP and bare UDP, written down before the first run.
use super::row::{Cell, Row, Sample};
use crate::goal::{self, Limit};
use crate::stats;
use serde::Serialize;
use std::fmt;

/// A goal of the whole table, in no place of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Everywhere {}

impl fmt::Display for Everywhere {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

pub(crate) type Goal = goal::Goal<Everywhere>;

struct Rule {
    name: &'static str,
    ours: fn(&Cell) -> bool,
    other: fn(&Cell) -> bool,
    value: fn(&Sample) -> Option<f64>,
    limit: Limit,
}

const fn at_least(
    name: &'static str,
    ours: fn(&Cell) -> bool,
    other: fn(&Cell) -> bool,
    limit: f64,
) -> Rule {
    Rule { name, ours, other, value: |sample| sample.bytes_per_s, limit: Limit::AtLeast(limit) }
}

fn is_stream(cell: &Cell, what: &str, path_mtu: usize) -> bool {
    (cell.what, cell.op, cell.path_mtu) == (what, "write", Some(path_mtu)) && cell.bytes > 64
}

fn is_ping_pong(cell: &Cell, what: &str, polling: Option<&str>) -> bool {
    (cell.what, cell.op, cell.polling) == (what, "write-latency", polling)
}

const RULES: &[Rule] = &[
    at_least(
        "goodput of WRITE, path MTU 4096, ours / iperf3",
        |cell| is_stream(cell, "ours", 4096),
        |cell| cell.what == "iperf3",
        1.0,
    ),
    at_least(
        "goodput of WRITE, path MTU 4096, ours / TCP from and to as much memory",
        |cell| is_stream(cell, "ours", 4096),
        |cell| cell.what == "tcp",
        1.0,
    ),
    at_least(
        "goodput of WRITE, path MTU 4096, the same 128 KiB again and again, ours / iperf3",
        |cell| cell.op == "write-again",
        |cell| cell.what == "iperf3",
        1.0,
    ),
    at_least(
        "goodput of WRITE, path MTU 4096, ours / bare UDP",
        |cell| is_stream(cell, "ours", 4096),
        |cell| is_stream(cell, "bare-udp", 4096),
        0.85,
    ),
    at_least(
        "goodput of WRITE, path MTU 1024, ours / iperf3",
        |cell| is_stream(cell, "ours", 1024),
        |cell| cell.what == "iperf3",
        0.9,
    ),
    at_least(
        "goodput of WRITE, path MTU 1024, ours / TCP from and to as much memory",
        |cell| is_stream(cell, "ours", 1024),
        |cell| cell.what == "tcp",
        0.9,
    ),
    Rule {
        name: "CPU seconds per GB of the receiver, WRITE, path MTU 4096, ours / TCP to as much memory",
        ours: |cell| is_stream(cell, "ours", 4096),
        other: |cell| cell.what == "tcp",
        value: |sample| sample.cpu_s_per_gb_receiver,
        limit: Limit::AtMost(1.0),
    },
    Rule {
        name: "CPU seconds per GB of the receiver, WRITE, path MTU 4096, ours / iperf3",
        ours: |cell| is_stream(cell, "ours", 4096),
        other: |cell| cell.what == "iperf3",
        value: |sample| sample.cpu_s_per_gb_receiver,
        limit: Limit::AtMost(1.0),
    },
    Rule {
        name: "latency of a 64-byte WRITE, engine thread, ours / bare UDP with a receiving thread",
        ours: |cell| is_ping_pong(cell, "ours", Some("engine thread")),
        other: |cell| is_ping_pong(cell, "bare-udp", Some("receiving thread")),
        value: |sample| sample.latency_ns,
        limit: Limit::AtMost(1.5),
    },
    Rule {
        name: "latency of a 64-byte WRITE, inline polling, ours / bare UDP",
        ours: |cell| is_ping_pong(cell, "ours", Some("inline polling")),
        other: |cell| is_ping_pong(cell, "bare-udp", Some("inline polling")),
        value: |sample| sample.latency_ns,
        limit: Limit::AtMost(1.5),
    },
    Rule {
        name: "latency of a 64-byte WRITE, ours with the engine thread / bare UDP without a thread",
        ours: |cell| is_ping_pong(cell, "ours", Some("engine thread")),
        other: |cell| is_ping_pong(cell, "bare-udp", Some("inline polling")),
        value: |sample| sample.latency_ns,
        limit: Limit::AtMost(1.5),
    },
];

pub(crate) fn judge(rows: &[Row]) -> Vec<Goal> {
    RULES.iter().filter_map(|rule| rule.judge(rows)).collect()
}

impl Rule {
    /// Round by round, since the two ran one after the other then.
    fn judge(&self, rows: &[Row]) -> Option<Goal> {
        let ours = rows.iter().find(|row| (self.ours)(&row.cell))?;
        let other = rows.iter().find(|row| (self.other)(&row.cell))?;
        let pairs = ours.samples.iter().zip(&other.samples);
        let ratios: Option<Vec<f64>> =
            pairs.map(|(a, b)| Some((self.value)(a)? / (self.value)(b)?)).collect();
        let ratio = stats::percentile(&ratios?, 0.5);
        Some(Goal::new(self.name, Everywhere {}, ratio, self.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &'static str, op: &'static str, path_mtu: Option<usize>, rates: &[f64]) -> Row {
        let cell = Cell { what, op, polling: None, path_mtu, bytes: 1 << 20 };
        let samples = rates.iter().map(|rate| Sample {
            bytes_per_s: Some(*rate),
            cpu_s_per_gb_receiver: Some(1e9 / rate),
            ..Sample::default()
        });
        Row::of(cell, samples.collect())
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let rows = [
            row("iperf3", "stream", None, &[1e9, 4e9, 2e9]),
            row("ours", "write", Some(4096), &[2e9, 2e9, 2.2e9]),
        ];
        let goals = judge(&rows);
        let seen: Vec<_> = goals.iter().map(|goal| (goal.ratio, goal.held)).collect();
        assert_eq!(seen, [(1.1, true), (0.909, true)]);
        let rows = [
            row("bare-udp", "write", Some(4096), &[3e9]),
            row("ours", "write", Some(4096), &[2.4e9]),
        ];
        let goals = judge(&rows);
        assert_eq!((goals.len(), goals[0].ratio, goals[0].held), (1, 0.8, false));
    }
}
