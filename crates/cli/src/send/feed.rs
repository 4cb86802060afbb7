//! One device of a source: its input, its pace, and when it ends.
use crate::args::Rate;
use catchment::format::FrameRate;
use catchment::input::pace::{LatePolicy, Pace, Pacer};
use catchment::input::{FrameInput, FrameRead, InputError};
use catchment::source::{Device, SourceError};
use std::time::{Duration, Instant};

/// How much of a delay is caught up. What is later than this is given up, as a camera would.
const BURST: Duration = Duration::from_secs(1);

pub(super) struct Feed {
    pub(super) device: Device,
    input: Box<dyn FrameInput>,
    frame_bytes: usize,
    pacer: Option<Pacer>,
    frames_left: Option<u64>,
    /// When the device ends, and when at the latest if it lags behind.
    end: Option<(Instant, Instant)>,
    /// The pacer has said that a frame is due.
    is_due: bool,
}

pub(super) enum Step {
    Sent,
    NotBefore(Instant),
    NoRoom,
    Ended,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum FeedError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Source(#[from] SourceError),
}

pub(super) struct Schedule {
    pub(super) rate: Option<FrameRate>,
    pub(super) phase: Duration,
    pub(super) start: Instant,
    pub(super) time: Option<Duration>,
    pub(super) frames: Option<u64>,
}

impl Feed {
    pub(super) fn new(device: Device, input: Box<dyn FrameInput>, schedule: &Schedule) -> Self {
        let late = LatePolicy::CatchUp { burst: BURST };
        let pacer = |rate| Pacer::new(rate, schedule.start, schedule.phase, late);
        let grace = if schedule.rate.is_some() { BURST } else { Duration::ZERO };
        Self {
            frame_bytes: input.format().frame_bytes(),
            device,
            input,
            pacer: schedule.rate.map(pacer),
            frames_left: schedule.frames,
            end: schedule.time.map(|time| {
                let end = schedule.start + time;
                (end, end + grace)
            }),
            is_due: false,
        }
    }

    /// Sends the next frame if it is due and there is room. Waits only for the input.
    pub(super) fn step(&mut self, now: Instant) -> Result<Step, FeedError> {
        if self.frames_left == Some(0) || self.is_over(now) {
            return Ok(Step::Ended);
        }
        if !self.is_due {
            if let Some(step) = self.not_yet(now) {
                return Ok(step);
            }
            self.is_due = true;
        }
        let Some(mut frame) = self.device.try_frame(self.frame_bytes)? else {
            return Ok(Step::NoRoom);
        };
        if self.input.read_frame(&mut frame)? == FrameRead::End {
            return Ok(Step::Ended);
        }
        frame.send()?;
        self.is_due = false;
        if let Some(left) = &mut self.frames_left {
            *left -= 1;
        }
        Ok(Step::Sent)
    }

    fn is_over(&self, now: Instant) -> bool {
        let limit = self.end.map(|(end, latest)| match self.pacer {
            Some(_) => latest,
            None => end,
        });
        limit.is_some_and(|limit| now >= limit)
    }

    /// What there is to do instead of a frame; `None` when one is due.
    fn not_yet(&mut self, now: Instant) -> Option<Step> {
        let (due_at, step) = match self.pacer.as_mut()?.poll(now) {
            Pace::Wait(wait) => (now + wait, Some(Step::NotBefore(now + wait))),
            Pace::Due { late, .. } => (now - late, None),
        };
        match self.end {
            Some((end, _)) if due_at >= end => Some(Step::Ended),
            _ => step,
        }
    }
}

/// The rate of frames, `None` for as fast as possible.
pub(super) fn rate_of(
    asked: Option<Rate>,
    input: &dyn FrameInput,
    synthetic: bool,
) -> Option<FrameRate> {
    const SYNTHETIC: Option<FrameRate> = FrameRate::new(25, 1);
    match asked {
        Some(Rate::Fps(rate)) => Some(rate),
        Some(Rate::Max) => None,
        None if !synthetic => None,
        Some(Rate::Native) | None if synthetic => SYNTHETIC,
        Some(Rate::Native) | None => input.frame_rate(),
    }
}
