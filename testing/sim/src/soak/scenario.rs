//! The faults of a run, all derived from the seed.
use super::plan::{Mix, Plan, PlanConfig};
use crate::{BurstLength, Chance, Corruption, Delay, LinkConfig, Loss, Random};
use catchment_roce::wire::PathMtu;
use catchment_roce::{Psn, Recovery, WriteLayout};
use std::rc::Rc;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) recovery: Recovery,
    pub(crate) path_mtu: PathMtu,
    /// From the first host to the second, and back.
    pub(crate) links: [LinkConfig; 2],
    pub(crate) hosts: [HostScenario; 2],
    pub(crate) pairs: Vec<PairScenario>,
    /// ECN is on.
    pub(crate) ecn: bool,
    /// Number of forged packets to each host.
    pub(crate) forgeries: u64,
    /// An event that ends connections.
    pub(crate) strike: Option<Strike>,
    /// Little loss, only valid requests, long timeouts: every request succeeds.
    pub(crate) must_succeed: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct HostScenario {
    /// How long arriving frames wait, to be handled together.
    pub(crate) poll_interval: Duration,
    /// Transmit ring of the network card, in bytes.
    pub(crate) uplink_bytes: usize,
}

#[derive(Debug)]
pub(crate) struct PairScenario {
    pub(crate) ends: [Rc<EndScenario>; 2],
}

#[derive(Debug)]
pub(crate) struct EndScenario {
    pub(crate) plan: Plan,
    pub(crate) first_psn: Psn,
    pub(crate) write_layout: WriteLayout,
    pub(crate) window_packets: u32,
    pub(crate) window_bytes: u64,
    pub(crate) ack_interval: u32,
    pub(crate) read_chunk_bytes: u32,
    pub(crate) max_send_wr: u32,
    pub(crate) max_rd_atomic: u8,
    pub(crate) timeout: Duration,
    pub(crate) adaptive_timeout: bool,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    /// Receives posted at the beginning.
    pub(crate) receives_first: usize,
    /// Interval at which one more is posted.
    pub(crate) receive_interval: Duration,
    /// Receives in excess of the messages.
    pub(crate) receives_spare: usize,
    /// Pause between requests.
    pub(crate) think: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    /// Kills a host.
    Kill { host: usize, at: Duration },
    /// A program moves a queue pair to the error state.
    Fail { host: usize, pair: usize, at: Duration },
    /// Drops everything for this time.
    Blackout { at: Duration, lasts: Duration },
}

/// Time after which a run counts as hung: more timeouts than there are packets.
pub(crate) const TIME_MOST: Duration = Duration::from_secs(1200);
/// The longest timeout where losses are heavy; queues may hold frames longer than that.
const TIMEOUT_MOST: Duration = Duration::from_millis(400);

impl Scenario {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let path_mtu = random.pick(&PathMtu::ALL).unwrap_or(PathMtu::Mtu1024);
        let gentle = random.below(3) == 0;
        let mut links = [(); 2].map(|()| link(gentle, path_mtu, &mut random));
        let hosts = [(); 2].map(|()| host(path_mtu, &mut random));
        if gentle {
            // Otherwise the same packet of a burst is dropped at each retransmission of the burst.
            links.iter_mut().for_each(|link| link.queue_bytes = None);
        }
        let recoveries = [Recovery::GoBackN, Recovery::SelectiveRepeat];
        let recovery = random.pick(&recoveries).unwrap_or(Recovery::GoBackN);
        let round_trip = round_trip(&links, &hosts, path_mtu);
        let pairs = (0..random.between(1, 3)).map(|_| {
            let mix = random.pick(&Mix::ALL).unwrap_or(Mix::ALL[0]);
            PairScenario {
                ends: [(); 2]
                    .map(|()| Rc::new(end(gentle, mix, path_mtu, round_trip, &mut random))),
            }
        });
        let pairs: Vec<_> = pairs.collect();
        let strike = strike(gentle, pairs.len(), &mut random);
        let forgeries = random.pick(&[0, 0, 0, 40]).unwrap_or(0);
        let ecn = random.below(2) == 0;
        links.iter_mut().for_each(|link| link.mark_above = mark_above(path_mtu, &mut random));
        Self {
            seed,
            recovery,
            path_mtu,
            links,
            hosts,
            pairs,
            ecn,
            forgeries,
            strike,
            must_succeed: gentle,
        }
    }
}

/// Draws a link: gentle ones lose up to one frame in twenty, others one in three, also in bursts.
fn link(gentle: bool, path_mtu: PathMtu, random: &mut Random) -> LinkConfig {
    let rate_bps = random.pick(&[10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000]);
    let delays_us = [1, 10, 100, 1_000, 10_000];
    let delay_us = random.pick(&delays_us).unwrap_or(1);
    let frame = path_mtu.bytes() + 100;
    let queue = frame * random.pick(&[4, 16, 64, 1024]).unwrap_or(64);
    let mut config = LinkConfig {
        rate_bps,
        delay: Duration::from_micros(delay_us),
        queue_bytes: Some(queue),
        mtu: Some(frame),
        loss: if gentle { mild_loss(random) } else { heavy_loss(random) },
        ..LinkConfig::default()
    };
    let slot = config.transmit_time(frame);
    let most = |random: &mut Random| slot * u32::try_from(random.between(1, 64)).unwrap_or(1);
    config.reorder =
        Delay { chance: chance_up_to(if gentle { 30 } else { 300 }, random), most: most(random) };
    config.duplicate = Delay { chance: chance_up_to(100, random), most: most(random) };
    config.corrupt = Corruption {
        chance: chance_up_to(if gentle { 10 } else { 50 }, random),
        bits_most: random.pick(&[1, 1, 3, 40]).unwrap_or(1),
    };
    config
}

/// Draws the queue length above which frames are marked: never, always, or some packets.
fn mark_above(path_mtu: PathMtu, random: &mut Random) -> Option<usize> {
    let packets = random.pick(&[None, Some(0), Some(1), Some(4), Some(16)]);
    packets.flatten().map(|packets| packets * path_mtu.bytes())
}

/// Draws a chance: never in half of the cases, otherwise up to this many in a thousand.
fn chance_up_to(thousandths: u64, random: &mut Random) -> Chance {
    match random.below(2) {
        0 => Chance::NEVER,
        _ => Chance::of(random.below(thousandths + 1) as f64 / 1000.0),
    }
}

fn mild_loss(random: &mut Random) -> Loss {
    match random.below(4) {
        0 => Loss::None,
        _ => Loss::Random(Chance::of(random.below(51) as f64 / 1000.0)),
    }
}

fn heavy_loss(random: &mut Random) -> Loss {
    let fraction = random.below(301) as f64 / 1000.0;
    match random.below(4) {
        0 => Loss::Random(Chance::of(fraction)),
        1 => Loss::Chosen((0..random.below(30)).map(|_| random.below(300)).collect()),
        2 => Loss::Bursts {
            fraction,
            length: BurstLength::Fixed(u32::try_from(random.between(2, 32)).unwrap_or(2)),
        },
        _ => Loss::Bursts { fraction, length: BurstLength::Mean(random.between(2, 16) as f64) },
    }
}

fn host(path_mtu: PathMtu, random: &mut Random) -> HostScenario {
    let interval_us = random.pick(&[0, 0, 1, 20, 500]).unwrap_or(0);
    HostScenario {
        poll_interval: Duration::from_micros(interval_us),
        uplink_bytes: path_mtu.bytes() * random.pick(&[1, 2, 4]).unwrap_or(1),
    }
}

/// More than an unlimited queue ever holds, because hosts limit what they send ahead.
const QUEUE_BYTES: usize = 64 << 10;

/// Returns the longest round trip, with full queues and every frame delayed.
fn round_trip(links: &[LinkConfig; 2], hosts: &[HostScenario; 2], path_mtu: PathMtu) -> Duration {
    let one_way = |link: &LinkConfig| {
        let queued = link.transmit_time(link.queue_bytes.unwrap_or(QUEUE_BYTES) + path_mtu.bytes());
        link.delay + queued + link.reorder.most + link.duplicate.most
    };
    let polls = hosts[0].poll_interval + hosts[1].poll_interval;
    one_way(&links[0]) + one_way(&links[1]) + polls
}

fn end(
    gentle: bool,
    mix: Mix,
    path_mtu: PathMtu,
    round_trip: Duration,
    random: &mut Random,
) -> EndScenario {
    let plan = plan(gentle, mix, path_mtu, random);
    let tiny = !gentle && random.below(4) == 0;
    let layouts = [WriteLayout::Train, WriteLayout::Classic];
    let near_wrap = Psn::MASK - random.below(200) as u32;
    let anywhere = random.below(1 << 24) as u32;
    let psn = if random.below(2) == 0 { near_wrap } else { anywhere };
    EndScenario {
        plan,
        first_psn: Psn::new(psn),
        write_layout: random.pick(&layouts).unwrap_or(WriteLayout::Train),
        window_packets: random.pick(&[1, 2, 7, 64, 4096]).unwrap_or(64),
        window_bytes: path_mtu.bytes() as u64 * random.pick(&[1, 3, 64, 4096]).unwrap_or(64),
        ack_interval: random.pick(&[1, 2, 32]).unwrap_or(32),
        read_chunk_bytes: random.pick(&[1, 5000, 1 << 18]).unwrap_or(1 << 18),
        max_send_wr: random.pick(&[1, 2, 16, 256]).unwrap_or(16),
        max_rd_atomic: random.pick(&[1, 2, 16]).unwrap_or(16),
        timeout: match (tiny, gentle) {
            (true, _) => Duration::from_micros(300),
            (false, true) => 3 * round_trip,
            (false, false) => TIMEOUT_MOST.min(3 * round_trip),
        },
        adaptive_timeout: random.below(2) == 0,
        retry_cnt: if tiny { random.below(4) as u8 } else { 7 },
        rnr_retry: if tiny { random.below(4) as u8 } else { 7 },
        min_rnr_timer: random.between(1, 16) as u8,
        receives_first: random.pick(&[0, 0, 1, 5, 20]).unwrap_or(0),
        receive_interval: Duration::from_micros(random.between(1, 3000)),
        receives_spare: random.index(4),
        think: Duration::from_micros(random.pick(&[0, 0, 10, 700]).unwrap_or(0)),
    }
}

fn plan(gentle: bool, mix: Mix, path_mtu: PathMtu, random: &mut Random) -> Plan {
    // One side may be a responder only.
    let ops = if random.below(6) == 0 { 0 } else { random.between(1, 60) };
    let config = PlanConfig {
        ops: usize::try_from(ops).unwrap_or(0),
        path_mtu: path_mtu.bytes(),
        mtus_most: random.pick(&[1, 4, 40]).unwrap_or(4),
        max_inline: MAX_INLINE as usize,
        mix,
        wrong: ops > 0 && !gentle && random.below(8) == 0,
    };
    Plan::new(&config, random)
}

/// Bytes of an inline payload.
pub(crate) const MAX_INLINE: u32 = 256;

fn strike(gentle: bool, pairs: usize, random: &mut Random) -> Option<Strike> {
    let at = Duration::from_micros(random.between(1, 20_000));
    let host = random.index(2);
    match random.below(12) {
        _ if gentle => None,
        0 => Some(Strike::Kill { host, at }),
        1 => {
            let pair = random.index(pairs);
            Some(Strike::Fail { host, pair, at })
        }
        2 => {
            let lasts = Duration::from_micros(random.between(10, 100_000));
            Some(Strike::Blackout { at, lasts })
        }
        _ => None,
    }
}
