//! Cells and knees as the papers' experiments ask for them: numbers, and no rows.
use super::cell::{Cell, LINK_BPS, Links, Method};
use super::packet::{Carrier, Packets};
use super::trace::Mix;
use super::{knee, ladder, packets};
use rayon::prelude::*;

/// A method of the paper, or ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// RoCE without a controller, strict priority at the bottleneck. At level `packet` only.
    Spq,
    /// RDMA-TCM as we read it, calibration Cal-S.
    Tcm,
    /// P-RDMA-TCM as we read it, calibration Cal-S.
    PriorityTcm,
    /// The same with a gap of 0.2 ms, what our own software needs.
    PriorityTcmShortGap,
    /// The shipped policy, sources of 10 Gbit/s.
    Deadline,
    /// The shipped policy, sources of 20 Gbit/s.
    DeadlineFast,
}

impl Rival {
    /// Returns the method, and how its packets go where they do.
    fn carried(self) -> (Method, Carrier) {
        let of_ladder = |name: &str| {
            let mut papers = ladder::papers().into_iter();
            papers.find(|one| one.ladder == Some(name)).expect("a step of the ladder")
        };
        let method = match self {
            Self::Spq => return packets::strict_priority(),
            Self::Tcm => of_ladder("A0"),
            Self::PriorityTcm => of_ladder("A1"),
            Self::PriorityTcmShortGap => of_ladder("A1'"),
            Self::Deadline => ladder::shipped(LINK_BPS / 2),
            Self::DeadlineFast => ladder::shipped(LINK_BPS),
        };
        (method, packets::CONTROLLED)
    }
}

/// A method under a load, on the events of a seed.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    pub rival: Rival,
    /// What is offered, as a part of the bottleneck.
    pub load: f64,
    /// Of events; a tenth of them is warm-up.
    pub seconds: u64,
    pub seed: u64,
    /// At level `packet`.
    pub packets: bool,
}

/// What a trial came to. Shares are of the bytes of a class; `None` where nothing of a class ended, or at level
/// `chunk`.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub urgent_ms_p95: Option<f64>,
    pub tolerant_ms_p95: Option<f64>,
    pub urgent_on_time: f64,
    pub tolerant_on_time: f64,
    pub tolerant_frames_on_time: f64,
    pub tolerant_bits_per_s: f64,
    pub packets_dropped: Option<u64>,
    /// Packets sent again, as a part of all.
    pub resent_fraction: Option<f64>,
    pub operations_failed: Option<u64>,
}

/// Runs all of them on all processors; results are in their order.
pub fn run(trials: &[Trial]) -> Vec<Figures> {
    trials.par_iter().map(Trial::run).collect()
}

impl Trial {
    fn run(&self) -> Figures {
        let (method, carrier) = self.rival.carried();
        let cell = Cell {
            method,
            links: Links::Pool(1),
            mix: Mix::Events,
            load: self.load,
            seeds: vec![self.seed],
            seconds: self.seconds,
            carrier: (self.packets || self.rival == Rival::Spq).then_some(carrier),
        };
        let pooled = cell.run();
        Figures {
            urgent_ms_p95: pooled.latency_ms(0, 95.0),
            tolerant_ms_p95: pooled.latency_ms(1, 95.0),
            urgent_on_time: pooled.on_time(0),
            tolerant_on_time: pooled.on_time(1),
            tolerant_frames_on_time: pooled.frames_on_time(1),
            tolerant_bits_per_s: pooled.sent_bits[1] / self.seconds as f64,
            packets_dropped: pooled.packets.as_ref().map(Packets::dropped_in_all),
            resent_fraction: pooled.packets.as_ref().map(Packets::resent_fraction),
            operations_failed: pooled.packets.map(|packets| packets.failed),
        }
    }
}

/// The largest loads with 95 % of both classes on time, by events and by frames; `None` if there is none.
#[derive(Clone, Copy, Debug)]
pub struct Knee {
    pub by_events: Option<f64>,
    pub by_frames: Option<f64>,
}

/// Finds knees at level `chunk`, with a round trip of its own where one is given, over as many seeds.
pub fn knees(all: &[(Rival, Option<u64>)], seconds: u64, seeds: u64) -> Vec<Knee> {
    let find = |(rival, rtt_ns): &(Rival, Option<u64>)| {
        let (method, _) = rival.carried();
        let method = Method { rtt_ns: rtt_ns.unwrap_or(method.rtt_ns), ..method };
        let (links, mix) = (Links::Pool(1), Mix::Events);
        let seeds = (1..=seeds).collect();
        let cell = Cell { method, links, mix, load: 0.0, seeds, seconds, carrier: None };
        let rows = knee::find(&cell);
        let row = rows.first().expect("a knee at 95 %");
        Knee { by_events: row.knee_event, by_frames: row.knee_frame }
    };
    all.par_iter().map(find).collect()
}
