//! A hundred thousand cameras behind one link: of a thousand sources, and each a source of its own.
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
const CAPACITY_BPS: u64 = 500_000_000_000;
/// 4 Mbit/s at 25 frames a second.
const BYTES: u64 = 20_000;
const PERIOD_NS: u64 = 40_000_000;
/// One camera in a hundred has an urgent event now and then, in addition: a frame of 24.88 MB.
const URGENT: u32 = CAMERAS / 100;
const URGENT_PER_SECOND: f64 = 100.0;
const SECONDS: u64 = 60;
const DELAY_NS: u64 = 250_000;

/// Returns the rows.
pub(super) fn rows(seed: u64) -> [ManyRow; 2] {
    [1_000, CAMERAS].map(|sources| row(seed, sources, SECONDS))
}

/// Returns what is simulated: cameras, which belong to so many sources, for some seconds.
fn setup(sources: u32, seconds: u64) -> Setup {
    let mut config =
        Config::new(vec![LinkConfig::new(CAPACITY_BPS)], vec![vec![LinkId(0)]], Rules::deadline());
    config.age_max_ns = u64::MAX;
    let spec = |source, class, rate_bps| {
        let spec = DeviceSpec::new(SourceId(source), PathId(0), ClassId(class), rate_bps);
        DeviceSpec { delay_ns: DELAY_NS, ..spec }
    };
    let of = |device: u32| device / (CAMERAS / sources);
    let cameras = (0..CAMERAS).map(|one| (DeviceId(one), spec(of(one), 1, 1_000_000_000)));
    let urgent =
        (0..URGENT).map(|one| (DeviceId(CAMERAS + one), spec(one % sources, 0, 10_000_000_000)));
    let periodic = |device| {
        let source = SourceId(of(device));
        Periodic { source, device: DeviceId(device), bytes: BYTES, period_ns: PERIOD_NS }
    };
    Setup {
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
        horizon_ns: seconds * 1_000_000_000,
        drain_ns: 1_000_000_000,
    }
}

fn row(seed: u64, sources: u32, seconds: u64) -> ManyRow {
    let setup = setup(sources, seconds);
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
        sources,
        capacity_bps: CAPACITY_BPS,
        control_bytes_fraction: pooled.control_bytes as f64 * 8.0 / wanted_bits,
        messages_per_s: pooled.messages as f64 / seconds as f64,
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
        let name = |field: &str| format!("many, {} sources: {field}", self.sources);
        let fraction = Some(self.control_bytes_fraction);
        // A source of one camera has datagrams of its own: four a second, of one record each.
        let fraction_most = if self.sources == CAMERAS { 1e-3 } else { 5e-4 };
        vec![
            Goal::most(name("control_bytes_fraction"), fraction, fraction_most),
            Goal::least(name("on_time"), Some(self.on_time), 0.99),
            Goal::most(name("over_capacity_bit_s"), Some(self.over_capacity_bit_s), 0.0),
            Goal::most(name("wall_s"), Some(self.wall_s), 60.0),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred thousand sources of a camera each: all have their rates after the first half second, in which they ask
    /// one after the other, urgent events come between them in time, and the link is never exceeded.
    #[test]
    fn s2_21_a_hundred_thousand_sources_have_their_rates_and_urgent_events_their_time() {
        let row = row(1, CAMERAS, 3);
        assert_eq!((row.sources, row.devices), (100_000, 101_000));
        assert_eq!((row.over_capacity_bit_s, row.urgent_on_time), (0.0, 1.0), "{}", row.line());
        // Of three seconds nobody has a part of the first half.
        assert!(row.on_time > 0.91 && row.on_time < 0.95, "{}", row.line());
        // Each asks and is answered, then renews twice a second.
        assert!(row.messages_per_s > 350_000.0, "{}", row.line());
    }
}
