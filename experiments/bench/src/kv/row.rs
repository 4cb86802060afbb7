//! Rows of `bench kv`, and what they say of the goals.
use super::ends::Found;
use crate::goal::{Goal, Limit, Unmeasured};
use crate::stats::{decimals, percentile};
use catchment_kv::Sided;
use catchment_kv::load::{Load, Mix};
use serde::Serialize;
use std::fmt;

/// Seconds of the server's processor for a million GETs.
const SERVER_CPU_S: f64 = 0.01;
/// What a GET may take beyond two bare READs, in nanoseconds.
const GET_NS: f64 = 500.0;
/// Operations of the three mixes of the paper beside each other.
const MIXES_RATIO: f64 = 1.1;
/// Operations beside those of redis-server.
const REDIS_RATIO: f64 = 5.0;

/// Whose device is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// Each client has one of its own.
    Raw,
    /// An agent's, at the rates of the optimum.
    Drum,
    /// Those of two agents, of which each has an end, as requests come: five clients on a queue pair.
    Share,
    /// An agent's, as requests come.
    Unlimited,
    /// No device: sockets.
    None,
}

/// Where a row was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Place {
    pub(super) what: &'static str,
    pub(super) mode: Mode,
    pub(super) provider: Option<&'static str>,
    pub(super) sided: Option<&'static str>,
    pub(super) clients: u32,
    pub(super) keys: u64,
    pub(super) value_bytes: u64,
    pub(super) r#loop: &'static str,
}

/// Where a goal was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spot {
    mix: &'static str,
    mode: Mode,
    provider: Option<&'static str>,
    sided: Option<&'static str>,
    value_bytes: u64,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |word: Option<&'static str>| word.unwrap_or("-");
        let (provider, sided) = (word(self.provider), word(self.sided));
        let mode = format!("{:?}", self.mode).to_lowercase();
        write!(f, " {} {mode} {provider} {sided}, {} bytes", self.mix, self.value_bytes)
    }
}

/// One mix at one place; nothing where nothing was measured.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) place: Place,
    pub(super) ops_per_s: f64,
    pub(super) bytes_per_s: f64,
    pub(super) get_ns_p50: Option<f64>,
    pub(super) get_ns_p99: Option<f64>,
    pub(super) put_ns_p50: Option<f64>,
    pub(super) put_ns_p99: Option<f64>,
    pub(super) server_cpu_s_per_mop: Option<f64>,
    pub(super) retries: Option<u64>,
    pub(super) linearizable: Option<bool>,
    /// What no order explains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<String>,
}

impl Row {
    pub(super) fn new(
        what: &'static str,
        (mode, provider, sided): (Mode, &'static str, Sided),
        clients: u32,
        load: Load,
        found: Found,
    ) -> Self {
        let Found { tally, seconds, server_cpu_s, retries, fault } = found;
        let part =
            |times: &[f64], part| (!times.is_empty()).then(|| percentile(times, part).round());
        let sided = if sided == Sided::One { "one" } else { "two" };
        Self {
            place: Place {
                what,
                mode,
                provider: Some(provider),
                sided: Some(sided),
                clients,
                keys: load.keys,
                value_bytes: load.value_bytes as u64,
                r#loop: "closed",
            },
            ops_per_s: (tally.operations as f64 / seconds).round(),
            bytes_per_s: (tally.bytes as f64 / seconds).round(),
            get_ns_p50: part(&tally.get_ns, 0.5),
            get_ns_p99: part(&tally.get_ns, 0.99),
            put_ns_p50: part(&tally.put_ns, 0.5),
            put_ns_p99: part(&tally.put_ns, 0.99),
            server_cpu_s_per_mop: Some(decimals(
                server_cpu_s * 1e6 / tally.operations.max(1) as f64,
                5,
            )),
            retries: Some(retries + tally.lost),
            linearizable: Some(fault.is_none()),
            fault,
        }
    }

    pub(super) const HEAD: &str = "             mode      provider sided  bytes      ops/s    GET p50 ns     p99   PUT p50 ns     p99  server s/Mop  again  linearizable";

    /// Returns it as a line for a person.
    pub(super) fn line(&self) -> String {
        let number = |value: Option<f64>, decimals: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
        };
        let Place { what, mode, provider, sided, value_bytes, .. } = self.place;
        format!(
            "{what:<12} {:<9} {:<8} {:<5} {value_bytes:>7} {:>10} {:>11} {:>9} {:>11} {:>9} {:>12} {:>7} {}",
            format!("{mode:?}").to_lowercase(),
            provider.unwrap_or("-"),
            sided.unwrap_or("-"),
            number(Some(self.ops_per_s), 0),
            number(self.get_ns_p50, 0),
            number(self.get_ns_p99, 0),
            number(self.put_ns_p50, 0),
            number(self.put_ns_p99, 0),
            number(self.server_cpu_s_per_mop, 4),
            self.retries.map_or("-".to_owned(), |retries| retries.to_string()),
            match (&self.fault, self.linearizable) {
                (Some(fault), _) => fault,
                (None, Some(true)) => "yes",
                (None, _) => "-",
            },
        )
    }

    pub(super) fn spot(&self) -> Spot {
        let Place { what, mode, provider, sided, value_bytes, .. } = self.place;
        Spot { mix: what, mode, provider, sided, value_bytes }
    }
}

fn is_of_paper(row: &Row) -> bool {
    row.place.what.starts_with("paper-")
}

/// Returns what the rows say. Written down before the first run; the numbers are those of the issue.
pub(super) fn goals(
    rows: &[Row],
    alone: &Row,
    (bucket_ns, item_ns): (f64, f64),
    redis: Option<&Row>,
) -> Vec<Goal<Spot>> {
    let reads = Mix::ALL.into_iter().find(|(_, mix)| *mix == Mix::Reads(100));
    let reads = reads.map_or("", |(name, _)| name);
    let is_one = |row: &&Row| row.place.sided == Some("one");
    let gets = rows.iter().filter(|row| row.place.what == reads && is_one(row));
    let mut goals: Vec<Goal<Spot>> = gets
        .filter_map(|row| {
            let limit = Limit::AtMost(SERVER_CPU_S);
            let name = "server's seconds for a million GETs";
            Some(Goal::new(name, row.spot(), row.server_cpu_s_per_mop?, limit))
        })
        .collect();
    if let Some(ns) = alone.get_ns_p50 {
        let name = "GET beside two bare READs (64 bytes and 1 KiB) and 500 ns";
        let part = ns / (bucket_ns + item_ns + GET_NS);
        goals.push(Goal::new(name, alone.spot(), part, Limit::AtMost(1.0)));
    }
    goals.extend(rows.iter().filter(is_one).filter_map(|one| {
        let mut others = rows.iter().filter(|row| row.place.sided == Some("two"));
        let place =
            |row: &Row| (row.place.what, row.place.mode, row.place.provider, row.place.value_bytes);
        let two = others.find(|two| place(two) == place(one))?;
        let name = "one-sided operations beside two-sided ones";
        Some(Goal::new(name, one.spot(), one.ops_per_s / two.ops_per_s, Limit::AtLeast(1.0)))
    }));
    goals.extend(
        rows.iter()
            .filter(is_one)
            .filter(|row| row.place.what == "paper-95-5" && row.place.mode == Mode::Drum)
            .map(|first| {
                let same = rows.iter().filter(is_one).filter(|row| {
                    is_of_paper(row)
                        && row.place.mode == Mode::Drum
                        && row.place.value_bytes == first.place.value_bytes
                });
                let ops: Vec<f64> = same.map(|row| row.ops_per_s).collect();
                let most = ops.iter().copied().fold(0.0, f64::max);
                let least = ops.iter().copied().fold(f64::INFINITY, f64::min);
                let name = "the paper's mixes under DRUM, the fastest beside the slowest";
                Goal::new(name, first.spot(), most / least, Limit::AtMost(MIXES_RATIO))
            }),
    );
    goals.extend(redis.zip(rows.first()).map(|(redis, row)| {
        let name = "operations beside those of redis-server over TCP";
        Goal::new(name, row.spot(), row.ops_per_s / redis.ops_per_s, Limit::AtLeast(REDIS_RATIO))
    }));
    let not = rows.iter().filter(|row| row.linearizable == Some(false)).count();
    if let Some(row) = rows.first() {
        let name = "rows whose histories no order explains";
        goals.push(Goal::new(name, row.spot(), not as f64, Limit::AtMost(0.0)));
    }
    goals
}

/// Goals that this run says nothing about.
pub(super) fn unmeasured(redis: Option<anyhow::Error>) -> Vec<Unmeasured> {
    let share = (
        "operations under SHARE between those of RAW and DRUM from 300 clients",
        "there is no modelled cache below the store".to_owned(),
    );
    let redis = redis.map(|error| {
        ("operations beside those of redis-server over TCP, at least 5", format!("{error:#}"))
    });
    let all = std::iter::once(share).chain(redis);
    all.map(|(goal, why)| Unmeasured::new(goal, &why)).collect()
}
