//! What a measurement is told.
use crate::PerfError;
use crate::operation::{Figure, Operation, Test};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// So many requests.
    Iterations(u64),
    /// For so long.
    Seconds(f64),
}

impl Amount {
    /// Checks that it is more than nothing and ends.
    ///
    /// # Errors
    /// [`PerfError::Plan`].
    pub fn check(self) -> Result<(), PerfError> {
        let fault = match self {
            Self::Iterations(0) => Some("at least 1 request is needed".to_owned()),
            Self::Seconds(s) if !(s > 0.0 && s <= Plan::SECONDS_MAX) => {
                let most = Plan::SECONDS_MAX;
                Some(format!("a measurement takes above 0 to {most} s, not {s}"))
            }
            Self::Iterations(_) | Self::Seconds(_) => None,
        };
        fault.map_or(Ok(()), |fault| Err(PerfError::Plan(fault)))
    }

    /// Returns when to stop, and after how many requests.
    pub(crate) fn limits(self) -> (Duration, u64) {
        match self {
            Self::Iterations(count) => (Duration::MAX, count),
            Self::Seconds(seconds) => {
                (Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX), u64::MAX)
            }
        }
    }

    /// Returns the longest that it may take.
    pub(crate) fn longest(self) -> Duration {
        Duration::from_secs_f64(match self {
            Self::Seconds(seconds) => seconds.clamp(0.0, Plan::SECONDS_MAX),
            Self::Iterations(_) => Plan::SECONDS_MAX,
        })
    }
}

/// How both sides wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// Look again and again, letting others have the core between two looks.
    Yield,
    /// Sleep until a completion comes.
    Sleep,
}

/// One measurement over a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What is measured.
    pub test: Test,
    /// Bytes of a request, 1 to [`Plan::BYTES_MAX`].
    pub bytes: u64,
    /// How much is measured.
    pub amount: Amount,
    /// Requests outstanding at once, for bandwidth. 1 to [`Plan::DEPTH_MAX`].
    pub depth: u32,
    /// How both sides wait.
    pub waiting: Waiting,
    /// What comes first and does not count.
    pub warm_up: Amount,
    /// Requests posted together, for bandwidth; the last one is signaled. 1 to [`Plan::BATCH_MAX`].
    pub batch: u32,
    /// Receives that the passive side keeps posted, for SEND bandwidth. 1 to [`Plan::DEPTH_MAX`].
    pub receives: u32,
    /// Places that requests go round, for bandwidth: registered memory in multiples of a request.
    pub places: u64,
    /// Whether a side that looks for a WRITE in its memory also polls its completion queue: where the
    /// provider does its work inside of polls, nothing would come otherwise.
    pub polls: bool,
    /// Rate that the active side's queue pair is limited to, as in
    /// [`Qp::set_rate`](catchment_verbs::Qp::set_rate); none is as fast as it goes.
    pub rate_bps: Option<u64>,
    /// A second limit, for bandwidth: this and [`Plan::rate_bps`] are in force by turns, each for
    /// [`Plan::RATE_TURN`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_rate_bps: Option<u64>,
}

impl Plan {
    /// Longest request.
    pub const BYTES_MAX: u64 = 1 << 28;
    /// Most requests outstanding.
    pub const DEPTH_MAX: u32 = 4096;
    /// Most requests posted together.
    pub const BATCH_MAX: u32 = 32;
    /// Longest measurement.
    pub const SECONDS_MAX: f64 = 3600.0;
    /// How long each of two limits is in force.
    pub const RATE_TURN: Duration = Duration::from_millis(10);
    /// Most registered memory that the active side may ask for, two longest requests apart.
    const MEMORY_BYTES_MAX: u64 = 1 << 30;
    /// Memory that a ring has by default, where more than two places do not need more: what caches hold.
    const RING_BYTES: u64 = 16 << 20;
    /// Requests posted together by default.
    const BATCH: u32 = 16;
    /// Round trips of the warm-up by default.
    const WARM_UP_TRIPS: u64 = 100;

    /// Returns a plan with perftest's choices where there is one: `depth` requests and receives, batches
    /// of at most a quarter of them, a ring that stays in caches.
    pub fn new(test: Test, bytes: u64, amount: Amount, depth: u32, waiting: Waiting) -> Self {
        let ring = Self::RING_BYTES / Self::place_bytes(bytes).max(1);
        Self {
            test,
            bytes,
            amount,
            depth,
            waiting,
            warm_up: Amount::Iterations(match test.figure {
                Figure::Bandwidth => depth.into(),
                Figure::Latency => Self::WARM_UP_TRIPS,
            }),
            batch: (depth / 4).clamp(1, Self::BATCH),
            receives: depth,
            places: u64::from(depth).min(ring).max(2),
            polls: true,
            rate_bps: None,
            second_rate_bps: None,
        }
    }

    /// Returns the bytes from one place to the next: places begin at cache lines.
    pub(crate) const fn place_bytes(bytes: u64) -> u64 {
        bytes.div_ceil(64).saturating_mul(64)
    }

    /// Checks that it can be carried out.
    ///
    /// # Errors
    /// [`PerfError::Plan`] with the limit that it does not keep.
    pub fn check(&self) -> Result<(), PerfError> {
        self.amount.check()?;
        self.fault().map_or(Ok(()), |fault| Err(PerfError::Plan(fault)))?;
        self.warm_up.check()
    }

    fn fault(&self) -> Option<String> {
        let Self { bytes, depth, .. } = *self;
        if !(1..=Self::BYTES_MAX).contains(&bytes) {
            let most = Self::BYTES_MAX;
            return Some(format!("a request has 1 to {most} bytes, not {bytes}"));
        }
        for (count, what) in [(depth, "requests"), (self.receives, "receives")] {
            if !(1..=Self::DEPTH_MAX).contains(&count) {
                let most = Self::DEPTH_MAX;
                return Some(format!("1 to {most} {what} can be outstanding, not {count}"));
            }
        }
        if !(1..=Self::BATCH_MAX.min(depth)).contains(&self.batch) {
            let (most, batch) = (Self::BATCH_MAX.min(depth), self.batch);
            return Some(format!("1 to {most} requests go together, not {batch}"));
        }
        let memory = self.places.checked_mul(Self::place_bytes(bytes));
        if self.places == 0 || memory.is_none_or(|bytes| bytes > Self::MEMORY_BYTES_MAX) {
            let (places, most) = (self.places, Self::MEMORY_BYTES_MAX);
            return Some(format!(
                "{places} places of {bytes} bytes are none, or more than {most} bytes"
            ));
        }
        if self.second_rate_bps.is_some()
            && (self.rate_bps.is_none() || self.test.figure != Figure::Bandwidth)
        {
            return Some("a second rate takes turns with a first one, for bandwidth".to_owned());
        }
        let looks = self.test.operation == Operation::Write && self.test.figure == Figure::Latency;
        if looks && self.waiting == Waiting::Sleep {
            return Some(
                "write_lat looks at memory, and nothing wakes a program for that: wait by yielding, \
                 or measure send_lat"
                    .to_owned(),
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_cannot_be_carried_out_say_why() {
        let test = "write_lat".parse().unwrap();
        let good = Plan::new(test, 64, Amount::Iterations(1), 1, Waiting::Yield);
        good.check().unwrap();
        let amount = |amount| Plan { amount, ..good };
        for (wrong, why) in [
            (Plan { bytes: 0, ..good }, "1 to"),
            (Plan { bytes: 1 << 40, ..good }, "1 to"),
            (Plan { depth: 0, ..good }, "outstanding"),
            (Plan { receives: 1 << 20, ..good }, "receives"),
            (Plan { batch: 2, ..good }, "together"),
            (Plan { places: 0, ..good }, "places"),
            (Plan { places: u64::MAX, ..good }, "places"),
            (Plan { waiting: Waiting::Sleep, ..good }, "send_lat"),
            (Plan { second_rate_bps: Some(1), ..good }, "a first one"),
            (amount(Amount::Iterations(0)), "at least 1"),
            (amount(Amount::Seconds(-1.0)), "above 0"),
            (amount(Amount::Seconds(f64::NAN)), "above 0"),
        ] {
            let fault = wrong.check().unwrap_err().to_string();
            assert!(fault.contains(why), "{wrong:?}: {fault}");
        }
    }

    #[test]
    fn the_default_ring_fits_in_caches_or_has_two_places() {
        let test = "write_bw".parse().unwrap();
        let plan =
            |bytes, depth| Plan::new(test, bytes, Amount::Iterations(1), depth, Waiting::Sleep);
        assert_eq!(plan(64, 128).places, 128);
        assert_eq!(plan(1 << 20, 128).places, 16);
        assert_eq!(plan(Plan::BYTES_MAX, 128).places, 2);
        assert_eq!((plan(64, 128).batch, plan(64, 8).batch, plan(64, 1).batch), (16, 2, 1));
        plan(Plan::BYTES_MAX, 1).check().unwrap();
    }
}
