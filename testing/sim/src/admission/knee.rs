//! The largest load that a method carries.
use super::cell::{Cell, LINK_BPS, Method};
use super::ladder;
use super::outcome::Pooled;
use super::row::{Goal, Shown};
use super::trace::Mix;
use std::collections::BTreeMap;

const LOWEST: f64 = 0.1;
const HIGHEST: f64 = 1.1;
/// Halvings: the last interval is 0.8 % of a link wide, at level `packet` 3 %.
const STEPS: u32 = 7;
const STEPS_PACKET: u32 = 5;

/// A method's knee, by events and by frames.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct KneeRow {
    what: &'static str,
    place: &'static str,
    pub(super) method: &'static str,
    nic_bps: u64,
    rtt_ms: f64,
    mix: Mix,
    pub(super) links: String,
    calibration: &'static str,
    ladder: Option<&'static str>,
    pub(super) threshold: f64,
    pub(super) knee_event: Option<f64>,
    pub(super) knee_frame: Option<f64>,
    seeds: usize,
    seconds: u64,
    #[serde(skip)]
    first_seed: u64,
}

/// Knees that the model has over other round trips: steps of the ladder, NICs in Gbit/s, milliseconds, the knee, and
/// whether it is by frames.
type Trip = (Option<&'static str>, u64, f64, f64, bool);
const TRIPS: [Trip; 11] = [
    (Some("A1"), 10, 0.1, 0.67, true),
    (Some("A1"), 10, 5.0, 0.52, true),
    (Some("A1"), 10, 10.0, 0.38, true),
    (Some("A1"), 10, 20.0, 0.23, true),
    (Some("A3"), 10, 0.1, 0.74, true),
    (Some("A3"), 10, 5.0, 0.74, true),
    (Some("A3"), 10, 20.0, 0.74, true),
    (None, 10, 0.1, 0.88, false),
    (None, 10, 5.0, 0.88, false),
    (None, 10, 20.0, 0.86, false),
    (None, 20, 0.1, 0.93, false),
];
/// By how much a knee may differ from the model's, as a part of it.
const APART_MOST: f64 = 0.05;

/// Knees of the model on the events of [`FULL`], which were drawn anew for it, by the same halvings: steps, calibrations, the
/// knee by events and by frames.
type Step = (&'static str, &'static str, f64, f64);
const STEPS_OF_MODEL: [Step; 14] = [
    ("A0", "cal-s", 0.5609, 0.6469),
    ("A1", "cal-s", 0.5609, 0.6469),
    ("A0", "cal-d", 0.5609, 0.5609),
    ("A1", "cal-d", 0.5922, 0.6703),
    ("A1'", "none", 0.6547, 0.7328),
    ("A2", "cal-s", 0.5922, 0.6547),
    ("A3", "none", 0.7250, 0.7563),
    ("A3d", "none", 0.7953, 0.8031),
    ("A3b", "none", 0.8734, 0.8813),
    ("A4", "none", 0.7250, 0.7641),
    ("A5", "none", 0.8891, 0.8891),
    ("A6", "none", 0.7250, 0.7641),
    ("A7", "none", 0.9281, 0.9281),
    ("A8", "none", 0.9281, 0.9281),
];
/// The first seed, how many there are, and seconds.
const FULL: (u64, usize, u64) = (1, 4, 3000);
/// By how much of the link a knee on the same events may differ.
const APART_MOST_SAME: f64 = 0.02;

/// Returns methods over the round trips for which the model has knees.
pub(super) fn trips() -> Vec<Method> {
    let all = ladder::papers().into_iter().chain(ladder::steps());
    let shipped = [LINK_BPS / 2, LINK_BPS].map(ladder::shipped);
    let all: Vec<Method> = all.filter(|one| one.calibration != "cal-d").chain(shipped).collect();
    let over = |(step, nic, rtt_ms, ..): &Trip| {
        let is = |one: &&Method| one.ladder == *step && one.nic_bps == nic * 1_000_000_000;
        let method = all.iter().find(is)?.clone();
        Some(Method { rtt_ns: (rtt_ms * 1e6) as u64, ..method })
    };
    TRIPS.iter().filter_map(over).collect()
}

/// Finds the knees of a cell's method by halving; the cell's load does not count.
pub(super) fn find(cell: &Cell) -> Vec<KneeRow> {
    let mut known: BTreeMap<u64, [f64; 2]> = BTreeMap::new();
    let mut on_time = |load: f64| {
        *known.entry(load.to_bits()).or_insert_with(|| worst(&Cell { load, ..cell.clone() }.run()))
    };
    let steps = if cell.carrier.is_some() { STEPS_PACKET } else { STEPS };
    let mut row = |threshold: f64| {
        let mut knee = |count: usize| halve(steps, |load| on_time(load)[count] >= threshold);
        KneeRow {
            what: "knee",
            place: "sim",
            method: cell.method.name,
            nic_bps: cell.method.nic_bps,
            rtt_ms: cell.method.rtt_ns as f64 / 1e6,
            mix: cell.mix,
            links: cell.links.name(),
            calibration: cell.method.calibration,
            ladder: cell.method.ladder,
            threshold,
            knee_event: knee(0),
            knee_frame: knee(1),
            seeds: cell.seeds.len(),
            seconds: cell.seconds,
            first_seed: cell.seeds.first().copied().unwrap_or(0),
        }
    };
    vec![row(0.95), row(0.99)]
}

/// Returns what the class that is worse off has on time: by events, by frames.
fn worst(pooled: &Pooled) -> [f64; 2] {
    let urgent = pooled.on_time(0);
    [pooled.on_time(1), pooled.frames_on_time(1)].map(|tolerant| urgent.min(tolerant))
}

fn halve(steps: u32, mut holds: impl FnMut(f64) -> bool) -> Option<f64> {
    let (mut low, mut high) = (LOWEST, HIGHEST);
    if !holds(low) {
        return None;
    }
    for _ in 0..steps {
        let middle = f64::midpoint(low, high);
        if holds(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

impl KneeRow {
    /// Returns that a step of the ladder is as near to the model on the same events as it has to be.
    fn beside_model_on_same_events(&self) -> Vec<Goal> {
        let is_same = (self.first_seed, self.seeds, self.seconds) == FULL
            && self.links == "1"
            && self.mix == Mix::Events
            && self.threshold < 0.97;
        let is = |(step, calibration, ..): &&Step| {
            Some(*step) == self.ladder && *calibration == self.calibration
        };
        let known = ladder::papers().into_iter().chain(ladder::steps());
        let is_usual = known
            .filter(|one| one.ladder == self.ladder && one.calibration == self.calibration)
            .any(|one| one.rtt_ns as f64 / 1e6 == self.rtt_ms);
        let found = STEPS_OF_MODEL.iter().filter(|_| is_same && is_usual).find(is);
        let Some((step, calibration, event, frame)) = found else { return Vec::new() };
        let goal = |by: &str, here: Option<f64>, knee: f64| {
            let name =
                format!("knee {step} {calibration} by {by} beside the model on the same events");
            Goal::most(name, here.map(|here| (here - knee).abs()), APART_MOST_SAME)
        };
        vec![goal("events", self.knee_event, *event), goal("frames", self.knee_frame, *frame)]
    }

    /// Returns that a knee over a round trip is as far from the model's as it may be.
    pub(super) fn beside_model(&self) -> Option<Goal> {
        let nic = self.nic_bps / 1_000_000_000;
        let is_usual = self.links == "1" && self.mix == Mix::Events && self.threshold < 0.97;
        let is = |(step, of, rtt_ms, ..): &&Trip| {
            *step == self.ladder && *of == nic && *rtt_ms == self.rtt_ms
        };
        let (.., knee, by_frame) = TRIPS.iter().filter(|_| is_usual).find(is)?;
        let here = if *by_frame { self.knee_frame } else { self.knee_event };
        let apart = here.map(|here| (here / knee - 1.0).abs());
        let step = self.ladder.unwrap_or("shipped");
        let name = format!("knee {step} {nic} Gbit/s rtt {} ms beside the model", self.rtt_ms);
        Some(Goal::most(name, apart, APART_MOST))
    }
}

impl Shown for KneeRow {
    fn line(&self) -> String {
        let show = |knee: Option<f64>| knee.map_or_else(|| "-".to_owned(), |at| format!("{at:.3}"));
        format!(
            "{:8} {:8} {:6} {:>2} Gbit/s rtt {:>4} ms {:6} links {:6}: knee {:.2} event {} frame {}",
            self.ladder.unwrap_or("shipped"),
            self.method,
            self.calibration,
            self.nic_bps / 1_000_000_000,
            self.rtt_ms,
            format!("{:?}", self.mix).to_lowercase(),
            self.links,
            self.threshold,
            show(self.knee_event),
            show(self.knee_frame),
        )
    }
    fn goals(&self) -> Vec<Goal> {
        let (fast, high) = (self.nic_bps == LINK_BPS, self.threshold > 0.97);
        let least = match (self.links.as_str(), self.mix, self.rtt_ms, high) {
            _ if self.ladder.is_some() => None,
            ("1", Mix::Events, 0.5, false) => Some(if fast { 0.92 } else { 0.87 }),
            ("1", Mix::Events, 0.5, true) => Some(if fast { 0.72 } else { 0.66 }),
            ("1", Mix::Bytes, 0.5, false) => Some(if fast { 0.88 } else { 0.84 }),
            ("1", Mix::Events, 5.0, false) if !fast => Some(0.86),
            ("1", Mix::Events, 20.0, false) if !fast => Some(0.85),
            ("2-hop", Mix::Events, 0.5, false) => Some(0.93),
            ("pool-2", Mix::Events, 0.5, false) if fast => Some(0.98),
            _ => None,
        };
        let nic = self.nic_bps / 1_000_000_000;
        let name = format!(
            "knee {nic} Gbit/s rtt {} ms {:?} links {} at {}: knee_event",
            self.rtt_ms, self.mix, self.links, self.threshold
        );
        let least = least.map(|least| Goal::least(name, self.knee_event, least));
        let beside = self.beside_model().into_iter().chain(self.beside_model_on_same_events());
        least.into_iter().chain(beside).collect()
    }
}
