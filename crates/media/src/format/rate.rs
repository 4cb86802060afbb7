//! Frames per second as a fraction: 29.97 is 30000/1001, and a rounded rate would drift.
use super::{digits, quoted};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Frames per second: `num / den`, both greater than 0.
///
/// Written as `25`, `30000/1001` or `29.97` (which means 2997/100).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameRate {
    num: u32,
    den: u32,
}

impl FrameRate {
    /// Creates a rate of `num / den` frames per second; `None` if either is 0.
    pub const fn new(num: u32, den: u32) -> Option<Self> {
        if num == 0 || den == 0 { None } else { Some(Self { num, den }) }
    }

    /// Returns the numerator.
    pub fn num(&self) -> u32 {
        self.num
    }

    /// Returns the denominator.
    pub fn den(&self) -> u32 {
        self.den
    }

    /// Returns the frames per second, rounded to the nearest double.
    pub fn as_f64(&self) -> f64 {
        f64::from(self.num) / f64::from(self.den)
    }

    /// Returns when frame `number` is due after frame 0. Computed from the number, not summed, so it
    /// never drifts; rounded up to whole nanoseconds, so it is never early.
    pub fn time_of(&self, number: u64) -> Duration {
        const NS_PER_S: u128 = 1_000_000_000;
        let ticks = u128::from(number) * u128::from(self.den) * NS_PER_S;
        let ns = ticks.div_ceil(u128::from(self.num));
        Duration::new(u64::try_from(ns / NS_PER_S).unwrap_or(u64::MAX), (ns % NS_PER_S) as u32)
    }

    /// Returns how many frames are due by `elapsed`, which is the number of the first one that is not.
    /// Never 0, since frame 0 is due at once.
    pub(crate) fn due_by(&self, elapsed: Duration) -> u64 {
        const NS_PER_S: u128 = 1_000_000_000;
        let latest = elapsed.as_nanos() * u128::from(self.num) / (u128::from(self.den) * NS_PER_S);
        u64::try_from(latest + 1).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.den == 1 {
            write!(f, "{}", self.num)
        } else {
            write!(f, "{}/{}", self.num, self.den)
        }
    }
}

impl FromStr for FrameRate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let parsed = match text.split_once('/') {
            Some((num, den)) => digits(num).zip(digits(den)),
            None => decimal(text),
        };
        parsed
            .and_then(|(num, den)| Self::new(num, den))
            .ok_or_else(|| RateError { value: quoted(text), problem: problem(text) })
    }
}

/// `29.97` as (2997, 100).
fn decimal(text: &str) -> Option<(u32, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let den = 10u32.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    digits(&format!("{whole}{fraction}")).map(|num| (num, den))
}

/// Returns why a text is no rate.
fn problem(text: &str) -> &'static str {
    let is_written = text.chars().all(|c| c.is_ascii_digit() || "./".contains(c));
    let above_0 = text.parse::<f64>().is_ok_and(|rate| rate > 0.0 && rate.is_finite());
    if is_written && text.contains(|c: char| c.is_ascii_digit() && c != '0') {
        "has more digits than are counted with, which are up to 4294967295"
    } else if above_0 && text.contains(['e', 'E']) {
        "has an exponent; write all of its digits"
    } else {
        "is not a number of frames per second above 0"
    }
}

/// A text that is not a [`FrameRate`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("frame rate {value} {problem}; write for example 25, 29.97 or 30000/1001")]
pub struct RateError {
    /// What was given, quoted.
    pub value: String,
    /// What is wrong with it.
    pub problem: &'static str,
}
