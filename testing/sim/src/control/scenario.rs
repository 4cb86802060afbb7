//! What happens in a run, all from the seed.
use super::clock::Clock;
use crate::{Chance, Random};
use catchment_control::admission::source_side::Fallback;

pub(super) const MS: u64 = 1_000_000;
pub(super) const LEASE_NS: u64 = 200 * MS;

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A source dies; another process of it starts later.
    KillSource { source: usize, down_ns: u64 },
    /// A source does not run for a time.
    FreezeSource { source: usize, lasts_ns: u64 },
    /// Nothing passes between a source and the controller.
    Cut { source: usize, up: bool, down: bool, lasts_ns: u64 },
    /// The controller dies; another one starts later.
    KillController { down_ns: u64 },
    /// The controller gives up, and says what is left of its grants; another one leads soon.
    HandOver { down_ns: u64 },
    /// The controller does not run for a time; nobody takes over.
    FreezeController { lasts_ns: u64 },
    /// The controller does not run; another one takes over; then it runs again.
    Supersede { down_ns: u64 },
}

/// A transfer that a device asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) at_ns: u64,
    pub(super) device: u32,
    pub(super) bytes: u64,
    pub(super) age_ns: u64,
}

#[derive(Clone, Debug)]
pub(super) struct SourceScenario {
    /// The way to the bottleneck and the controller, and back.
    pub(super) way_ns: [u64; 2],
    pub(super) rate_bps: u64,
    /// By device: its path and its class.
    pub(super) devices: Vec<(u16, u8)>,
    pub(super) wishes: Vec<Wish>,
    /// Devices that want a rate from a time on: bytes in each period.
    pub(super) rates: Vec<RateWish>,
}

/// A device wants a rate, or none any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateWish {
    pub(super) at_ns: u64,
    pub(super) device: u32,
    pub(super) bytes: u64,
    pub(super) period_ns: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    /// How much delays differ; also the guard of each link.
    pub(super) spread_ns: u64,
    pub(super) links_bps: Vec<u64>,
    pub(super) paths: Vec<Vec<u16>>,
    pub(super) chunk_bytes: u64,
    pub(super) sources: Vec<SourceScenario>,
    pub(super) fallback: Fallback,
    pub(super) loss: Chance,
    pub(super) doubled: Chance,
    pub(super) late: Chance,
    /// Late tolerant transfers are dropped.
    pub(super) drops_late: bool,
    pub(super) faults: Vec<(u64, Fault)>,
    /// The last wish and the last fault are before this.
    pub(super) horizon_ns: u64,
}

impl Scenario {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed_ad31);
        let horizon_ns = random.between(1_000, 2_500) * MS;
        let spread_ns = random.pick(&[50_000, 50_000, 100_000, 500_000]).unwrap_or(50_000);
        let gbps = 1_000_000_000;
        let paths = match random.below(3) {
            0 => vec![vec![0]],
            1 => vec![vec![0], vec![1]],
            _ => vec![vec![0, 2], vec![1, 2], vec![2]],
        };
        let links = paths.iter().flatten().max().map_or(1, |most| usize::from(*most) + 1);
        let links_bps: Vec<u64> = (0..links).map(|_| random.between(1, 10) * gbps).collect();
        let count = random.between(1, 5) as usize;
        let load = 0.3 + random.below(100) as f64 / 100.0;
        let bytes = links_bps.iter().sum::<u64>() as f64 / 8e9 * horizon_ns as f64 * load;
        let share = bytes as u64 / count as u64;
        let mut source = |_| source(&paths, share, horizon_ns, &mut random);
        let mut sources: Vec<SourceScenario> = (0..count).map(&mut source).collect();
        let mut chance = |most: u64| Chance::of(random.below(most + 1) as f64 / 100.0);
        let (loss, doubled, late) = (chance(30), chance(20), chance(10));
        let fallback = match random.below(2) {
            0 => Fallback::Stop,
            _ => Fallback::Safe { rate_bps: random.between(10, 200) * 1_000_000 },
        };
        let chunk_bytes = random.pick(&[1 << 20, 1 << 18, 1 << 16]).unwrap_or(1 << 20);
        let drops_late = random.below(3) == 0;
        let faults = faults(count, horizon_ns, &mut random);
        let slowest_bps = links_bps.iter().min().copied().unwrap_or(gbps);
        for source in &mut sources {
            periodic(source, slowest_bps, horizon_ns, &mut random);
        }
        Self {
            seed,
            spread_ns,
            links_bps,
            paths,
            chunk_bytes,
            sources,
            fallback,
            loss,
            doubled,
            late,
            drops_late,
            faults,
            horizon_ns,
        }
    }
}

impl Scenario {
    /// Returns how long all transfers take on the slowest link.
    pub(super) fn slowest_ns(&self) -> u64 {
        let wishes = self.sources.iter().flat_map(|source| &source.wishes);
        let bytes: u64 = wishes.map(|wish| wish.bytes).sum();
        let slowest_bps = self.links_bps.iter().min().copied().unwrap_or(1);
        let time_ns = u128::from(bytes) * 8_000_000_000 / u128::from(slowest_bps);
        u64::try_from(time_ns).unwrap_or(u64::MAX)
    }
}

fn source(paths: &[Vec<u16>], bytes: u64, horizon_ns: u64, random: &mut Random) -> SourceScenario {
    let way = |random: &mut Random| random.pick(&[20_000, 100_000, MS, 5 * MS]).unwrap_or(MS);
    let way_ns = [way(random), way(random)];
    let count = random.between(1, 3);
    let device = |_| (random.index(paths.len()) as u16, random.below(2) as u8);
    let devices: Vec<(u16, u8)> = (0..count).map(device).collect();
    let (mut wishes, mut left) = (Vec::new(), bytes);
    while left > 0 && wishes.len() < 60 {
        let bytes = random.between(1, 40_000_000).min(left);
        left -= bytes;
        wishes.push(Wish {
            at_ns: random.below(horizon_ns),
            device: random.below(count) as u32,
            bytes,
            age_ns: random.below(30 * MS),
        });
    }
    wishes.sort_unstable_by_key(|wish| wish.at_ns);
    let (rate_bps, rates) = (random.between(1, 10) * 1_000_000_000, Vec::new());
    SourceScenario { way_ns, rate_bps, devices, wishes, rates }
}

/// Makes devices of a source periodic, half of the time: frames each period, and a rate for them, which changes or
/// ends now and then.
fn periodic(source: &mut SourceScenario, link_bps: u64, horizon_ns: u64, random: &mut Random) {
    for device in 0..source.devices.len() as u32 {
        if random.below(2) == 0 {
            continue;
        }
        let period_ns = random.between(5, 80) * MS;
        let percent = random.pick(&[1, 5, 20, 60]).unwrap_or(5);
        let bytes = (link_bps / 100 * percent / 8_000 * (period_ns / 1000) / 1000).max(1);
        let begin_ns = random.below(horizon_ns / 2);
        source.rates.push(RateWish { at_ns: begin_ns, device, bytes, period_ns });
        if random.below(3) == 0 {
            let at_ns = random.between(begin_ns, horizon_ns);
            let bytes = random.pick(&[0, bytes / 2 + 1, bytes * 2]).unwrap_or(0);
            source.rates.push(RateWish { at_ns, device, bytes, period_ns });
        }
        source.rates.push(RateWish { at_ns: horizon_ns, device, bytes: 0, period_ns });
        let frames = (begin_ns..horizon_ns).step_by(period_ns as usize);
        source.wishes.extend(frames.map(|at_ns| Wish { at_ns, device, bytes, age_ns: 0 }));
    }
    source.wishes.sort_unstable_by_key(|wish| wish.at_ns);
}

/// Draws faults: those of controllers one after the other, as each needs a time to be over.
fn faults(sources: usize, horizon_ns: u64, random: &mut Random) -> Vec<(u64, Fault)> {
    let mut faults = Vec::new();
    for _ in 0..random.below(4) {
        let source = random.index(sources);
        let lasts_ns = random.between(1, 900) * MS;
        let fault = match random.below(3) {
            0 => Fault::KillSource { source, down_ns: lasts_ns },
            1 => Fault::FreezeSource { source, lasts_ns },
            _ => {
                let (up, down) = match random.below(3) {
                    0 => (true, false),
                    1 => (false, true),
                    _ => (true, true),
                };
                Fault::Cut { source, up, down, lasts_ns }
            }
        };
        faults.push((random.below(horizon_ns), fault));
    }
    if random.below(2) == 0 {
        let lasts_ns = random.between(1, 900) * MS;
        let fault = match random.below(4) {
            0 => Fault::KillController { down_ns: lasts_ns },
            3 => Fault::HandOver { down_ns: lasts_ns / 30 },
            1 => Fault::FreezeController { lasts_ns },
            _ => Fault::Supersede { down_ns: lasts_ns },
        };
        faults.push((random.below(horizon_ns), fault));
    }
    faults.sort_unstable_by_key(|(at_ns, _)| *at_ns);
    faults
}

/// Draws a clock: 200 ppm too fast or too slow at most, between any two 200 ppm.
pub(super) fn clock(random: &mut Random) -> Clock {
    let drift_ppb = random.below(200_001).cast_signed() - 100_000;
    Clock { origin_ns: random.below(1 << 50), drift_ppb }
}
