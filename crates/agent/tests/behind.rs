//! What an agent turns out to serve, in virtual time: the scheduler as it ships between applications and a device that take
//! time, and rates that are what was stated or what works of it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_agent::scheduler::{ApplicationId, ConnectionId, Limits, Scheduler};
use catchment_control::drum::Working;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

const STATED: u64 = 1_000_000_000;
const CHUNK: u32 = 64 << 10;
const LIMITS: Limits = Limits { chunk_bytes: CHUNK, window_bytes: 128 << 10, request_bytes: 256 };
const MS: u64 = 1_000_000;
/// Of a turn, whatever there is to do.
const TURN_NS: u64 = 5_000;
const TURN_CHUNKS: usize = 256;
/// Until rates are others.
const LOOK_NS: u64 = 10 * MS;

/// What an application does.
#[derive(Debug, Clone, Copy)]
enum Asks {
    /// Always has requests of so many bytes.
    Always(u64),
    /// Has one request of so many bytes each so many nanoseconds.
    Now(u64, u64),
    /// Always has some, for a peer that takes so many bytes a second.
    Slow(u64),
    /// Always has some, for a peer that posts no receive.
    Never,
}

struct Application {
    id: ApplicationId,
    connection: ConnectionId,
    weight: f64,
    asks: Asks,
    /// What its peer has not taken yet, in order: when it will have, and bytes.
    flying: VecDeque<(u64, u64)>,
    asked_ns: u64,
}

struct World {
    scheduler: Scheduler,
    working: Working,
    all: Vec<Application>,
    /// What the engine moves in a second, in bytes.
    engine: f64,
    now_ns: u64,
    looked_ns: u64,
    /// When time was given out last, and when somebody else had the engine's core last.
    refilled_ns: u64,
    taken_ns: u64,
    changes: Vec<u64>,
}

impl World {
    fn new(engine: f64, asks: &[(f64, Asks)]) -> Self {
        let mut scheduler = Scheduler::new(LIMITS);
        let all = asks.iter().map(|(weight, asks)| {
            let id = scheduler.add_application();
            let connection = scheduler.add_connection(id, 1 << 20);
            if matches!(asks, Asks::Never) {
                scheduler.pause(connection);
            }
            let (flying, asked_ns) = (VecDeque::new(), 0);
            Application { id, connection, weight: *weight, asks: *asks, flying, asked_ns }
        });
        let all = all.collect();
        let mut world = Self {
            scheduler,
            working: Working::new(STATED, 0),
            all,
            engine,
            now_ns: 0,
            looked_ns: 0,
            refilled_ns: 0,
            taken_ns: 0,
            changes: Vec::new(),
        };
        world.decide();
        world
    }

    /// Gives rates out of what works.
    fn decide(&mut self) {
        let sum: f64 = self.all.iter().map(|one| one.weight).sum();
        let shared = 0.98 * STATED as f64;
        let shared = shared.min(self.working.bytes_per_s() as f64);
        let rate = |one: &Application| (one.id, shared * one.weight / sum);
        let rates: Vec<_> = self.all.iter().map(rate).collect();
        rates.iter().for_each(|(id, rate)| self.scheduler.set_rate(*id, *rate));
        self.all.iter().for_each(|one| self.scheduler.set_pool(one.id, one.id));
        self.scheduler.set_shares(&rates);
    }

    /// Applications ask.
    fn ask(&mut self) {
        for one in &mut self.all {
            match one.asks {
                Asks::Always(bytes) | Asks::Slow(bytes) => {
                    while self.scheduler.waiting(one.id) < 2000 {
                        let bytes = if matches!(one.asks, Asks::Slow(_)) { 4096 } else { bytes };
                        self.scheduler.push(one.connection, bytes, true);
                    }
                }
                Asks::Now(bytes, pause_ns) => {
                    if self.now_ns >= one.asked_ns + pause_ns {
                        one.asked_ns = self.now_ns;
                        self.scheduler.push(one.connection, bytes, true);
                    }
                }
                Asks::Never if self.scheduler.waiting(one.id) == 0 => {
                    self.scheduler.push(one.connection, 4096, false);
                }
                Asks::Never => {}
            }
        }
    }

    /// One turn of the engine, as `daemon::engine` makes it.
    fn turn(&mut self) {
        self.ask();
        let passed_ns = self.now_ns - std::mem::replace(&mut self.refilled_ns, self.now_ns);
        self.scheduler.refill(Duration::from_nanos(passed_ns));
        if self.now_ns >= self.looked_ns + LOOK_NS {
            self.looked_ns = self.now_ns;
            if self.working.look(self.now_ns, self.scheduler.behind()) {
                self.changes.push(self.working.bytes_per_s());
                self.decide();
            }
        }
        let mut bytes = 0;
        for _ in 0..TURN_CHUNKS {
            if bytes >= 512 << 10 {
                break;
            }
            let Some(chunk) = self.scheduler.next_chunk() else { break };
            let cost = self.scheduler.cost_bytes(chunk.bytes);
            bytes += cost;
            let mut all = self.all.iter_mut();
            let one = all.find(|one| one.connection == chunk.connection).unwrap();
            let after_ns = match one.asks {
                Asks::Slow(bytes_per_s) => chunk.bytes * 1_000_000_000 / bytes_per_s,
                Asks::Always(_) | Asks::Now(..) | Asks::Never => 0,
            };
            let before_ns = one.flying.back().map_or(self.now_ns, |(at, _)| *at).max(self.now_ns);
            one.flying.push_back((before_ns + after_ns, chunk.bytes));
        }
        self.now_ns += TURN_NS + (bytes as f64 / self.engine * 1e9) as u64;
        for one in &mut self.all {
            while one.flying.front().is_some_and(|(at, _)| *at <= self.now_ns) {
                let (_, bytes) = one.flying.pop_front().unwrap();
                self.scheduler.done(one.connection, bytes);
            }
        }
        if self.now_ns / (10 * MS) != self.looked_ns / (10 * MS) {
            self.scheduler.look();
        }
        self.scheduler.end_turn();
    }

    /// Lets so much time pass, in which something else has the core for `taken_ns` of each 10 ms.
    fn pass(&mut self, ms: u64, taken_ns: u64) {
        let until_ns = self.now_ns + ms * MS;
        while self.now_ns < until_ns {
            self.turn();
            if self.now_ns >= self.taken_ns + 10 * MS {
                self.taken_ns = self.now_ns;
                self.now_ns += taken_ns;
            }
        }
    }

    /// Returns what each was served beside its rate in so much time, rates weighted by time.
    fn kept(&mut self, ms: u64, taken_ns: u64) -> Vec<f64> {
        let served =
            |world: &Self, at: usize| world.scheduler.served(world.all[at].id).cost_bytes as f64;
        let before: Vec<f64> = (0..self.all.len()).map(|at| served(self, at)).collect();
        let sum: f64 = self.all.iter().map(|one| one.weight).sum();
        let mut works = 0.0;
        let until_ns = self.now_ns + ms * MS;
        while self.now_ns < until_ns {
            let (works_now, from_ns) = (self.working.bytes_per_s() as f64, self.now_ns);
            self.pass(1, taken_ns);
            let seconds = (self.now_ns - from_ns) as f64 / 1e9;
            works += works_now.min(0.98 * STATED as f64) * seconds;
        }
        let of = |at: usize| (served(self, at) - before[at]) / (works * self.all[at].weight / sum);
        (0..self.all.len()).map(of).collect()
    }
}

const MIX: [(f64, Asks); 5] = [
    (1.0, Asks::Always(1 << 20)),
    (2.0, Asks::Always(64)),
    (4.0, Asks::Always(2048)),
    (8.0, Asks::Always(16 << 10)),
    (1.0, Asks::Always(64 << 10)),
];

/// Rates that the engine cannot keep become those that it can, and each application is served its own.
#[test]
fn s5_9_rates_that_cannot_be_kept_are_lowered_until_they_are() {
    let mut world = World::new(STATED as f64 / 2.0, &MIX);
    let before = world.kept(100, 0);
    assert!(before.iter().all(|kept| *kept < 0.6), "{before:?}");
    world.pass(1000, 0);
    let kept = world.kept(10_000, 0);
    assert!(kept.iter().all(|kept| (kept - 1.0).abs() < 0.02), "{kept:?}");
    let changes = &world.changes;
    let used = changes.iter().skip(1).all(|works| (40..55).contains(&(works / (STATED / 100))));
    assert!(used, "{changes:?}");
}

/// The same where twenty times as much is stated as there is.
#[test]
fn a_line_that_is_stated_far_too_fast_is_found_out() {
    let mut world = World::new(STATED as f64 / 20.0, &MIX);
    world.pass(2000, 0);
    let kept = world.kept(10_000, 0);
    assert!(kept.iter().all(|kept| (kept - 1.0).abs() < 0.02), "{kept:?}");
}

/// What a peer never takes is for ever in the device's hands: nobody waits for it.
#[test]
fn who_is_stuck_does_not_hide_that_rates_are_not_kept() {
    let all: Vec<_> = MIX.into_iter().chain([(1.0, Asks::Slow(1))]).collect();
    let mut world = World::new(STATED as f64 / 2.0, &all);
    world.pass(2000, 0);
    assert!(world.working.bytes_per_s() < STATED * 6 / 10, "{:?}", world.changes);
}

/// What can be served is given out again.
#[test]
fn what_works_climbs_back_to_what_is_stated() {
    let mut world = World::new(STATED as f64 / 2.0, &MIX);
    world.pass(2000, 0);
    assert!(world.working.bytes_per_s() < STATED * 6 / 10);
    world.engine = 4.0 * STATED as f64;
    // 5 % of what is stated a second, at most.
    world.pass(8000, 0);
    assert!(world.working.bytes_per_s() < STATED);
    world.pass(5000, 0);
    assert_eq!(world.working.bytes_per_s(), STATED);
    world.changes.clear();
    let kept = world.kept(5000, 0);
    assert!(kept.iter().all(|kept| (kept - 1.0).abs() < 0.01), "{kept:?}");
    assert!(world.changes.is_empty());
}

/// What a slow peer has not taken yet, and who waits beside for a receive that never comes, is not what the host can send.
#[test]
fn a_slow_peer_beside_one_who_gets_no_receive_is_no_reason() {
    let both = [(1.0, Asks::Slow(10_000)), (1.0, Asks::Never)];
    let mut world = World::new(1.5 * STATED as f64, &both);
    world.pass(1500, 0);
    assert!(world.changes.is_empty(), "{:?}", world.changes);
}

fn any() -> impl Strategy<Value = (f64, Asks)> {
    let asks = prop_oneof![
        3 => (64..1u64 << 20).prop_map(Asks::Always),
        2 => (64..1u64 << 18, 1_000..10_000_000u64).prop_map(|(bytes, ns)| Asks::Now(bytes, ns)),
        2 => (4.0..9.5f64).prop_map(|digits| Asks::Slow(10f64.powf(digits) as u64)),
        1 => Just(Asks::Never),
    ];
    (prop::sample::select(vec![1.0, 2.0, 4.0, 8.0]), asks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// An engine that can serve all that is stated is never found to serve less, whoever asks for little, waits for a slow
    /// peer or for a receive that never comes, and though something else has its core now and then.
    #[test]
    fn nobody_who_waits_for_others_lowers_what_works(
        all in prop::collection::vec(any(), 1..8),
        faster in 1.5..8.0f64,
        taken_ns in 0..3 * MS,
    ) {
        // What is left of its core is enough.
        let rest = 1.0 - taken_ns as f64 / (10 * MS + taken_ns) as f64;
        let mut world = World::new(faster * STATED as f64 / rest, &all);
        world.pass(1500, taken_ns);
        prop_assert!(world.changes.is_empty(), "{:?}", world.changes);
    }
}
