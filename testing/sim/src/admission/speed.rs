//! What the controller costs: the only real time of this package.
use super::row::{Goal, Shown};
use catchment_control::admission::{
    ClassId, Config, Controller, DeviceId, DeviceSpec, Input, LinkConfig, LinkId, Output, PathId,
    Rules, SourceId, TransferId,
};
use std::collections::VecDeque;
use std::time::Instant;

/// Inputs in a second, with this many devices registered.
#[derive(Debug, serde::Serialize)]
pub(super) struct SpeedRow {
    what: &'static str,
    place: &'static str,
    method: &'static str,
    devices: u32,
    /// Transfers that wait or run all the time.
    active: u32,
    inputs: u64,
    /// The median of batches.
    inputs_per_s: f64,
    /// Of the rate at 100 devices.
    fraction_of_few: f64,
    /// Of an input with all that follows from it, and reading the clock.
    ns_p50: u64,
    ns_p99: u64,
    ns_max: u64,
    bytes_per_idle_device: f64,
    /// In all measured inputs.
    allocations: u64,
}

/// Devices of a source.
const OF_A_SOURCE: u32 = 100;
/// Between a transfer that ends, with a new one in its place, and the next: a load of 0.975.
const ROUND_NS: u64 = 430_000;
const BATCHES: u64 = 25;

pub(super) fn rows(quick: bool) -> Vec<SpeedRow> {
    let rounds = if quick { 100_000 } else { 1_000_000 };
    let mut rows: Vec<SpeedRow> =
        [(100, 10), (100_000, 100), (100_000, 10_000), (1_000_000, 10_000)]
            .map(|(devices, active)| measure(devices, active, rounds))
            .into();
    let few = rows[0].inputs_per_s;
    rows.iter_mut().for_each(|row| row.fraction_of_few = row.inputs_per_s / few);
    rows
}

#[allow(clippy::disallowed_methods, reason = "what the controller costs is real time")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// A controller under load: each transfer that ends makes room for one of another device.
struct Load {
    controller: Controller,
    devices: u32,
    active: usize,
    now_ns: u64,
    number: u64,
    running: VecDeque<TransferId>,
    inputs: u64,
}

impl Load {
    fn new(devices: u32, active: u32) -> Self {
        let link = LinkConfig::new(20_000_000_000);
        let config = Config::new(vec![link], vec![vec![LinkId(0)]], Rules::deadline());
        let mut controller = Controller::new(0, config).expect("the configuration is right");
        for device in 0..devices {
            let (class, source) = (ClassId(u8::from(device % 12 != 0)), device / OF_A_SOURCE);
            let spec = DeviceSpec::new(SourceId(source), PathId(0), class, 10_000_000_000);
            controller.handle(0, Input::Register { device: DeviceId(device), spec });
        }
        let running = VecDeque::with_capacity(1 << 10);
        let active = active as usize;
        Self { controller, devices, active, now_ns: 0, number: 0, running, inputs: 0 }
    }

    fn handle(&mut self, input: Input) {
        self.inputs += 1;
        self.controller.handle(self.now_ns, input);
        loop {
            match self.controller.poll() {
                Output::Timeout(_) => return,
                Output::Grant { transfer, .. } => self.running.push_back(transfer),
                Output::Pause { transfer, .. } => self.running.retain(|one| *one != transfer),
                Output::Missed { .. }
                | Output::Rate { .. }
                | Output::Renewed { .. }
                | Output::Working { .. }
                | Output::Refused { .. } => {}
            }
        }
    }

    fn request(&mut self) -> Input {
        self.number += 1;
        let device = DeviceId((self.number % u64::from(self.devices)) as u32);
        let transfer = TransferId { device, number: self.number };
        Input::Request { transfer, bytes: 1 << 20, age_ns: 0 }
    }

    /// Ends a transfer and begins another; `take` takes the inputs.
    fn round(&mut self, mut take: impl FnMut(&mut Self, Input)) {
        self.now_ns += ROUND_NS;
        let done = self.running.pop_front().map(|transfer| Input::Done { transfer });
        take(self, done.unwrap_or(Input::Timeout));
        if self.controller.transfers() < self.active {
            let request = self.request();
            take(self, request);
        }
    }
}

fn measure(devices: u32, active: u32, rounds: u64) -> SpeedRow {
    let mut load = None;
    let registered = allocation_counter::measure(|| load = Some(Load::new(devices, active)));
    let mut load = load.expect("made above");
    // Warm: as many wait as shall, and those that asked at once have been told that they are late.
    while load.controller.transfers() < load.active {
        let request = load.request();
        load.handle(request);
    }
    (0..2 * u64::from(active) + 10_000).for_each(|_| load.round(Load::handle));
    load.inputs = 0;
    // The median of batches: others on the machine take its processors away for a while.
    let mut rates = Vec::with_capacity(BATCHES as usize);
    let warm = allocation_counter::measure(|| {
        for _ in 0..BATCHES {
            let (begin, before) = (now(), load.inputs);
            (0..rounds / BATCHES).for_each(|_| load.round(Load::handle));
            rates.push((load.inputs - before) as f64 / begin.elapsed().as_secs_f64());
        }
    });
    let inputs = load.inputs;
    rates.sort_unstable_by(f64::total_cmp);
    let mut times_ns = Vec::with_capacity(2 * rounds as usize);
    for _ in 0..rounds {
        load.round(|load, input| {
            let before = now();
            load.handle(input);
            times_ns.push(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
        });
    }
    times_ns.sort_unstable();
    let at = |part: f64| times_ns[((times_ns.len() - 1) as f64 * part) as usize];
    SpeedRow {
        what: "speed",
        place: "sim",
        method: "deadline",
        devices,
        active,
        inputs,
        inputs_per_s: rates[rates.len() / 2],
        fraction_of_few: 1.0,
        ns_p50: at(0.5),
        ns_p99: at(0.99),
        ns_max: at(1.0),
        bytes_per_idle_device: registered.bytes_current as f64 / f64::from(devices),
        allocations: warm.count_total,
    }
}

impl Shown for SpeedRow {
    fn line(&self) -> String {
        format!(
            "{} devices, {} active: {:.0} inputs/s, p50 {} ns, p99 {} ns; {:.0} bytes an idle device, {} allocations",
            self.devices,
            self.active,
            self.inputs_per_s,
            self.ns_p50,
            self.ns_p99,
            self.bytes_per_idle_device,
            self.allocations
        )
    }
    fn goals(&self) -> Vec<Goal> {
        let name = |field| format!("speed {} devices: {field}", self.devices);
        let (rate, least) = match self.devices {
            _ if self.active < 10_000 => return Vec::new(),
            1_000_000 => (Some(self.inputs_per_s), 2_500_000.0),
            _ => (Some(self.inputs_per_s), 5_000_000.0),
        };
        vec![
            Goal::least(name("inputs_per_s"), rate, least),
            Goal::least(name("fraction_of_few"), Some(self.fraction_of_few), 0.4),
            Goal::most(name("ns_p99"), Some(self.ns_p99 as f64), 1000.0),
            Goal::most(name("bytes_per_idle_device"), Some(self.bytes_per_idle_device), 160.0),
            Goal::most(name("allocations"), Some(self.allocations as f64), 0.0),
        ]
    }
}
