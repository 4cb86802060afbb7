//! Rows of `bench tunnel`, and what they say of the goals.
use crate::goal::{Goal, Limit, Unmeasured};
use crate::stats::{decimals, percentile, tenths};
use serde::Serialize;
use std::fmt;

/// The part of TCP's requests a second without pipeline, and with one of 16.
const PART: f64 = 0.5;
const PART_PIPELINED: f64 = 0.8;
/// The median of one client, beside TCP's.
const LATENCY: f64 = 2.5;

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
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, clients, pipeline, .. } = self;
        write!(f, " {command}, {clients} clients, pipeline {pipeline}")
    }
}

/// What one run found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) requests_per_s: f64,
    pub(super) latency_us_p50: f64,
    pub(super) latency_us_p99: f64,
    pub(super) cpu_s_per_mreq: f64,
}

/// Medians of the runs.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    what: What,
    #[serde(flatten)]
    place: Place,
    background: Option<String>,
    shaped_bps: Option<u64>,
    requests_per_s: f64,
    latency_us_p50: f64,
    latency_us_p99: f64,
    /// Of service, clients, ends and agents together.
    cpu_s_per_mreq: f64,
    redis_version: String,
    runs: usize,
}

/// Returns the version in what `redis-server --version` prints.
pub(super) fn version(said: &str) -> String {
    let word = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
    word.unwrap_or("unknown").to_owned()
}

impl Row {
    pub(super) const HEAD: &str =
        "             command      clients  pipeline   requests/s    p50 us    p99 us   CPU s/10^6";

    pub(super) fn new(what: What, place: Place, found: &[Found], version: &str) -> Self {
        let median =
            |of: fn(&Found) -> f64| percentile(&found.iter().map(of).collect::<Vec<_>>(), 0.5);
        Self {
            what,
            place,
            background: None,
            shaped_bps: None,
            requests_per_s: median(|one| one.requests_per_s).round(),
            latency_us_p50: tenths(median(|one| one.latency_us_p50)),
            latency_us_p99: tenths(median(|one| one.latency_us_p99)),
            cpu_s_per_mreq: decimals(median(|one| one.cpu_s_per_mreq), 2),
            redis_version: version.to_owned(),
            runs: found.len(),
        }
    }

    /// Returns it as a line for a person.
    pub(super) fn line(&self) -> String {
        format!(
            "{:<12} {:<12} {:>7} {:>9} {:>12.0} {:>9.1} {:>9.1} {:>12.2}",
            format!("{:?}", self.what).to_lowercase(),
            self.place.command,
            self.place.clients,
            self.place.pipeline,
            self.requests_per_s,
            self.latency_us_p50,
            self.latency_us_p99,
            self.cpu_s_per_mreq,
        )
    }
}

/// Returns what the rows of the tunnels say of the goals, beside TCP in the same cell.
pub(super) fn goals(rows: &[Row]) -> Vec<Goal<Place>> {
    let goals = rows.iter().filter_map(|row| {
        let tcp = rows.iter().find(|tcp| {
            let same = |place: &Place| (place.command.clone(), place.clients, place.pipeline);
            tcp.what == What::Tcp && same(&tcp.place) == same(&row.place)
        })?;
        let who = match row.what {
            What::TunnelRaw => "tunnel-raw",
            What::TunnelDrum => "tunnel-drum",
            // A rival, not what is to reach the goals.
            What::TunnelShare | What::Tcp => return None,
        };
        let place = row.place.clone();
        let part = row.requests_per_s / tcp.requests_per_s;
        let requests = format!("{who}'s requests a second beside TCP's");
        Some(match (place.clients, place.pipeline) {
            (1, _) => {
                let name = format!("{who}'s median of one client beside TCP's");
                let ratio = row.latency_us_p50 / tcp.latency_us_p50;
                Goal::new(&name, place, ratio, Limit::AtMost(LATENCY))
            }
            (_, 1) => Goal::new(&requests, place, part, Limit::AtLeast(PART)),
            _ => Goal::new(&requests, place, part, Limit::AtLeast(PART_PIPELINED)),
        })
    });
    goals.collect()
}

/// Goals that this measurement does not reach yet.
pub(super) fn unmeasured() -> Vec<Unmeasured> {
    let shaped = "there are no rows over a shaped hop yet";
    [
        ("0.95 of TCP's bytes at 1 MB values over a shaped 1 Gbit/s hop", shaped),
        (
            "beside one writer of 64 MB values on the same shaped hop, p99 of SET, GET and PING through tunnel-drum at most 0.5 \
             of tcp's and of tunnel-raw's",
            shaped,
        ),
    ]
    .map(|(goal, why)| Unmeasured::new(goal, why))
    .into()
}
