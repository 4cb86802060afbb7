//! Two applications of a line in virtual time: one has four short requests under way, each again when its answer is there,
//! one always waits. Scheduler, demands and rates are those of an agent.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use super::{Demand, LOOK};
use crate::policy::{Between, Policy};
use crate::scheduler::{ApplicationId, ConnectionId, Scheduler, Served};
use catchment_control::drum::{Application, Destination, Host, HostConfig, Input, Output};
use std::collections::VecDeque;
use std::time::Duration;

/// Of packets.
const HEADERS_BYTES: u64 = 58;
const PACKET_BYTES: u64 = 4096;
const BYTES_PER_MOPS: f64 = 64e6;
const SHORT_BYTES: u64 = 60;
const LONG_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy)]
struct Line {
    bytes_per_s: f64,
    /// From the end of a chunk on the line until it is done, and from then to the next request of the short ones.
    back_ns: u64,
    /// Short requests under way.
    short: usize,
    step: Duration,
}

/// 100 Mbit/s.
const SLOW: Line =
    Line { bytes_per_s: 12.5e6, back_ns: 100_000, short: 4, step: Duration::from_micros(20) };
/// 1 Gbit/s, with one short request at a time.
const FAST: Line =
    Line { bytes_per_s: 125e6, back_ns: 20_000, short: 1, step: Duration::from_micros(4) };

impl Line {
    /// What it takes in bytes a second without headers.
    fn payload(&self) -> u64 {
        let part = PACKET_BYTES as f64 / (PACKET_BYTES + HEADERS_BYTES) as f64;
        (self.bytes_per_s * part) as u64
    }
}

struct World {
    line: Line,
    scheduler: Scheduler,
    host: Host,
    /// First the one with short requests.
    ids: [ApplicationId; 2],
    connections: [ConnectionId; 2],
    demands: [Demand; 2],
    now_ns: u64,
    looked_ns: u64,
    line_free_ns: u64,
    /// Chunks under way, and when they are done.
    flying: VecDeque<(u64, ConnectionId, u64)>,
    /// Whether there are more requests, when short ones come, and when those came that are under way.
    goes_on: [bool; 2],
    next_short: VecDeque<u64>,
    came: VecDeque<u64>,
    payload_bytes: u64,
    waits_ns: Vec<u64>,
}

impl World {
    fn new(line: Line) -> Self {
        let payload = line.payload();
        let text =
            format!(r#"{{"applications": [], "between": {{"send_bytes_per_s": {payload}}}}}"#);
        let mut scheduler = Scheduler::new(Policy::parse(&text).unwrap().limits());
        let capacity = Between::SHARED_PART * payload as f64 / BYTES_PER_MOPS;
        let config = HostConfig {
            host: 1,
            incarnation: 1,
            alpha: 1.0,
            beta: 1e-6,
            send_capacity: capacity,
            completion_capacity: capacity,
            round_ns: 1_000_000,
            lease_ns: 2_000_000_000,
            restarted: false,
        };
        let ids = [scheduler.add_application(), scheduler.add_application()];
        let connections = ids.map(|id| scheduler.add_connection(id, 64));
        ids.iter().for_each(|id| scheduler.set_pool(*id, ids[0]));
        let mut world = Self {
            line,
            scheduler,
            host: Host::new(config, 0).unwrap(),
            ids,
            connections,
            demands: [Demand::new(Some(payload)); 2],
            now_ns: 0,
            looked_ns: 0,
            line_free_ns: 0,
            flying: VecDeque::new(),
            goes_on: [true; 2],
            next_short: vec![0; line.short].into(),
            came: VecDeque::new(),
            payload_bytes: 0,
            waits_ns: Vec::new(),
        };
        world.tell([true; 2]);
        world
    }

    /// Tells the host of demands.
    fn tell(&mut self, news: [bool; 2]) {
        for at in (0..2).filter(|at| news[*at]) {
            let application = at as u32;
            let limit = self.demands[at].told().map(|bytes_per_s| bytes_per_s / BYTES_PER_MOPS);
            let destinations = vec![Destination { host: 1, application, completions: 1.0 }];
            let application = Application { application, weight: 1.0, limit, destinations };
            self.host.handle(self.now_ns, Input::Join(application)).unwrap();
        }
    }

    /// Looks at demands, and puts rates in force.
    fn agree(&mut self) {
        let served = self.ids.map(|id| self.scheduler.served(id));
        let waiting = self.ids.map(|id| self.scheduler.waiting(id) > 0);
        let passed = Duration::from_nanos(self.now_ns - self.looked_ns);
        let mut news = [false; 2];
        for at in 0..2 {
            let demand = &mut self.demands[at];
            news[at] = if passed >= LOOK {
                demand.look(served[at], waiting[at], passed)
            } else {
                demand.look_for_held(served[at])
            };
        }
        if passed >= LOOK {
            self.looked_ns = self.now_ns;
        }
        self.tell(news);
        self.host.handle(self.now_ns, Input::Tick).unwrap();
        while let output @ (Output::Rates | Output::Send { .. }) = self.host.poll(self.now_ns) {
            assert_eq!(output, Output::Rates, "there is no other host");
            let of = |(at, rate): &(u32, f64)| (self.ids[*at as usize], rate * BYTES_PER_MOPS);
            let rates: Vec<(ApplicationId, f64)> = self.host.rates().iter().map(of).collect();
            rates.iter().for_each(|(id, rate)| self.scheduler.set_rate(*id, *rate));
            self.scheduler.set_shares(&rates);
        }
    }

    /// Takes what the device is done with, and what comes.
    fn take(&mut self) {
        let [short, long] = self.connections;
        while self.flying.front().is_some_and(|(done, ..)| *done <= self.now_ns) {
            let (done, connection, bytes) = self.flying.pop_front().unwrap();
            self.scheduler.done(connection, bytes);
            self.payload_bytes += bytes;
            if connection == short {
                self.waits_ns.push(done - self.came.pop_front().unwrap());
                self.next_short.push_back(done + self.line.back_ns);
            }
        }
        if !self.goes_on[0] {
            self.next_short.clear();
        }
        while self.next_short.front().is_some_and(|at| *at <= self.now_ns) {
            self.came.push_back(self.next_short.pop_front().unwrap());
            self.scheduler.push(short, SHORT_BYTES, true);
        }
        while self.goes_on[1] && self.scheduler.waiting(self.ids[1]) < 16 {
            self.scheduler.push(long, LONG_BYTES, true);
        }
    }

    fn send(&mut self) {
        while let Some(chunk) = self.scheduler.next_chunk() {
            let packets = chunk.bytes.div_ceil(PACKET_BYTES);
            let bytes = (chunk.bytes + HEADERS_BYTES * packets) as f64;
            let begins = self.line_free_ns.max(self.now_ns);
            self.line_free_ns = begins + (bytes / self.line.bytes_per_s * 1e9) as u64;
            let done = self.line_free_ns + self.line.back_ns;
            self.flying.push_back((done, chunk.connection, chunk.bytes));
        }
    }

    /// Lets the engine have a turn, so long after the last one.
    fn turn(&mut self, passed: Duration) {
        self.now_ns += passed.as_nanos() as u64;
        self.scheduler.refill(passed);
        self.take();
        self.agree();
        self.send();
        self.scheduler.end_turn();
    }

    /// Lets a time pass; returns the part of the line that was used in it, and how long short requests took, sorted.
    fn pass(&mut self, time: Duration) -> (f64, Vec<u64>) {
        let (payload, waits) = (self.payload_bytes, self.waits_ns.len());
        let until = self.now_ns + time.as_nanos() as u64;
        while self.now_ns < until {
            self.turn(self.line.step);
        }
        let moved = (self.payload_bytes - payload) as f64;
        let mut waits = self.waits_ns.split_off(waits);
        waits.sort_unstable();
        (moved / (self.line.payload() as f64 * time.as_secs_f64()), waits)
    }
}

/// Issue 16: beside an application that asks for little a writer had half of a line, and the rest nobody.
#[test]
fn issue_16_what_one_does_not_ask_for_is_the_others() {
    let mut world = World::new(SLOW);
    world.pass(Duration::from_secs(1));
    let (used, waits) = world.pass(Duration::from_secs(1));
    assert!(used >= 0.95, "{used} of the line is used");
    // What may be on its way, and a chunk.
    let most = 3.0 * 8192.0 / SLOW.bytes_per_s * 1e9 + 3.0 * SLOW.back_ns as f64;
    let longest = *waits.last().unwrap();
    assert!(longest as f64 <= most, "a short request took {longest} ns");
    assert!(waits.len() > 1000, "{} short requests", waits.len());
}

/// Who is idle holds nothing: who is alone gets the whole line.
#[test]
fn issue_16_who_is_alone_gets_what_idle_ones_may_ask_for() {
    let mut world = World::new(SLOW);
    world.goes_on = [false, true];
    world.pass(Duration::from_secs(1));
    let (used, _) = world.pass(Duration::from_secs(1));
    assert!(used >= 0.97, "{used} of the line is used");
}

#[test]
fn who_asks_for_little_is_looked_at_until_nothing_is_new() {
    let mut world = World::new(SLOW);
    world.goes_on = [true, false];
    world.pass(Duration::from_millis(100));
    let told = world.demands[0].told();
    assert!(told.is_some(), "nothing held the short requests");
    world.goes_on = [false; 2];
    world.pass(Duration::from_millis(100));
    let served = world.scheduler.served(world.ids[0]);
    assert!(world.demands[0].is_settled(served));
}

/// Who has one short request at a time beside a writer waits for little more than a chunk of the other, and shortly after the
/// engine had no processor, too: the other does not catch up for long on a line that is all that there is.
#[test]
fn a_short_request_does_not_wait_for_those_who_catch_up() {
    let mut world = World::new(FAST);
    // As much as the way needs.
    world.scheduler.set_window(2 * 8192);
    world.pass(Duration::from_millis(100));
    for stall_ms in [0, 1, 4, 20] {
        world.turn(Duration::from_millis(stall_ms));
        world.pass(Duration::from_millis(2 * stall_ms));
        let (used, waits) = world.pass(Duration::from_millis(100));
        let most = waits[waits.len() * 4 / 5];
        assert!(most < 65_536, "four of five take up to {most} ns, {stall_ms} ms after a stall");
        assert!(used > 0.97, "{used} of the line is used");
    }
}

/// What others would have of it is less than the rounds cost.
#[test]
fn a_demand_that_differs_by_a_hundredth_of_the_line_is_no_news() {
    let mut demand = Demand::new(Some(100_000_000));
    let mut served = Served::default();
    let mut look = |demand: &mut Demand, bytes_per_s: u64| {
        served.cost_bytes += bytes_per_s / 100;
        served.emptied += 1;
        demand.look(served, false, LOOK)
    };
    assert!(look(&mut demand, 4_000_000));
    assert_eq!(demand.told(), Some(5e6), "a quarter more than it has");
    for bytes_per_s in [3_300_000, 4_700_000, 3_500_000] {
        assert!(!look(&mut demand, bytes_per_s), "{bytes_per_s}");
    }
    assert!(look(&mut demand, 3_100_000));
    assert!(look(&mut demand, 40_000_000));
    assert!(!look(&mut demand, 36_500_000), "a tenth of what was told, where that is more");
    assert!(look(&mut demand, 35_000_000));
}
