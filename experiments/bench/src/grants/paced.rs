//! How far the rate of a transfer is from the one that it was to have.
//!
//! | case | the rate that was to be | the rate that was |
//! |---|---|---|
//! | granted | that of the link, which one source has alone, all as shipped and its controller a process of its own | its events, of which there always is one more: from the last frame of one that the collector handed out to the last of the next |
//! | changing | the mean of two, by turns of 10 ms | a queue pair's, as `bench rate` measures it: WRITEs to another process |
use super::load::{Camera, Load};
use super::place::Place;
use super::row::Row;
use super::service::Controller;
use crate::bound::Goal;
use crate::rate::Pair;
use crate::stats::{Spread, decimals};
use anyhow::{Result, ensure};
use catchment::source::Fallback;
use std::time::{Duration, Instant};

const MBIT: u64 = 1_000_000;
/// Rates, and how long a transfer is: 0.5 to 1.3 s, so that neither the time in which a frame is noticed nor a turn of
/// a rate is more than part of a percent.
const KINDS: [(u64, usize); 3] =
    [(50 * MBIT, 8 << 20), (200 * MBIT, 32 << 20), (1000 * MBIT, 64 << 20)];
/// Frames of an event, and their slots: the next event is asked for long before one has left.
const FRAME_BYTES: usize = 512 << 10;
const BLOCKS: u32 = 32;
/// By how much each of two rates is off their mean.
const SWING_PERCENT: u64 = 25;
/// Nothing is late, whatever waits.
const DEADLINE: Duration = Duration::from_secs(60);
/// Transfers that come before those that count, in memory that nobody has used; and the least that do.
const WARM_UP: usize = 2;
const LEAST: usize = 3;

/// One kind of transfers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    provider: &'static str,
    is_granted: bool,
    rate_bps: u64,
    bytes: usize,
}

impl Case {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        ["shm", "roce"].into_iter().flat_map(|provider| {
            [true, false].into_iter().flat_map(move |is_granted| {
                KINDS.map(|(rate_bps, bytes)| Self { provider, is_granted, rate_bps, bytes })
            })
        })
    }

    fn row(&self) -> Row {
        Row {
            what: "pacing",
            case: Some(if self.is_granted { "granted" } else { "changing" }),
            provider: Some(self.provider),
            frame_bytes: Some(self.bytes as u64),
            rate_asked_bps: Some(self.rate_bps),
            ..Row::default()
        }
    }

    /// Returns whether the name of its row has this text.
    pub(super) fn is_named(&self, text: &str) -> bool {
        self.row().paced_name().contains(text)
    }

    /// Measures transfers for a time.
    pub(super) fn measure(&self, time: Duration) -> Result<Row> {
        let took = Duration::from_secs_f64(self.bytes as f64 * 8.0 / self.rate_bps as f64);
        let time = time.max(took * LEAST as u32);
        let (rates_bps, lost) = if self.is_granted {
            let (rates_bps, lost) = self.granted(time + took * (WARM_UP as u32 + 2))?;
            (rates_bps, Some(lost))
        } else {
            (self.changing(time)?, None)
        };
        ensure!(rates_bps.len() >= LEAST, "{} transfers in {time:?}", rates_bps.len());
        let off = |rate_bps: &f64| rate_bps / self.rate_bps as f64 - 1.0;
        let errors: Vec<f64> = rates_bps.iter().map(|rate_bps| off(rate_bps).abs()).collect();
        let over = rates_bps.iter().map(off).fold(0.0, f64::max);
        let spread = Spread::of(&errors);
        Ok(Row {
            transfers: Some(rates_bps.len() as u64),
            rate_error_p50: Some(decimals(spread.p50, 5)),
            rate_error_p95: Some(decimals(spread.p95, 5)),
            rate_over_max: Some(decimals(over, 5)),
            frames_lost: lost,
            ..self.row()
        })
    }

    /// Returns the rates of the transfers of a source that has its link alone, and how many were lost.
    fn granted(&self, time: Duration) -> Result<(Vec<f64>, u64)> {
        let controller = Controller::start(self.rate_bps)?;
        let event_frames = self.bytes / FRAME_BYTES;
        let camera = Camera {
            event_frames: u32::try_from(event_frames)?,
            deadline: Some(DEADLINE),
            blocks: Some(BLOCKS),
            ..Camera::new("alone", FRAME_BYTES)
        };
        let controllers = controller.address.to_string();
        let load =
            Load::start(Place::LOOPBACK, self.provider, &[camera], (&controllers, Fallback::Stop))?;
        // The time of the measurement: nothing else ends it.
        std::thread::sleep(time);
        let ended = load.end()?;
        let arrivals = ended.arrivals.iter().map(|one| one.at);
        let ends: Vec<Duration> = arrivals.skip(event_frames - 1).step_by(event_frames).collect();
        let rate = |pair: &[Duration]| {
            self.bytes as f64 * 8.0 / pair[1].saturating_sub(pair[0]).as_secs_f64()
        };
        let counted = ends.get(WARM_UP - 1..).unwrap_or_default();
        Ok((counted.windows(2).map(rate).collect(), ended.lost()))
    }

    /// Returns the rates of transfers over a queue pair, whose limit changes.
    fn changing(&self, time: Duration) -> Result<Vec<f64>> {
        let mut pair = Pair::connect(self.provider)?;
        let swing = self.rate_bps * SWING_PERCENT / 100;
        let rates_bps = [self.rate_bps - swing, self.rate_bps + swing];
        let (start, mut rates) = (Instant::now(), Vec::new());
        while start.elapsed() < time || rates.len() < LEAST {
            rates.push(pair.transfer(rates_bps, self.bytes as u64)?);
        }
        Ok(rates)
    }
}

/// Returns the goals of paced transfers: a sender that is held up is slower, none is faster.
pub(super) fn goals(rows: &[Row]) -> Vec<Goal> {
    let goals_of = |case: &'static str| {
        let worst = |of: fn(&Row) -> Option<f64>| {
            rows.iter().filter(|row| row.case == Some(case)).filter_map(of).reduce(f64::max)
        };
        let name = |field: &str| format!("pacing, {case}: {field}");
        let cause = || {
            let of_case = rows.iter().filter(|row| row.case == Some(case));
            let error = |row: &&Row| row.rate_error_p95.unwrap_or(0.0);
            let row = of_case.max_by(|one, other| error(one).total_cmp(&error(other)));
            row.map_or_else(String::new, |row| {
                let (transfers, p50) = (row.transfers.unwrap_or(0), row.rate_error_p50);
                format!(
                    "{}: of {transfers} transfers half are within {}",
                    row.paced_name(),
                    p50.unwrap_or(f64::NAN)
                )
            })
        };
        [
            Goal::most(name("rate_error_p95"), worst(|row| row.rate_error_p95), 0.02)
                .because(cause),
            Goal::most(name("rate_over_max"), worst(|row| row.rate_over_max), 0.01),
        ]
    };
    ["granted", "changing"].into_iter().flat_map(goals_of).collect()
}
