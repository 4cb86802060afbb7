//! A link that carries less, and then more, and the controller is told, or finds out ([`untold`]).
use super::account::Parts;
use super::added::setup;
use super::cell::{LINK_BPS, Method};
use super::row::{Goal, Shown};
use super::trace::Event;
use super::{untold, world};
use catchment_control::admission::{Config, LinkId};

/// How fast rates follow.
#[derive(Debug, serde::Serialize)]
pub(super) struct StepRow {
    what: &'static str,
    place: &'static str,
    method: &'static str,
    case: &'static str,
    rtt_ms: f64,
    /// From the step until no source sends more than the link carries then, or until 0.97 of it are used.
    settle_ms: Option<f64>,
    goal_ms: f64,
    /// Of the capacity, what is granted between then and the next step, or the last grant's end.
    used_fraction: Option<f64>,
    /// Sent beyond what the link carries, in the time until then.
    over_capacity_bits: f64,
    frames_lost: u64,
    packets_dropped: Option<u64>,
    /// How often less was granted because of losses, in all of the run.
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

/// Returns the rows of a method: three senders of half a link and more want all of it all the time.
pub(super) fn rows(method: &Method) -> Vec<StepRow> {
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
    all.extend(untold(method));
    all
}

/// Returns the rows of a link about which nobody tells.
fn untold(method: &Method) -> Vec<StepRow> {
    let link_bps = LINK_BPS / untold::SCALE;
    let course = untold::Course {
        link_bps,
        rtt_ns: method.rtt_ns,
        chunk_bytes: 1 << 20,
        halved_ns: HALVED_NS,
        back_ns: BACK_NS,
        end_ns: BACK_NS + 14_000_000_000,
    };
    let found = untold::run(&course);
    let lease_ms = Config::new(Vec::new(), Vec::new(), method.rules.clone()).lease_ns as f64 / 1e6;
    let rtt_ms = method.rtt_ns as f64 / 1e6;
    let row = |case, settled_ns: Option<u64>, since_ns, goal_ms, until_ns, bps| StepRow {
        what: "step",
        place: "sim",
        method: method.name,
        case,
        rtt_ms,
        settle_ms: settled_ns.map(|at_ns| (at_ns - since_ns) as f64 / 1e6),
        goal_ms,
        used_fraction: settled_ns.map(|at_ns| found.used(at_ns, until_ns, bps)),
        over_capacity_bits: found.granted_bits(since_ns, until_ns, bps),
        frames_lost: found.frames_lost,
        packets_dropped: Some(found.packets_dropped),
        lowered: Some(found.lowered),
        parts: settled_ns.map(|at_ns| {
            let bits = bps as f64 * (until_ns - at_ns) as f64 / 1e9;
            Parts::of(&found.ledger.between(at_ns, until_ns), bits)
        }),
    };
    let untold::Course { halved_ns, back_ns, end_ns, .. } = course;
    let (fits_ns, used_ns) = (found.fits_ns(&course), found.used_ns(&course));
    vec![
        row("halved-untold", fits_ns, halved_ns, 2.0 * lease_ms + rtt_ms, back_ns, link_bps / 2),
        row("back-untold", used_ns, back_ns, 12_000.0, end_ns, link_bps),
    ]
}

impl Shown for StepRow {
    fn line(&self) -> String {
        let settled = self.settle_ms.map_or("never".to_owned(), |ms| format!("{ms:.3} ms"));
        let Self { case, rtt_ms, goal_ms, frames_lost, .. } = self;
        let used = self.used_fraction.map_or("?".to_owned(), |used| format!("{used:.3}"));
        let packets = self.packets_dropped.map_or(String::new(), |all| format!(", {all} packets"));
        format!(
            "{case} rtt {rtt_ms} ms: {settled} (goal {goal_ms:.3}), then {used} used; {frames_lost} frames{packets} lost{}",
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
