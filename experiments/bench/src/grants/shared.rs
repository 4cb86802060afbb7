//! Sources with small frames that share one bottleneck: what all of them move in a second, beside what it carries.
//!
//! The controller is a process of its own; sources and collector, as shipped, are in this one. Each source always has
//! frames to send. A frame counts when the collector hands it out.
use super::load::{Camera, Load};
use super::place::Place;
use super::row::Row;
use super::service::Controller;
use crate::stats::decimals;
use anyhow::{Context as _, Result};
use catchment::source::Fallback;
use std::time::Duration;

/// Before all sources are registered and have frames on their way.
const WARM_UP: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);
/// Slots of a source: what is written ahead has left soon after the end.
const BLOCKS: u32 = 8;
/// Beyond the capacity, in percent, beside a chunk.
const BEYOND_PERCENT: f64 = 1.0;

/// Sources, their frames and the bottleneck.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    provider: &'static str,
    sources: usize,
    /// Also the size of a chunk: none is longer than its frame.
    frame_bytes: usize,
    capacity_bps: u64,
}

impl Case {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        const MBIT: u64 = 1_000_000;
        let kinds = [
            (2, 64 << 10, 100 * MBIT),
            (3, 256 << 10, 100 * MBIT),
            (2, 512 << 10, 400 * MBIT),
            (3, 64 << 10, 400 * MBIT),
            (2, 256 << 10, 20 * MBIT),
            (3, 64 << 10, 20 * MBIT),
        ];
        ["shm", "roce"].into_iter().flat_map(move |provider| {
            kinds.map(|(sources, frame_bytes, capacity_bps)| Self {
                provider,
                sources,
                frame_bytes,
                capacity_bps,
            })
        })
    }

    /// Returns the row of this case, without what came of it.
    fn row(&self) -> Row {
        Row {
            what: "pacing",
            case: Some("shared"),
            provider: Some(self.provider),
            sources: Some(self.sources),
            devices: Some(self.sources as u64),
            frame_bytes: Some(self.frame_bytes as u64),
            capacity_bps: Some(self.capacity_bps),
            ..Row::default()
        }
    }

    fn cameras(&self) -> Vec<Camera> {
        let camera = |number| {
            let name = format!("cam{number}");
            Camera { blocks: Some(BLOCKS), ..Camera::new(&name, self.frame_bytes) }
        };
        (0..self.sources).map(camera).collect()
    }

    /// Returns whether the name of its row has this text.
    pub(super) fn is_named(&self, text: &str) -> bool {
        self.row().shared_name().contains(text)
    }

    /// Lets the sources send for a time, after a warm-up.
    pub(super) fn measure(&self, time: Duration) -> Result<Row> {
        let controller = Controller::start(self.capacity_bps)?;
        let controllers = controller.address.to_string();
        let load = Load::start(
            Place::LOOPBACK,
            self.provider,
            &self.cameras(),
            (&controllers, Fallback::Stop),
        )?;
        // The time of the measurement: nothing else ends it.
        std::thread::sleep(WARM_UP + time);
        let ended = load.end()?;
        let arrivals: Vec<_> = ended.arrivals.iter().map(|one| (one.at, one.camera)).collect();
        let moved = Moved::of(&arrivals, self, time)?;
        Ok(Row {
            transfers: Some(ended.sent),
            frames_lost: Some(ended.lost()),
            used_fraction: Some(decimals(moved.used_fraction, 4)),
            beyond_bytes_max: Some(moved.beyond_bytes_max.round()),
            silent_ms_max: Some(decimals(moved.silent.as_secs_f64() * 1e3, 1)),
            ..self.row()
        })
    }
}

/// What came of a case.
struct Moved {
    /// Of the capacity, from the first frame after the warm-up to the last one.
    used_fraction: f64,
    /// In any second, beyond the capacity and a percent of it; negative where all seconds have less.
    beyond_bytes_max: f64,
    /// The longest time without a frame of one of the sources, in all that was measured after the warm-up.
    silent: Duration,
}

impl Moved {
    /// `arrivals` are times since the beginning, in order, and the number of the source.
    fn of(arrivals: &[(Duration, usize)], case: &Case, time: Duration) -> Result<Self> {
        let silent = (0..case.sources).map(|source| silence(arrivals, source, time)).max();
        let arrivals: Vec<Duration> = arrivals.iter().map(|(at, _)| *at).collect();
        let bytes = |frames: usize| (frames * case.frame_bytes) as f64;
        let carries = case.capacity_bps as f64 / 8.0;
        let counted: Vec<Duration> =
            arrivals.iter().copied().filter(|at| (WARM_UP..=WARM_UP + time).contains(at)).collect();
        let (first, last) = counted.first().zip(counted.last()).context("no frame arrived")?;
        let spent = last.saturating_sub(*first).as_secs_f64();
        let within = |at: usize| {
            let end = arrivals[at] + SECOND;
            arrivals[at..].partition_point(|arrival| *arrival < end)
        };
        let most = (0..arrivals.len()).map(within).max().unwrap_or(0);
        Ok(Self {
            used_fraction: bytes(counted.len() - 1) / (carries * spent),
            beyond_bytes_max: bytes(most) - carries * (1.0 + BEYOND_PERCENT / 100.0),
            silent: silent.unwrap_or(time),
        })
    }
}

/// Returns the longest time without a frame of a source, after the warm-up.
fn silence(arrivals: &[(Duration, usize)], source: usize, time: Duration) -> Duration {
    let end = WARM_UP + time;
    let times = arrivals.iter().filter(|(at, of)| *of == source && (WARM_UP..end).contains(at));
    let times = times.map(|(at, _)| *at);
    let steps = std::iter::once(WARM_UP).chain(times.clone()).zip(times.chain([end]));
    steps.map(|(from, to)| to.saturating_sub(from)).max().unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_that_has_too_much_is_seen() {
        let case =
            Case { provider: "shm", sources: 2, frame_bytes: 125_000, capacity_bps: 10_000_000 };
        let time = Duration::from_secs(3);
        // Ten frames a second are what it carries.
        let even: Vec<_> =
            (0..60).map(|frame| (Duration::from_millis(frame as u64 * 100), frame % 2)).collect();
        let moved = Moved::of(&even, &case, time).unwrap();
        assert!((moved.used_fraction - 1.0).abs() < 1e-9, "{}", moved.used_fraction);
        assert!(moved.beyond_bytes_max < 0.0, "{}", moved.beyond_bytes_max);
        assert_eq!(moved.silent, Duration::from_millis(200));
        let mut burst = even;
        burst.extend([(Duration::from_millis(2550), 0); 4]);
        burst.sort_unstable();
        let moved = Moved::of(&burst, &case, time).unwrap();
        assert!((moved.beyond_bytes_max - (4.0 * 125_000.0 - 12_500.0)).abs() < 1e-6);
        assert!(Moved::of(&[], &case, time).is_err());
        let mut one = burst;
        one.retain(|(at, source)| *source == 0 || *at < WARM_UP);
        assert_eq!(Moved::of(&one, &case, time).unwrap().silent, time);
    }
}
