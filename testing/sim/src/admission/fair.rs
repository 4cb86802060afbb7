//! What a device that floods costs the others.
use super::cell::{Cell, LINK_BPS, Links, Method, SECOND_NS};
use super::ladder;
use super::outcome::Pooled;
use super::row::{Goal, Shown};
use super::trace::{self, Event, Mix};
use catchment_probe::random::Random;

/// A device that floods, in one load.
pub(super) struct Case {
    case: &'static str,
    /// The device that offers `factor` times as much.
    flooder: u32,
    factor: u32,
    load: f64,
    seeds: Vec<u64>,
    seconds: u64,
    pub(super) method: Method,
}

/// The others with the flood and without.
#[derive(Debug, serde::Serialize)]
pub(super) struct FairRow {
    what: &'static str,
    place: &'static str,
    method: &'static str,
    case: &'static str,
    shares: bool,
    load: f64,
    factor: u32,
    others_on_time: f64,
    others_on_time_calm: f64,
    /// What tolerant devices sent, of what the link carries.
    tolerant_fraction: f64,
    /// Urgent events on time, of what the link carries after the warm-up.
    urgent_on_time_fraction: f64,
    jain_devices: f64,
}

/// Returns the cases, with the shares of the shipped policy and without.
pub(super) fn cases(quick: bool, seed: u64) -> Vec<Case> {
    let (count, seconds) = if quick { (2, 400) } else { (3, 600) };
    let mut cases = Vec::new();
    for shares in [true, false] {
        for (case, flooder, factor, load, nic_bps) in [
            ("tolerant-flood", 11, 5, 0.7, LINK_BPS / 2),
            ("tolerant-flood", 11, 10, 0.7, LINK_BPS / 2),
            ("tolerant-flood", 11, 10, 0.8, LINK_BPS / 2),
            // 1.5 links: a frame in a hundred and forty is urgent otherwise.
            ("urgent-flood", 0, 253, 0.8, LINK_BPS),
        ] {
            let mut method = ladder::shipped(nic_bps);
            if !shares {
                method.rules.shares = None;
            }
            let seeds = (seed..seed + count).collect();
            cases.push(Case { case, flooder, factor, load, seeds, seconds, method });
        }
    }
    cases
}

impl Case {
    pub(super) fn run(&self) -> FairRow {
        let calm = self.measure(1);
        let flood = self.measure(self.factor);
        let others = |device: u32| (1..12).contains(&device) && device != self.flooder;
        FairRow {
            what: "fair",
            place: "sim",
            method: self.method.name,
            case: self.case,
            shares: self.method.rules.shares.is_some(),
            load: self.load,
            factor: self.factor,
            others_on_time: flood.devices_on_time(others),
            others_on_time_calm: calm.devices_on_time(others),
            tolerant_fraction: flood.sent_bits[1] / self.link_bits(),
            urgent_on_time_fraction: flood.on_time_bits(0) / (0.9 * self.link_bits()),
            jain_devices: flood.jain(others),
        }
    }

    /// Returns what the link carries in all runs.
    fn link_bits(&self) -> f64 {
        LINK_BPS as f64 * self.seconds as f64 * self.seeds.len() as f64
    }

    fn measure(&self, factor: u32) -> Pooled {
        let (method, seeds) = (self.method.clone(), self.seeds.clone());
        let (links, mix, load, seconds) = (Links::Pool(1), Mix::Events, self.load, self.seconds);
        let cell = Cell { method, links, mix, load, seeds, seconds, carrier: None };
        let traces = self.seeds.iter().map(|seed| self.trace(*seed, factor));
        cell.run_on(traces)
    }

    /// Draws the usual events, and those that the device offers in addition.
    fn trace(&self, seed: u64, factor: u32) -> Vec<Event> {
        let horizon_ns = self.seconds * SECOND_NS;
        let (load, mix, capacity_bps) = (self.load, Mix::Events, LINK_BPS);
        let devices = trace::SOURCES;
        let offer = trace::Offer { load, mix, capacity_bps, devices, first: 0, horizon_ns };
        let mut random = Random::new(1000 + seed);
        let mut events = trace::draw(&offer, &mut random);
        let own = events.iter().filter(|event| event.device == self.flooder);
        let rate = own.count() as f64 / self.seconds as f64 * f64::from(factor - 1);
        let (class, frames) = if self.flooder == 0 { (0, 1) } else { (1, 15) };
        let more = trace::poisson(rate, horizon_ns, &mut random).into_iter();
        let device = self.flooder;
        events.extend(more.map(|at_ns| Event { at_ns, device, class, frames }));
        events.sort_unstable();
        events
    }
}

impl Shown for FairRow {
    fn line(&self) -> String {
        format!(
            "{} x{} at {} shares {}: others on time {:.4}, {:.4} without; tolerant {:.3} of the link; Jain {:.4}",
            self.case,
            self.factor,
            self.load,
            self.shares,
            self.others_on_time,
            self.others_on_time_calm,
            self.tolerant_fraction,
            self.jain_devices
        )
    }
    fn goals(&self) -> Vec<Goal> {
        let Self { case, factor, load, .. } = self;
        let name = |field| format!("fair {case} x{factor} at {load}: {field}");
        match *case {
            _ if !self.shares => Vec::new(),
            "tolerant-flood" if *factor == 10 && *load == 0.8 => {
                let (others, calm) = (Some(self.others_on_time), self.others_on_time_calm);
                vec![Goal::least(name("others_on_time"), others, calm - 0.01)]
            }
            "urgent-flood" => {
                vec![Goal::least(name("tolerant_fraction"), Some(self.tolerant_fraction), 0.48)]
            }
            _ => Vec::new(),
        }
    }
}
