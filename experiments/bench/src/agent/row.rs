//! Rows of `bench agent`, and what they say of the goals.
use super::seat::Found;
use crate::goal::{Goal, Limit, Unmeasured};
use crate::stats::{decimals, percentile, ratio, tenths};
use catchment_perf::{Operation, Plan};
use serde::Serialize;
use std::fmt;

/// Added latency beyond two hand-overs of a cache line that the goal allows, in nanoseconds.
const ADDED_NS: f64 = 250.0;
/// Parts of RAW's operations from so many bytes, and below.
const LONG_BYTES: u64 = 64 << 10;
const LONG_PART: f64 = 0.95;
const SHORT_PART: f64 = 0.6;
const SHORT_PART_ROCE: f64 = 0.75;
/// Added latency beside that of RAW over a network.
const ADDED_PART_ROCE: f64 = 0.5;
/// Operations beside those of RAW: so few that connections do not share what there is, but stand still.
const LEAST_SHARED_PART: f64 = 0.05;

/// Who moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// Each application has the device for itself.
    Raw,
    /// Two agents, of which each has an end: JUSTITIA, tokens that a latency target governs.
    Justitia,
    /// The agent, at the rates of the optimum.
    Drum,
    /// Two agents, of which each has an end: SHARE, five connections on a queue pair, first come first served.
    Share,
    /// The agent without shares: requests go to the device as they come.
    Unlimited,
    /// Two agents, of which each has an end, whose applications share queue pairs.
    Shared,
    /// Two processes hand one cache line to and fro.
    CacheLine,
    /// Connections over which nothing, or little, is sent.
    Connections,
    /// Requests of many applications, each with something by which it is known where it belongs.
    Routing,
}

/// Where a row was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Place {
    pub(crate) provider: &'static str,
    pub(crate) op: Option<Operation>,
    pub(crate) bytes: u64,
    pub(crate) apps: u32,
    pub(crate) batch: Option<u32>,
    pub(crate) outstanding: u32,
}

impl Place {
    pub(crate) fn of(provider: &'static str, plan: &Plan) -> Self {
        Self {
            provider,
            op: Some(plan.test.operation),
            bytes: plan.bytes,
            apps: 1,
            batch: Some(plan.batch),
            outstanding: plan.depth,
        }
    }

    /// Returns the least part of RAW's operations that the agent may have, where there is a goal.
    fn least_part(&self) -> Option<f64> {
        if self.bytes >= LONG_BYTES {
            return Some(LONG_PART);
        }
        let part = if self.provider == "roce" { SHORT_PART_ROCE } else { SHORT_PART };
        (self.bytes == 64 && self.outstanding == 64).then_some(part)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = self.op.map_or("-".to_owned(), |op| format!("{op:?}").to_uppercase());
        write!(f, " {} {op}, {} bytes, {} outstanding", self.provider, self.bytes, self.outstanding)
    }
}

/// Parts of the processor time of an agent's engine, which add up to 1; nothing where there is no agent.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Steps {
    take_fraction: Option<f64>,
    schedule_fraction: Option<f64>,
    post_fraction: Option<f64>,
    complete_fraction: Option<f64>,
    command_fraction: Option<f64>,
    look_fraction: Option<f64>,
}

impl Steps {
    fn of(found: &[Found]) -> Self {
        let part = |at: usize| {
            median(found, |one| Some(one.step_fractions?[at])).map(|part| decimals(part, 4))
        };
        Self {
            take_fraction: part(0),
            schedule_fraction: part(1),
            post_fraction: part(2),
            complete_fraction: part(3),
            command_fraction: part(4),
            look_fraction: part(5),
        }
    }
}

/// Medians of fresh processes; nothing where nothing was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(super) what: What,
    #[serde(flatten)]
    pub(super) place: Place,
    pub(super) background: Option<String>,
    pub(super) ops_per_s: Option<f64>,
    pub(super) bytes_per_s: Option<f64>,
    /// Beside RAW of the same turn.
    pub(super) ops_ratio_to_raw: Option<f64>,
    /// From posting a request until it is complete; of a cache line, one way.
    pub(super) latency_ns_p50: Option<f64>,
    pub(super) latency_ns_p80: Option<f64>,
    pub(super) latency_ns_p99: Option<f64>,
    /// Beyond RAW of the same turn.
    pub(super) added_ns_p50: Option<f64>,
    /// Processor time of the agent, looking for work included.
    pub(super) agent_ns_per_op: Option<f64>,
    pub(super) cpu_percent_agent: Option<f64>,
    /// Of its engine's processor time: what each step takes, and looks that found nothing.
    #[serde(flatten)]
    pub(super) steps: Steps,
    /// Of the application and its target.
    pub(super) cpu_percent_apps: Option<f64>,
    /// Of the agent in the device, both ends of a connection.
    pub(super) queue_pairs: Option<u64>,
    /// Regions that the agent registered at its device for applications: of both ends over shared memory, none in memory
    /// chunks. Nothing for RAW, which has no agent.
    pub(super) registrations: Option<u64>,
    /// Completions that were not the next one of their connection, by the numbers that both give to requests; and requests
    /// that never had one. Of all runs, warm-ups included.
    pub(super) misrouted: Option<u64>,
    pub(super) lost: Option<u64>,
    /// How many these were, where so many were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) requests: Option<u64>,
    /// In rows of connections: how many, and how many requests they have a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) connections: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) asked_per_s: Option<f64>,
    /// Fresh sets of processes.
    pub(super) runs: usize,
}

fn median(found: &[Found], of: impl Fn(&Found) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = found.iter().filter_map(of).collect();
    (!values.is_empty()).then(|| percentile(&values, 0.5))
}

impl Row {
    /// Returns the row of a cell; `raw` is what RAW did in the same turns.
    pub(crate) fn new(
        what: What,
        (provider, plan): (&'static str, &Plan),
        found: &[Found],
        raw: &[Found],
    ) -> Self {
        Self::measured(what, Place::of(provider, plan), found, raw)
    }

    /// Returns the row of a place; without `raw` nothing is said beside that.
    pub(super) fn measured(what: What, place: Place, found: &[Found], raw: &[Found]) -> Self {
        let ops = |found: &[Found]| found.iter().map(|one| one.ops_per_s).collect::<Vec<_>>();
        let ops_per_s = median(found, |one| Some(one.ops_per_s));
        let latency = |at: usize| median(found, |one| Some(one.latency_ns?[at])).map(tenths);
        let turns = found.iter().zip(raw);
        let added = turns.filter_map(|(one, raw)| Some(one.latency_ns?[0] - raw.latency_ns?[0]));
        let added: Vec<f64> = added.filter(|_| what != What::Raw).collect();
        Self {
            ops_per_s: ops_per_s.map(f64::round),
            bytes_per_s: ops_per_s.map(|ops| (ops * place.bytes as f64).round()),
            ops_ratio_to_raw: (!raw.is_empty())
                .then(|| decimals(ratio(&ops(found), &ops(raw)).median, 4)),
            latency_ns_p50: latency(0),
            latency_ns_p80: latency(1),
            latency_ns_p99: latency(2),
            added_ns_p50: (!added.is_empty()).then(|| tenths(percentile(&added, 0.5))),
            agent_ns_per_op: median(found, |one| one.agent_ns_per_op).map(tenths),
            cpu_percent_agent: median(found, |one| one.cpu_percent_agent).map(tenths),
            steps: Steps::of(found),
            cpu_percent_apps: median(found, |one| Some(one.cpu_percent_apps)).map(tenths),
            queue_pairs: found.iter().filter_map(|one| one.queue_pairs).max(),
            registrations: found.iter().filter_map(|one| one.registrations).max(),
            misrouted: Some(found.iter().map(|one| one.misrouted).sum()),
            lost: Some(found.iter().map(|one| one.lost).sum()),
            ..Self::of(what, place, found.len())
        }
    }

    /// Returns one in which nothing was measured.
    pub(super) fn of(what: What, place: Place, runs: usize) -> Self {
        Self {
            what,
            place,
            background: None,
            ops_per_s: None,
            bytes_per_s: None,
            ops_ratio_to_raw: None,
            latency_ns_p50: None,
            latency_ns_p80: None,
            latency_ns_p99: None,
            added_ns_p50: None,
            agent_ns_per_op: None,
            cpu_percent_agent: None,
            steps: Steps::default(),
            cpu_percent_apps: None,
            queue_pairs: None,
            registrations: None,
            misrouted: None,
            lost: None,
            requests: None,
            connections: None,
            asked_per_s: None,
            runs,
        }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Returns the row of hand-overs of a cache line, from their medians and 99th percentiles.
    pub(crate) fn cache_line(p50: &[f64], p99: &[f64], runs: usize) -> Self {
        let place =
            Place { provider: "memory", op: None, bytes: 64, apps: 1, batch: None, outstanding: 1 };
        Self {
            latency_ns_p50: Some(tenths(percentile(p50, 0.5))),
            latency_ns_p99: Some(tenths(percentile(p99, 0.5))),
            ..Self::of(What::CacheLine, place, runs)
        }
    }

    pub(crate) const HEAD: &str = "                 op       bytes  outstanding       ops/s  of RAW   p50 ns   p99 ns  added  agent ns/op";

    /// Returns it as a line for a person.
    pub(crate) fn line(&self) -> String {
        let number = |value: Option<f64>, decimals: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
        };
        format!(
            "{:<10} {:<5} {:<6} {:>7} {:>12} {:>11} {:>7} {:>8} {:>8} {:>6} {:>12}{}",
            format!("{:?}", self.what).to_lowercase(),
            self.place.provider,
            self.place.op.map_or("-".to_owned(), |op| format!("{op:?}").to_uppercase()),
            self.place.bytes,
            self.place.outstanding,
            number(self.ops_per_s, 0),
            number(self.ops_ratio_to_raw, 3),
            number(self.latency_ns_p50, 0),
            number(self.latency_ns_p99, 0),
            number(self.added_ns_p50, 0),
            number(self.agent_ns_per_op, 0),
            self.more(),
        )
    }

    /// Returns what only rows of many applications have.
    fn more(&self) -> String {
        let percent = self.cpu_percent_agent.unwrap_or(0.0);
        match (self.connections, self.requests) {
            (Some(count), _) => {
                let asked = self.asked_per_s.unwrap_or(0.0);
                format!(" {count} connections, {asked} requests/s: {percent} % of a core")
            }
            (_, Some(count)) => {
                let [misrouted, lost] = [self.misrouted, self.lost].map(|count| count.unwrap_or(0));
                format!(" {count} requests: {misrouted} misrouted, {lost} lost")
            }
            (None, None) => String::new(),
        }
    }

    /// Returns what the row says of the goals; `hand_over_ns` is that of a cache line in this run.
    pub(crate) fn goals(&self, hand_over_ns: f64) -> Vec<Goal<Place>> {
        if self.what == What::Shared {
            let part = self.ops_ratio_to_raw;
            let name = "operations on shared queue pairs beside RAW";
            let goal = |part| Goal::new(name, self.place, part, Limit::AtLeast(LEAST_SHARED_PART));
            return part.map(goal).into_iter().collect();
        }
        if self.what != What::Drum {
            return Vec::new();
        }
        let part_of_operations =
            self.place.least_part().zip(self.ops_ratio_to_raw).map(|(least, part)| {
                Goal::new("agent's operations beside RAW", self.place, part, Limit::AtLeast(least))
            });
        let timed = self.place.bytes == 64 && self.place.op == Some(Operation::Write);
        let added = self.added_ns_p50.filter(|_| timed);
        if self.place.provider == "roce" {
            let name = "agent's added_ns_p50 beside RAW's latency, on two cores";
            let latency = added.zip(self.latency_ns_p50);
            let part = latency.map(|(added, whole)| added / (whole - added).max(1.0));
            let latency =
                part.map(|part| Goal::new(name, self.place, part, Limit::AtMost(ADDED_PART_ROCE)));
            return part_of_operations.into_iter().chain(latency).collect();
        }
        let added = added.map(|added| {
            let allowed = 2.0 * hand_over_ns + ADDED_NS;
            let name = "agent's added_ns_p50 by two hand-overs of a cache line and 250 ns";
            Goal::new(name, self.place, added / allowed, Limit::AtMost(1.0))
        });
        part_of_operations.into_iter().chain(added).collect()
    }
}

/// Figure 10 of the DRUM paper over shared memory, where no NIC runs out of state: RAW is the fastest alone (E5.10).
pub(crate) fn goals_alone(rows: &[Row]) -> Vec<Goal<Place>> {
    let is_small = |row: &&Row| {
        let Place { provider, op, bytes, .. } = row.place;
        row.what == What::Raw && (provider, op, bytes) == ("shm", Some(Operation::Write), 64)
    };
    let goal = |raw: &Row| {
        let others = rows.iter().filter(|row| row.what != What::Raw && row.place == raw.place);
        let most = others.filter_map(|row| row.ops_ratio_to_raw).max_by(f64::total_cmp)?;
        let name = "operations of the fastest of the others beside RAW's, alone";
        Some(Goal::new(name, raw.place, most, Limit::AtMost(1.0)))
    };
    rows.iter().filter(is_small).filter_map(goal).collect()
}

/// Goals that this measurement does not reach yet.
pub(crate) fn unmeasured() -> Vec<Unmeasured> {
    [
        (
            "agent's added_ns_p50 over roce, at most 0.15 of RAW's latency where the agent has a core of its own",
            "application, agents and target are four processes, here on two cores",
        ),
    ]
    .map(|(goal, why)| Unmeasured::new(goal, why))
    .into()
}
