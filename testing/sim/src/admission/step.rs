//! A link that carries less, and then more, and the controller is told, or finds out ([`untold`]).
use super::account::Parts;
use super::added::setup;
use super::cell::{LINK_BPS, Method};
use super::row::{Goal, Shown};
use super::trace::Event;
use super::untold::{self, Found};
use super::world;
use crate::parallel;
use catchment_control::admission::{Config, LinkId};

/// How fast rates follow.
#[derive(Debug, serde::Serialize)]
pub(super) struct StepRow {
    what: &'static str,
    place: &'static str,
    method: &'static str,
    case: &'static str,
    rtt_ms: f64,
    /// From the step until no source sends more than the link carries then, or until 0.97 of it are used; of several runs the
    /// longest.
    settle_ms: Option<f64>,
    goal_ms: f64,
    /// Of the capacity, what is granted between then and the next step, or the last grant's end; of several runs the mean, as all
    /// that follows.
    used_fraction: Option<f64>,
    /// Of several runs.
    used_fraction_min: Option<f64>,
    /// Sent beyond what the link carries, in the time until then.
    over_capacity_bits: f64,
    /// In all of the runs.
    frames_lost: u64,
    packets_dropped: Option<u64>,
    /// How often less was granted because of losses, in all of a run.
    lowered: Option<u64>,
    /// What became of the link in the time of `used_fraction`.
    #[serde(flatten)]
    parts: Option<Parts>,
}

const HALVED_NS: u64 = 2_000_000_000;
const BACK_NS: u64 = 4_000_000_000;
const END_NS: u64 = 6_000_000_000;
/// Of the capacity, to call it used.
const USED: f64 = 0.97;

/// Returns the rows of a method: three senders of half a link and more want all of it all the time. What nobody tells happens in
/// so many runs.
pub(super) fn rows(method: &Method, times: u64) -> Vec<StepRow> {
    let mut setup = setup(method, 3);
    let half_bps = LINK_BPS / 2;
    setup.capacities = vec![(HALVED_NS, LinkId(0), half_bps), (BACK_NS, LinkId(0), LINK_BPS)];
    setup.horizon_ns = END_NS;
    setup.drain_ns = 60_000_000_000;
    let trace: Vec<Event> =
        (0..3).map(|device| Event { at_ns: 0, device, class: 1, frames: 300 }).collect();
    let outcome = world::run(&setup, &trace);
    let lost: u64 = trace
        .iter()
        .zip(&outcome.ends)
        .map(|(event, end)| event.frames - end.frames_ns.len() as u64)
        .sum();
    let rates = &outcome.rates[0];
    let over: Vec<(u64, u64, f64)> = rates
        .windows(2)
        .filter(|pair| pair[1].0 > HALVED_NS && pair[0].0 < BACK_NS && pair[0].1 > half_bps)
        .map(|pair| {
            let (from_ns, until_ns) = (pair[0].0.max(HALVED_NS), pair[1].0.min(BACK_NS));
            let bits = (pair[0].1 - half_bps) as f64 * (until_ns - from_ns) as f64 / 1e9;
            (from_ns, until_ns, bits)
        })
        .collect();
    let fits_ns = over.iter().map(|(_, until_ns, _)| *until_ns).max().unwrap_or(HALVED_NS);
    let used_bps = LINK_BPS as f64 * USED;
    let used = rates.iter().find(|(at_ns, rate)| *at_ns >= BACK_NS && *rate as f64 >= used_bps);
    let since = |at_ns: u64, step_ns: u64| (at_ns - step_ns) as f64 / 1e6;
    let rtt_ms = method.rtt_ns as f64 / 1e6;
    let chunk_ms = setup.config.chunk_bytes as f64 * 8e3 / method.nic_bps as f64;
    // Rates in force between two times, as a fraction of a capacity.
    let used_fraction = |from_ns: u64, until_ns: u64, capacity_bps: u64| {
        let bits: f64 = rates
            .windows(2)
            .map(|pair| {
                let span = pair[1].0.min(until_ns).saturating_sub(pair[0].0.max(from_ns));
                pair[0].1 as f64 * span as f64 / 1e9
            })
            .sum();
        bits / (capacity_bps as f64 * (until_ns - from_ns) as f64 / 1e9)
    };
    let row = |case, settle_ms, goal_ms, used_fraction, over_capacity_bits| StepRow {
        what: "step",
        place: "sim",
        method: method.name,
        case,
        rtt_ms,
        settle_ms,
        goal_ms,
        used_fraction,
        used_fraction_min: None,
        over_capacity_bits,
        frames_lost: lost,
        packets_dropped: None,
        lowered: None,
        parts: None,
    };
    let bits = over.iter().map(|(_, _, bits)| bits).sum();
    let used_ms = used.map(|(at_ns, _)| since(*at_ns, BACK_NS));
    let halved = used_fraction(fits_ns, BACK_NS, half_bps);
    let back = used.map(|(at_ns, _)| used_fraction(*at_ns, END_NS, LINK_BPS));
    let chunk_goal_ms = rtt_ms + chunk_ms + 0.2;
    let mut all = vec![
        row("halved-told", Some(since(fits_ns, HALVED_NS)), chunk_goal_ms, Some(halved), bits),
        row("back-told", used_ms, rtt_ms + method.guard_ns as f64 / 1e6, back, 0.0),
    ];
    all.extend(untold(method, times));
    all
}

/// Returns the rows of a link about which nobody tells, that changes at several times, spread over a lease: which transfer
/// goes just then changes what is used by a tenth.
fn untold(method: &Method, times: u64) -> Vec<StepRow> {
    let link_bps = LINK_BPS / untold::SCALE;
    let lease_ns = Config::new(Vec::new(), Vec::new(), method.rules.clone()).lease_ns;
    let run = |number: u64| {
        let course = untold::Course {
            link_bps,
            rtt_ns: method.rtt_ns,
            chunk_bytes: 1 << 20,
            halved_ns: HALVED_NS + number * lease_ns / times,
            back_ns: BACK_NS,
            end_ns: BACK_NS + 14_000_000_000,
        };
        let found = untold::run(&course);
        (course, found)
    };
    let mut runs = Vec::new();
    parallel::in_order(times, run, |_, found| {
        runs.push(found);
        true
    });
    let halved_goal_ms = (2 * lease_ns + method.rtt_ns) as f64 / 1e6;
    let halved = |(course, found): &Run| Stretch {
        since_ns: course.halved_ns,
        settled_ns: found.fits_ns(course),
        until_ns: course.back_ns,
        bps: link_bps / 2,
    };
    let back = |(course, found): &Run| Stretch {
        since_ns: course.back_ns,
        settled_ns: found.used_ns(course),
        until_ns: course.end_ns,
        bps: link_bps,
    };
    vec![
        untold_row(method, ("halved-untold", halved_goal_ms), &runs, halved),
        untold_row(method, ("back-untold", 12_000.0), &runs, back),
    ]
}

type Run = (untold::Course, Found);

/// The time of a run that a row is about.
struct Stretch {
    since_ns: u64,
    settled_ns: Option<u64>,
    until_ns: u64,
    /// What the link carries.
    bps: u64,
}

fn untold_row(
    method: &Method,
    (case, goal_ms): (&'static str, f64),
    runs: &[Run],
    stretch: impl Fn(&Run) -> Stretch,
) -> StepRow {
    let mean = |sum: f64| sum / runs.len() as f64;
    let mut settled_ms = Some(0.0_f64);
    let (mut used, mut parts) = (Vec::new(), Vec::new());
    let mut over_capacity_bits = 0.0;
    for run in runs {
        let (Stretch { since_ns, settled_ns, until_ns, bps }, found) = (stretch(run), &run.1);
        over_capacity_bits += mean(found.granted_bits(since_ns, until_ns, bps));
        let after_ms = settled_ns.map(|at_ns| (at_ns - since_ns) as f64 / 1e6);
        settled_ms = settled_ms.zip(after_ms).map(|(longest, after)| longest.max(after));
        let Some(settled_ns) = settled_ns else { continue };
        used.push(found.used(settled_ns, until_ns, bps));
        let bits = bps as f64 * (until_ns - settled_ns) as f64 / 1e9;
        parts.push((found.ledger.between(settled_ns, until_ns), bits));
    }
    let all_settled = settled_ms.is_some();
    let count = |of: fn(&Found) -> u64| runs.iter().map(|(_, found)| of(found)).sum::<u64>();
    let each = |of: fn(&Found) -> u64| count(of) / runs.len() as u64;
    StepRow {
        what: "step",
        place: "sim",
        method: method.name,
        case,
        rtt_ms: method.rtt_ns as f64 / 1e6,
        settle_ms: settled_ms,
        goal_ms,
        used_fraction: all_settled.then(|| mean(used.iter().sum())),
        used_fraction_min: all_settled.then(|| used.iter().copied().fold(f64::INFINITY, f64::min)),
        over_capacity_bits,
        frames_lost: count(|found| found.frames_lost),
        packets_dropped: Some(each(|found| found.packets_dropped)),
        lowered: Some(each(|found| found.lowered)),
        parts: all_settled.then(|| Parts::mean(&parts)),
    }
}

impl Shown for StepRow {
    fn line(&self) -> String {
        let settled = self.settle_ms.map_or("never".to_owned(), |ms| format!("{ms:.3} ms"));
        let Self { case, rtt_ms, goal_ms, frames_lost, .. } = self;
        let used = self.used_fraction.map_or("?".to_owned(), |used| format!("{used:.3}"));
        let least =
            self.used_fraction_min.map_or(String::new(), |least| format!(" ({least:.3} at least)"));
        let packets = self.packets_dropped.map_or(String::new(), |all| format!(", {all} packets"));
        format!(
            "{case} rtt {rtt_ms} ms: {settled} (goal {goal_ms:.3}), then {used} used{least}; {frames_lost} frames{packets} lost{}",
            self.parts.map_or(String::new(), |parts| parts.line())
        )
    }

    fn goals(&self) -> Vec<Goal> {
        let name = |field| format!("step {} rtt {} ms: {field}", self.case, self.rtt_ms);
        vec![
            Goal::most(name("settle_ms"), self.settle_ms, self.goal_ms),
            Goal::most(name("frames_lost"), Some(self.frames_lost as f64), 0.0),
        ]
    }
}
