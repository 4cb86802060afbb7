//! What the controller costs: the only real time of this package.
use super::row::Shown;
use catchment_control::admission::{
    ClassId, Config, Controller, DeviceId, DeviceSpec, Input, LinkConfig, LinkId, Output, PathId,
    Rules, SourceId, TransferId,
};
use std::time::Instant;

/// Inputs in a second, with this many devices registered.
#[derive(Debug, serde::Serialize)]
pub(super) struct SpeedRow {
    what: &'static str,
    place: &'static str,
    devices: u32,
    /// Transfers that wait or run all the time.
    active: u32,
    inputs: u64,
    grants: u64,
    inputs_per_second: f64,
    ns_p50: u64,
    ns_p99: u64,
    ns_max: u64,
}

pub(super) fn rows(quick: bool) -> Vec<SpeedRow> {
    let rounds = if quick { 20_000 } else { 200_000 };
    [(100, 10), (100_000, 100), (100_000, 10_000), (1_000_000, 10_000)]
        .map(|(devices, active)| measure(devices, active, rounds))
        .into()
}

#[allow(clippy::disallowed_methods, reason = "what the controller costs is real time")]
fn now() -> Instant {
    Instant::now()
}

/// Keeps `active` transfers waiting or running: each that ends makes room for one of another device.
fn measure(devices: u32, active: u32, rounds: u64) -> SpeedRow {
    let link = LinkConfig::new(20_000_000_000);
    let config = Config::new(vec![link], vec![vec![LinkId(0)]], Rules::deadline());
    let mut controller = Controller::new(0, config).expect("the configuration is right");
    for device in 0..devices {
        let class = ClassId(u8::from(device % 12 != 0));
        let spec = DeviceSpec::new(SourceId(device), PathId(0), class, 10_000_000_000);
        controller.handle(0, Input::Register { device: DeviceId(device), spec });
    }
    let id =
        |number: u64| TransferId { device: DeviceId((number % u64::from(devices)) as u32), number };
    let (mut now_ns, mut number, mut grants) = (0, 0, 0);
    let mut times_ns = Vec::new();
    let mut running = std::collections::VecDeque::new();
    let mut drain = |controller: &mut Controller, running: &mut std::collections::VecDeque<_>| loop {
        match controller.poll() {
            Output::Timeout(due_ns) => return due_ns,
            Output::Grant { transfer, .. } => {
                grants += 1;
                running.push_back(transfer);
            }
            Output::Pause { transfer, .. } => running.retain(|one| *one != transfer),
            Output::Missed { .. } | Output::Rate { .. } | Output::Refused { .. } => {}
        }
    };
    while number < u64::from(active) {
        number += 1;
        controller
            .handle(now_ns, Input::Request { transfer: id(number), bytes: 1 << 20, age_ns: 0 });
        drain(&mut controller, &mut running);
    }
    let begin = now();
    let mut timed = |controller: &mut Controller, running: &mut _, now_ns, input| {
        let before = now();
        controller.handle(now_ns, input);
        let due_ns = drain(controller, running);
        times_ns.push(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
        due_ns
    };
    for _ in 0..rounds {
        now_ns += 400_000;
        if let Some(transfer) = running.pop_front() {
            timed(&mut controller, &mut running, now_ns, Input::Done { transfer });
        } else {
            timed(&mut controller, &mut running, now_ns, Input::Timeout);
        }
        if controller.transfers() < active as usize {
            number += 1;
            let input = Input::Request { transfer: id(number), bytes: 1 << 20, age_ns: 0 };
            timed(&mut controller, &mut running, now_ns, input);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    times_ns.sort_unstable();
    let at = |part: f64| times_ns[((times_ns.len() - 1) as f64 * part) as usize];
    SpeedRow {
        what: "speed",
        place: "process",
        devices,
        active,
        inputs: times_ns.len() as u64,
        grants,
        inputs_per_second: times_ns.len() as f64 / seconds,
        ns_p50: at(0.5),
        ns_p99: at(0.99),
        ns_max: at(1.0),
    }
}

impl Shown for SpeedRow {
    fn line(&self) -> String {
        format!(
            "{} devices, {} active: {:.0} inputs/s, p50 {} ns, p99 {} ns",
            self.devices, self.active, self.inputs_per_second, self.ns_p50, self.ns_p99
        )
    }
}
