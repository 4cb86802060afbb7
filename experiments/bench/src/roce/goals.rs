//! What software RoCE set out to reach beside TCP and bare UDP, written down before the first run.
use super::row::{Cell, Row, Sample};
use crate::goal::Limit::{AtLeast, AtMost};
use crate::goal::{self, Limit};
use crate::stats;
use serde::Serialize;

/// A goal of the whole table, in no place of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, derive_more::Display)]
#[display("")]
pub(crate) struct Everywhere {}

pub(crate) type Goal = goal::Goal<Everywhere>;

type Value = fn(&Sample) -> Option<f64>;

/// A row of the table: its name, kind, path MTU and way of polling.
type Which = (&'static str, &'static str, Option<usize>, Option<&'static str>);

/// What is claimed of the ratio of one row to another, by which column.
struct Rule {
    name: &'static str,
    ours: Which,
    other: Which,
    value: Value,
    limit: Limit,
}

const RATE: Value = |sample| sample.bytes_per_s;
const RECEIVER_CPU: Value = |sample| sample.cpu_s_per_gb_receiver;
const LATENCY: Value = |sample| sample.latency_ns;

const OURS_4096: Which = ("ours", "write", Some(4096), None);
const OURS_1024: Which = ("ours", "write", Some(1024), None);
const OURS_AGAIN: Which = ("ours", "write-again", Some(4096), None);
const BARE_4096: Which = ("bare-udp", "write", Some(4096), None);
const IPERF3: Which = ("iperf3", "stream", None, None);
const TCP: Which = ("tcp", "stream", None, None);
const OURS_THREAD: Which = ("ours", "write-latency", Some(4096), Some("engine thread"));
const OURS_INLINE: Which = ("ours", "write-latency", Some(4096), Some("inline polling"));
const BARE_THREAD: Which = ("bare-udp", "write-latency", Some(4096), Some("receiving thread"));
const BARE_INLINE: Which = ("bare-udp", "write-latency", Some(4096), Some("inline polling"));

#[rustfmt::skip]
const RULES: [Rule; 11] = [
    rule("goodput of WRITE, path MTU 4096, ours / iperf3",
        OURS_4096, IPERF3, RATE, AtLeast(1.0)),
    rule("goodput of WRITE, path MTU 4096, ours / TCP from and to as much memory",
        OURS_4096, TCP, RATE, AtLeast(1.0)),
    rule("goodput of WRITE, path MTU 4096, the same 128 KiB again and again, ours / iperf3",
        OURS_AGAIN, IPERF3, RATE, AtLeast(1.0)),
    rule("goodput of WRITE, path MTU 4096, ours / bare UDP",
        OURS_4096, BARE_4096, RATE, AtLeast(0.85)),
    rule("goodput of WRITE, path MTU 1024, ours / iperf3",
        OURS_1024, IPERF3, RATE, AtLeast(0.9)),
    rule("goodput of WRITE, path MTU 1024, ours / TCP from and to as much memory",
        OURS_1024, TCP, RATE, AtLeast(0.9)),
    rule("CPU seconds per GB of the receiver, WRITE, path MTU 4096, ours / TCP to as much memory",
        OURS_4096, TCP, RECEIVER_CPU, AtMost(1.0)),
    rule("CPU seconds per GB of the receiver, WRITE, path MTU 4096, ours / iperf3",
        OURS_4096, IPERF3, RECEIVER_CPU, AtMost(1.0)),
    rule("latency of a 64-byte WRITE, engine thread, ours / bare UDP with a receiving thread",
        OURS_THREAD, BARE_THREAD, LATENCY, AtMost(1.5)),
    rule("latency of a 64-byte WRITE, inline polling, ours / bare UDP",
        OURS_INLINE, BARE_INLINE, LATENCY, AtMost(1.5)),
    rule("latency of a 64-byte WRITE, ours with the engine thread / bare UDP without a thread",
        OURS_THREAD, BARE_INLINE, LATENCY, AtMost(1.5)),
];

const fn rule(name: &'static str, ours: Which, other: Which, value: Value, limit: Limit) -> Rule {
    Rule { name, ours, other, value, limit }
}

pub(crate) fn judge(rows: &[Row]) -> Vec<Goal> {
    RULES.iter().filter_map(|rule| rule.judge(rows)).collect()
}

/// Returns, of rows of ours beside TCP and bare UDP: the receiver's processor time by TCP's to as much
/// memory, and the latency of a 64-byte WRITE by that of bare UDP with the same waiting.
pub(crate) fn beside(rows: &[Row]) -> [Option<f64>; 2] {
    const RULES: [Rule; 2] = [
        rule("", OURS_4096, TCP, RECEIVER_CPU, AtMost(1.0)),
        rule("", OURS_INLINE, BARE_INLINE, LATENCY, AtMost(1.25)),
    ];
    RULES.map(|rule| rule.judge(rows).map(|goal| goal.ratio))
}

impl Rule {
    /// Round by round, since the two ran one after the other then.
    fn judge(&self, rows: &[Row]) -> Option<Goal> {
        let row = |which: Which| {
            let of = |cell: &Cell| (cell.what, cell.op, cell.path_mtu, cell.polling);
            rows.iter().find(|row| of(&row.cell) == which)
        };
        let (ours, other) = (row(self.ours)?, row(self.other)?);
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
