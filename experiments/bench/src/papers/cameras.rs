//! `cameras`: frames of many cameras at their rate, over one queue pair for all or one each.
use super::bench::Experiment;
use super::record::{Cell, Conditions, Row};
use crate::job::{Cameras, Frames, Job, Outcome, Program, WARM_UP_PART, WarmUp};
use crate::mechanism::Mechanism;
use crate::stats::percentile;
use crate::{pair, sys};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;

const PERIOD_NS: u64 = 40_000_000;
const BIN_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn measure(of: &mut Experiment<'_>) -> Result<()> {
    let frames = (of.effort.milliseconds * 1_000_000 / PERIOD_NS).max(1);
    for (bytes, blocks) in of.sizes() {
        for &streams in &of.part.streams {
            for &mechanism in &of.part.mechanisms {
                let programs = of.part.programs;
                let set_up = SetUp { mechanism, bytes, blocks, streams, programs };
                of.progress(&set_up.variant());
                let outcomes = set_up.run(of, frames).or_else(|error| {
                    of.bench.failures.push(format!("{mechanism}, once: {error:#}"));
                    set_up.run(of, frames)
                });
                match outcomes {
                    Ok((outcomes, softirq_ns)) => {
                        set_up.find(of, frames, &outcomes, softirq_ns)?;
                    }
                    Err(error) => of.bench.failures.push(format!("{mechanism}: {error:#}")),
                }
            }
        }
    }
    Ok(())
}

struct SetUp {
    mechanism: Mechanism,
    bytes: usize,
    blocks: usize,
    streams: usize,
    programs: bool,
}

impl SetUp {
    fn has_windows(&self) -> bool {
        !self.programs && self.mechanism == Mechanism::SwFair
    }

    fn variant(&self) -> String {
        match (self.programs, self.has_windows()) {
            (true, _) => "a program each".to_owned(),
            (false, true) => "windows on one queue pair".to_owned(),
            (false, false) => "one queue pair".to_owned(),
        }
    }

    /// Returns what its processes found, and the time of the machine's soft interrupts from their start to their end.
    fn run(&self, of: &mut Experiment<'_>, frames: u64) -> Result<(Vec<Outcome>, u64)> {
        let softirq_ns = sys::softirq_ns();
        let pairs = if self.programs { self.streams } else { 1 };
        let cameras = self.streams / pairs;
        // Windows have their own; a ring is for all.
        let blocks = self.blocks * if self.has_windows() { 1 } else { cameras };
        let job = |first| {
            let program = Program::Cameras(Cameras {
                first,
                cameras,
                windows: self.has_windows(),
                frames,
                period_ns: PERIOD_NS,
            });
            Job { realtime: false, ..of.job(self.mechanism, (self.bytes, blocks), program) }
        };
        let jobs: Vec<Job> = (0..pairs).map(job).collect();
        let outcomes = pair::run_together(&jobs)?;
        Ok((outcomes, sys::softirq_ns().saturating_sub(softirq_ns)))
    }

    /// Adds the rows of what came.
    fn find(
        &self,
        to: &mut Experiment<'_>,
        frames: u64,
        outcomes: &[Outcome],
        softirq_ns: u64,
    ) -> Result<()> {
        let all: Option<Vec<&Frames>> = outcomes.iter().map(|one| one.frames.as_ref()).collect();
        let all = all.context("a pair of processes reported no frames")?;
        let mut arrivals: Vec<Arrival> = all
            .iter()
            .flat_map(|frames| frames.arrivals.iter().copied().map(Arrival::new))
            .collect();
        arrivals.sort_by_key(|one| one.at_ns);
        let all_ns = (frames * PERIOD_NS) as f64;
        let all_arrived = arrivals.len();
        // The machine gets warm: the first tenth does not count, but for processor time and memory.
        let dropped = frames / WARM_UP_PART;
        let frames = frames - dropped;
        let arrivals: Vec<Arrival> =
            arrivals.into_iter().filter_map(|one| one.after(dropped)).collect();
        let wall_ns = (frames * PERIOD_NS) as f64;
        let left_out = (all_arrived - arrivals.len()) as u64;
        let warm_up = WarmUp { dropped: left_out, counted: arrivals.len() as u64 };
        let cell = Cell {
            streams: Some(self.streams),
            variant: Some(self.variant()),
            ..to.cell(self.mechanism, (self.bytes, self.blocks))
        };
        let bytes = self.bytes as f64;
        let achieved = arrivals.len() as f64 * bytes * 1e9 / wall_ns;
        let conditions = Conditions {
            offered_bytes_per_s: Some(self.streams as f64 * bytes * 1e9 / PERIOD_NS as f64),
            achieved_bytes_per_s: Some(achieved),
            restarts: 1,
            realtime: false,
            dropped_operations: Some(warm_up.dropped),
            dropped_part: Some(warm_up.part()),
            ..to.conditions(outcomes)
        };
        let of = Measured { arrivals: &arrivals, streams: self.streams, frames, bytes };
        let bursts = of.burst_rates();
        let metrics: Vec<(Metric, Vec<f64>)> = vec![
            (("busy_bins_variation", "1"), of.busy_bins_variation()),
            (("busy_bytes_variation", "1"), of.busy_bytes_variation()),
            (("burst_variation", "1"), by_second(&bursts, variation)),
            (("burst_bytes_per_s", "B/s"), bursts.clone()),
            (("camera_latency_ns_p99", "ns"), of.latency_p99_by_camera()),
            (("frames_per_s_least", "1/s"), vec![of.frames_per_s_least()]),
            (("fairness_jain", "1"), vec![of.jain()]),
            (("bytes_per_s", "B/s"), vec![achieved]),
        ];
        let softirq = ("softirq_percent", "%");
        let softirq = (softirq, vec![100.0 * softirq_ns as f64 / all_ns]);
        let used = used(&all, outcomes, all_ns).map(|(metric, value)| (metric, vec![value]));
        let metrics = metrics.into_iter().chain(used).chain([softirq]);
        let row = |(metric, values)| Row::new(to.id, &cell, metric, values, &conditions).apart();
        to.rows.extend(metrics.map(row));
        let of_bursts = (0..).zip(&bursts).map(|(burst, rate)| {
            let cell = cell.at(f64::from(burst) * PERIOD_NS as f64 / 1e9, "s");
            Row::one(to.id, &cell, ("bytes_per_s_of_a_burst", "B/s"), *rate, &conditions)
        });
        to.rows.extend(of_bursts);
        Ok(())
    }
}

type Metric = (&'static str, &'static str);

/// What the frames of all processes took, in so many nanoseconds.
fn used(all: &[&Frames], outcomes: &[Outcome], wall_ns: f64) -> [(Metric, f64); 7] {
    let cpu = |role: usize| -> f64 {
        let ns: u64 = all.iter().map(|frames| frames.cpu_ns[role]).sum();
        100.0 * ns as f64 / wall_ns
    };
    let rss = outcomes.iter().map(|one| one.source.rss_bytes_peak + one.collector.rss_bytes_peak);
    let rss = rss.sum::<u64>() as f64;
    let registered = all.iter().flat_map(|one| one.registered_bytes).sum::<u64>() as f64;
    let queue_pairs = outcomes.iter().filter_map(|one| one.source.queues);
    let queue_pairs: u32 = queue_pairs.map(|queues| queues.queue_pairs).sum();
    [
        (("cpu_percent", "%"), cpu(0) + cpu(1)),
        (("cpu_percent_source", "%"), cpu(0)),
        (("cpu_percent_collector", "%"), cpu(1)),
        (("rss_bytes", "B"), rss),
        (("registered_bytes", "B"), registered),
        (("memory_bytes", "B"), rss + registered),
        (("queue_pairs", "1"), f64::from(queue_pairs)),
    ]
}

#[derive(Clone, Copy)]
struct Arrival {
    camera: usize,
    frame: u64,
    at_ns: u64,
}

impl Arrival {
    fn new([camera, frame, at_ns]: [u64; 3]) -> Self {
        Self { camera: camera as usize, frame, at_ns }
    }

    /// The same, counted from this frame on; nothing if it is one before that.
    fn after(self, first: u64) -> Option<Self> {
        let frame = self.frame.checked_sub(first)?;
        Some(Self { frame, at_ns: self.at_ns - first * PERIOD_NS, ..self })
    }

    fn late_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.frame * PERIOD_NS)
    }
}

/// What is made of the frames, which are in the order of their arrival.
struct Measured<'a> {
    arrivals: &'a [Arrival],
    streams: usize,
    frames: u64,
    bytes: f64,
}

impl Measured<'_> {
    /// Of each second: how the bytes of bins of a millisecond vary, empty ones aside.
    fn busy_bins_variation(&self) -> Vec<f64> {
        let seconds = self.arrivals.chunk_by(|a, b| a.at_ns / SECOND_NS == b.at_ns / SECOND_NS);
        let bins = |second: &[Arrival]| -> Vec<f64> {
            let same = |a: &Arrival, b: &Arrival| a.at_ns / BIN_NS == b.at_ns / BIN_NS;
            second.chunk_by(same).map(|bin| bin.len() as f64).collect()
        };
        seconds.map(|second| variation(&bins(second))).collect()
    }

    /// The same of bytes: those of a frame came evenly between the frame that came before it, or when it was due, and
    /// itself.
    fn busy_bytes_variation(&self) -> Vec<f64> {
        let mut seconds: Vec<BTreeMap<u64, f64>> = Vec::new();
        let mut before_ns = 0;
        for one in self.arrivals {
            let from_ns = before_ns.max(one.frame * PERIOD_NS).min(one.at_ns);
            before_ns = one.at_ns;
            let span = (one.at_ns - from_ns).max(1) as f64;
            for bin in from_ns / BIN_NS..=one.at_ns / BIN_NS {
                let (begins_ns, ends_ns) = (bin * BIN_NS, (bin + 1) * BIN_NS);
                let within =
                    ends_ns.min(one.at_ns.max(from_ns + 1)) - begins_ns.max(from_ns).min(ends_ns);
                let second = (begins_ns / SECOND_NS) as usize;
                seconds.resize_with(seconds.len().max(second + 1), BTreeMap::new);
                *seconds[second].entry(bin).or_default() += self.bytes * within as f64 / span;
            }
        }
        let bins = |second: &BTreeMap<u64, f64>| -> Vec<f64> {
            second.values().copied().filter(|bytes| *bytes > 0.0).collect()
        };
        seconds.iter().filter(|second| !second.is_empty()).map(|s| variation(&bins(s))).collect()
    }

    /// Of the frames that are due together: bytes by the time until the last one is there.
    fn burst_rates(&self) -> Vec<f64> {
        let mut last_ns = vec![0; self.frames as usize];
        for one in self.arrivals {
            let last = &mut last_ns[one.frame as usize];
            *last = one.late_ns().max(*last);
        }
        let all = self.bytes * self.streams as f64;
        last_ns.iter().map(|ns| all * 1e9 / (*ns).max(1) as f64).collect()
    }

    fn latency_p99_by_camera(&self) -> Vec<f64> {
        self.by_camera(|late| percentile(late, 0.99))
    }

    fn by_camera(&self, value: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let of = |camera| {
            let mine = self.arrivals.iter().filter(|one| one.camera == camera);
            let late: Vec<f64> = mine.map(|one| one.late_ns() as f64).collect();
            value(&late)
        };
        (0..self.streams).map(of).collect()
    }

    /// Frames that came before the next one was due, of the camera that has fewest.
    fn frames_per_s_least(&self) -> f64 {
        let in_time =
            |late: &[f64]| late.iter().filter(|ns| **ns < PERIOD_NS as f64).count() as f64;
        let least = self.by_camera(in_time).into_iter().fold(f64::INFINITY, f64::min);
        least * 1e9 / (self.frames * PERIOD_NS) as f64
    }

    /// Jain's index of the cameras' mean latencies: 1 where all are alike.
    fn jain(&self) -> f64 {
        let means = self.by_camera(|late| late.iter().sum::<f64>() / late.len().max(1) as f64);
        let (sum, squares) = means
            .iter()
            .fold((0.0, 0.0), |(sum, squares), mean| (sum + mean, squares + mean * mean));
        sum * sum / (means.len() as f64 * squares).max(f64::MIN_POSITIVE)
    }
}

fn variation(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    square.sqrt() / mean.max(f64::MIN_POSITIVE)
}

fn by_second(bursts: &[f64], of: fn(&[f64]) -> f64) -> Vec<f64> {
    bursts.chunks((SECOND_NS / PERIOD_NS) as usize).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(camera: usize, frame: u64, late_ms: u64) -> Arrival {
        let at_ns = frame * PERIOD_NS + late_ms * 1_000_000;
        Arrival { camera, frame, at_ns }
    }

    #[test]
    fn bursts_bins_and_cameras_are_told_apart() {
        let arrivals = [arrival(0, 0, 1), arrival(1, 0, 2), arrival(0, 1, 1), arrival(1, 1, 50)];
        let of = Measured { arrivals: &arrivals, streams: 2, frames: 2, bytes: 1e6 };
        assert_eq!(of.burst_rates(), [1e9, 4e7]);
        assert_eq!(of.busy_bins_variation(), [0.0]);
        assert_eq!(of.frames_per_s_least(), 12.5);
        assert!(of.jain() < 0.6);
    }

    /// A frame that takes four milliseconds fills four bins alike, whichever frames end in them.
    #[test]
    fn bytes_of_a_frame_lie_in_all_bins_in_which_it_came() {
        let arrivals = [arrival(0, 0, 4), arrival(1, 0, 6)];
        let of = Measured { arrivals: &arrivals, streams: 2, frames: 1, bytes: 4e6 };
        let [variation] = of.busy_bytes_variation()[..] else { panic!("a second") };
        // Four bins of 1 MB and two of 2.
        assert!((variation - 0.3536).abs() < 0.001, "{variation}");
        assert_eq!(of.busy_bins_variation(), [0.0], "by frames they are alike");
    }

    #[test]
    fn variation_is_deviation_by_mean() {
        assert_eq!(variation(&[1.0, 3.0]), 0.5);
        assert_eq!(variation(&[2.0, 2.0]), 0.0);
    }
}
