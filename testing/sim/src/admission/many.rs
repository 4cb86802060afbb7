//! A hundred thousand cameras of a thousand sources behind one link.
use super::outcome::Pooled;
use super::row::{Goal, Shown};
use super::speed::now;
use super::stream::Periodic;
use super::trace::{self, Event};
use super::world::{self, Setup, SourceModel};
use catchment_control::admission::{
    ClassId, Config, DeviceId, DeviceSpec, LinkConfig, LinkId, PathId, Rules, SourceId,
};
use catchment_probe::random::Random;

/// A simulated minute.
#[derive(Debug, serde::Serialize)]
pub(super) struct ManyRow {
    what: &'static str,
    place: &'static str,
    method: &'static str,
    devices: u32,
    sources: u32,
    capacity_bps: u64,
    control_bytes_fraction: f64,
    messages_per_s: f64,
    /// Of the bytes: periodic ones while their rate holds, urgent ones whose event is on time.
    on_time: f64,
    urgent_on_time: f64,
    over_capacity_bit_s: f64,
    wall_s: f64,
}

const CAMERAS: u32 = 100_000;
const SOURCES: u32 = 1_000;
const CAPACITY_BPS: u64 = 500_000_000_000;
/// 4 Mbit/s at 25 frames a second.
const BYTES: u64 = 20_000;
const PERIOD_NS: u64 = 40_000_000;
/// One camera in a hundred has an urgent event now and then, in addition: a frame of 24.88 MB.
const URGENT: u32 = CAMERAS / 100;
const URGENT_PER_SECOND: f64 = 100.0;
const SECONDS: u64 = 60;
const DELAY_NS: u64 = 250_000;

pub(super) fn row(seed: u64) -> ManyRow {
    let mut config =
        Config::new(vec![LinkConfig::new(CAPACITY_BPS)], vec![vec![LinkId(0)]], Rules::deadline());
    config.age_max_ns = u64::MAX;
    let spec = |source, class, rate_bps| {
        let spec = DeviceSpec::new(SourceId(source), PathId(0), ClassId(class), rate_bps);
        DeviceSpec { delay_ns: DELAY_NS, ..spec }
    };
    let of = |device: u32| device / (CAMERAS / SOURCES);
    let cameras = (0..CAMERAS).map(|one| (DeviceId(one), spec(of(one), 1, 1_000_000_000)));
    let urgent =
        (0..URGENT).map(|one| (DeviceId(CAMERAS + one), spec(one % SOURCES, 0, 10_000_000_000)));
    let periodic = |device| {
        let source = SourceId(of(device));
        Periodic { source, device: DeviceId(device), bytes: BYTES, period_ns: PERIOD_NS }
    };
    let setup = Setup {
        config,
        source: SourceModel {
            by_frame: false,
            outstanding: usize::MAX,
            host_ns: 0,
            delay_ns: DELAY_NS,
        },
        devices: cameras.chain(urgent).collect(),
        periodic: (0..CAMERAS).map(periodic).collect(),
        capacities: Vec::new(),
        horizon_ns: SECONDS * 1_000_000_000,
        drain_ns: 1_000_000_000,
    };
    let mut random = Random::new(1000 + seed);
    let times = trace::poisson(URGENT_PER_SECOND, setup.horizon_ns, &mut random);
    let event = |at_ns| {
        let device = CAMERAS + random.below(u64::from(URGENT)) as u32;
        Event { at_ns, device, class: 0, frames: 1 }
    };
    let events: Vec<Event> = times.into_iter().map(event).collect();
    let begin = now();
    let outcome = world::run(&setup, &events);
    let wall_s = begin.elapsed().as_secs_f64();
    let mut pooled = Pooled::default();
    pooled.add(&events, &outcome, 0);
    let streams = outcome.streams;
    let urgent_bits = pooled.all_bytes as f64 * 8.0;
    let wanted_bits = streams.wanted_bits + urgent_bits;
    ManyRow {
        what: "many",
        place: "sim",
        method: "deadline",
        devices: CAMERAS + URGENT,
        sources: SOURCES,
        capacity_bps: CAPACITY_BPS,
        control_bytes_fraction: pooled.control_bytes as f64 * 8.0 / wanted_bits,
        messages_per_s: pooled.messages as f64 / SECONDS as f64,
        on_time: (streams.bits + pooled.on_time_bits(0)) / wanted_bits,
        urgent_on_time: pooled.on_time(0),
        over_capacity_bit_s: outcome.over_capacity_bits,
        wall_s,
    }
}

impl Shown for ManyRow {
    fn line(&self) -> String {
        format!(
            "{} devices of {} sources: {:.0} messages/s, {:.1e} of the bytes, on time {:.4}, urgent {:.4}, over capacity {} bit, {:.1} s",
            self.devices,
            self.sources,
            self.messages_per_s,
            self.control_bytes_fraction,
            self.on_time,
            self.urgent_on_time,
            self.over_capacity_bit_s,
            self.wall_s
        )
    }

    fn goals(&self) -> Vec<Goal> {
        let fraction = Some(self.control_bytes_fraction);
        vec![
            Goal::most("many: control_bytes_fraction", fraction, 5e-4),
            Goal::least("many: on_time", Some(self.on_time), 0.99),
            Goal::most("many: over_capacity_bit_s", Some(self.over_capacity_bit_s), 0.0),
            Goal::most("many: wall_s", Some(self.wall_s), 60.0),
        ]
    }
}
