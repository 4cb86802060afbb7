//! Rows of `bench tunnel`, and what they say of the goals.
use super::QUEUE_US;
use crate::goal::{Goal, Limit};
use crate::stats::{decimals, percentile, tenths};
use catchment_channel::Mode;
use serde::Serialize;
use std::fmt;

/// The part of TCP's requests a second without pipeline, and with one of 16.
const PART: f64 = 0.5;
const PART_PIPELINED: f64 = 0.8;
/// The median of one client, beside TCP's.
const LATENCY: f64 = 2.5;
/// The part of TCP's bytes a second over a shaped line, with values of 1 MB.
const PART_OF_BYTES: f64 = 0.95;
/// TCP's median beside a writer, of what its queue takes to empty: with less no queue stood there all the time.
const PART_OF_QUEUE: f64 = 0.5;
/// Its p99: with less the queue was never full, and what tunnels do beside it counts for nothing.
const PART_OF_FULL_QUEUE: f64 = 0.8;
/// The part of a rival's p99 beside a writer of long values on the same line.
const PART_OF_P99: f64 = 0.5;
/// RAW's median there: E5.16 of the paper, as registered.
const PART_OF_MEDIAN: f64 = 1.0;
/// Redis' simplest request, which the paper says gains least.
const SIMPLEST: &str = "PING_INLINE";

/// What carries the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// TCP from namespace to namespace.
    Tcp,
    /// A tunnel over software RoCEv2.
    TunnelRaw,
    /// The same, over an agent on each side in the mode `share`: messages go over shared queue pairs.
    TunnelShare,
    /// The same, over an agent on each side.
    TunnelDrum,
}

/// Where a row was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Place {
    /// Nothing for TCP.
    pub(crate) provider: Option<&'static str>,
    pub(crate) command: String,
    pub(crate) clients: u32,
    pub(crate) pipeline: u32,
    pub(crate) value_bytes: u32,
    /// What ran beside it.
    pub(crate) background: Option<String>,
    /// Bits a second of the line between the hosts, towards the service, where there is one.
    pub(crate) shaped_bps: Option<u64>,
}

impl Place {
    /// Whether another row was measured in the same place, with any provider.
    fn is_beside(&self, other: &Self) -> bool {
        Self { provider: None, ..self.clone() } == Self { provider: None, ..other.clone() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, clients, pipeline, value_bytes, .. } = self;
        write!(
            f,
            " {command}, {clients} clients, pipeline {pipeline}, values of {value_bytes} bytes"
        )?;
        if let Some(bps) = self.shaped_bps {
            write!(f, ", over {} Mbit/s", bps / 1_000_000)?;
        }
        match &self.background {
            Some(background) => write!(f, ", beside {background}"),
            None => Ok(()),
        }
    }
}

/// What one run found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) requests_per_s: f64,
    pub(super) latency_us_p50: f64,
    pub(super) latency_us_p99: f64,
    /// Nothing beside a background, whose time it would be too.
    pub(super) cpu_s_per_mreq: Option<f64>,
    /// That the service of the background took in meanwhile.
    pub(super) background_bytes_per_s: Option<f64>,
}

/// Medians of the runs.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    what: What,
    /// How messages travel: nothing for TCP.
    mode: Option<&'static str>,
    #[serde(flatten)]
    place: Place,
    requests_per_s: f64,
    latency_us_p50: f64,
    latency_us_p99: f64,
    /// Of service, clients, ends and agents together.
    cpu_s_per_mreq: Option<f64>,
    background_bytes_per_s: Option<f64>,
    redis_version: String,
    runs: usize,
}

/// Returns the version in what `redis-server --version` prints.
pub(super) fn version(said: &str) -> String {
    let word = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
    word.unwrap_or("unknown").to_owned()
}

impl Row {
    pub(super) const HEAD: &str = "             mode      command      clients  pipeline    bytes   requests/s    p50 us    p99 us   CPU s/10^6  beside MB/s";

    pub(super) fn new(
        (what, mode): (What, Option<Mode>),
        place: Place,
        found: &[Found],
        version: &str,
    ) -> Self {
        let median =
            |of: &dyn Fn(&Found) -> f64| percentile(&found.iter().map(of).collect::<Vec<_>>(), 0.5);
        // Of what all runs have or none.
        let known = |of: fn(&Found) -> Option<f64>| {
            let values: Vec<_> = found.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| percentile(&values, 0.5))
        };
        Self {
            what,
            mode: mode.map(Mode::name),
            place,
            requests_per_s: tenths(median(&|one| one.requests_per_s)),
            latency_us_p50: tenths(median(&|one| one.latency_us_p50)),
            latency_us_p99: tenths(median(&|one| one.latency_us_p99)),
            cpu_s_per_mreq: known(|one| one.cpu_s_per_mreq).map(|cpu_s| decimals(cpu_s, 2)),
            background_bytes_per_s: known(|one| one.background_bytes_per_s).map(f64::round),
            redis_version: version.to_owned(),
            runs: found.len(),
        }
    }

    /// Returns the row of another, measured in the same place.
    fn beside<'r>(&self, what: What, rows: &'r [Self]) -> Option<&'r Self> {
        rows.iter().find(|one| one.what == what && one.place.is_beside(&self.place))
    }

    /// Returns it as a line for a person.
    pub(super) fn line(&self) -> String {
        let or_dash = |value: Option<f64>| value.map_or("-".to_owned(), |value| value.to_string());
        format!(
            "{:<12} {:<9} {:<12} {:>7} {:>9} {:>8} {:>12.0} {:>9.1} {:>9.1} {:>12} {:>12}",
            format!("{:?}", self.what).to_lowercase(),
            self.mode.unwrap_or("-"),
            self.place.command,
            self.place.clients,
            self.place.pipeline,
            self.place.value_bytes,
            self.requests_per_s,
            self.latency_us_p50,
            self.latency_us_p99,
            or_dash(self.cpu_s_per_mreq),
            or_dash(self.background_bytes_per_s.map(|bytes| tenths(bytes / 1e6))),
        )
    }
}

/// Returns what the rows of the tunnels say of the goals, beside TCP in the same cell.
pub(super) fn goals(rows: &[Row]) -> Vec<Goal<Place>> {
    rows.iter().flat_map(|row| goals_of(row, rows)).collect()
}

fn goals_of(row: &Row, rows: &[Row]) -> Vec<Goal<Place>> {
    let beside = |what| row.beside(what, rows);
    let who = match row.what {
        What::TunnelRaw => "tunnel-raw",
        What::TunnelDrum => "tunnel-drum",
        What::Tcp => return queue_of(row),
        // A rival, not what is to reach the goals.
        What::TunnelShare => return Vec::new(),
    };
    let who = match row.mode {
        Some(mode) if mode != Mode::default().name() => format!("{who} ({mode})"),
        _ => who.to_owned(),
    };
    let Some(tcp) = beside(What::Tcp) else { return Vec::new() };
    let place = &row.place;
    let part = row.requests_per_s / tcp.requests_per_s;
    let requests = format!("{who}'s requests a second beside TCP's");
    let goal = |name: &str, ratio, limit| Goal::new(name, place.clone(), ratio, limit);
    match (place.shaped_bps, place.clients, place.pipeline) {
        (Some(_), ..) if place.background.is_some() => {
            let rivals = [("TCP's", Some(tcp)), ("tunnel-raw's", beside(What::TunnelRaw))];
            let rivals = rivals.into_iter().filter_map(|(name, rival)| Some((name, rival?)));
            let goals = rivals.map(|(name, rival)| {
                let ratio = row.latency_us_p99 / rival.latency_us_p99;
                goal(&format!("{who}'s p99 by {name}"), ratio, Limit::AtMost(PART_OF_P99))
            });
            if row.what != What::TunnelDrum {
                return Vec::new();
            }
            let medians = [
                (format!("{who}'s median by tunnel-raw's"), part_of_raw(row, rows)),
                (
                    format!("{who}'s gain of {SIMPLEST} by the least of the others'"),
                    gain_of_simplest(row, rows),
                ),
            ];
            let medians = medians.into_iter().filter_map(|(name, ratio)| {
                Some(goal(&name, ratio?, Limit::AtMost(PART_OF_MEDIAN)))
            });
            goals.chain(medians).collect()
        }
        (Some(_), ..) => vec![goal(&requests, part, Limit::AtLeast(PART_OF_BYTES))],
        (None, 1, _) => {
            let ratio = row.latency_us_p50 / tcp.latency_us_p50;
            let name = format!("{who}'s median of one client beside TCP's");
            vec![goal(&name, ratio, Limit::AtMost(LATENCY))]
        }
        (None, _, 1) => vec![goal(&requests, part, Limit::AtLeast(PART))],
        (None, ..) => vec![goal(&requests, part, Limit::AtLeast(PART_PIPELINED))],
    }
}

/// Returns the median by that of tunnel-raw in the same place.
fn part_of_raw(row: &Row, rows: &[Row]) -> Option<f64> {
    Some(row.latency_us_p50 / row.beside(What::TunnelRaw, rows)?.latency_us_p50)
}

/// Returns how many times as fast the simplest request is as over tunnel-raw, by the same of the command that gains least;
/// nothing of other commands.
fn gain_of_simplest(row: &Row, rows: &[Row]) -> Option<f64> {
    if row.place.command != SIMPLEST {
        return None;
    }
    let is_other = |one: &&Row| {
        let place = Place { command: SIMPLEST.to_owned(), ..one.place.clone() };
        one.what == row.what && one.place.command != SIMPLEST && place.is_beside(&row.place)
    };
    let parts = rows.iter().filter(is_other).filter_map(|one| part_of_raw(one, rows));
    let most = parts.max_by(f64::total_cmp)?;
    Some(most / part_of_raw(row, rows)?)
}

/// Returns whether TCP's row beside a writer shows the queue that the rows of tunnels beside it are judged by.
fn queue_of(row: &Row) -> Vec<Goal<Place>> {
    if row.place.background.is_none() {
        return Vec::new();
    }
    let median = "TCP's median by the time of the queue; below, no queue stood there all the time";
    let p99 =
        "TCP's p99 by the time of the queue; below, the others beside the writer count for nothing";
    let goal = |name, latency_us: f64, limit| {
        Goal::new(name, row.place.clone(), latency_us / QUEUE_US, Limit::AtLeast(limit))
    };
    vec![
        goal(median, row.latency_us_p50, PART_OF_QUEUE),
        goal(p99, row.latency_us_p99, PART_OF_FULL_QUEUE),
    ]
}
