//! The plan of a round: how many frames flow, which process is killed when, and when it restarts.
use super::{random_of, time_below};
use fastrand::Rng;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
pub(crate) enum Role {
    #[display("source")]
    Source,
    #[display("collector")]
    Collector,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) devices: usize,
    /// Frames per second of each device.
    pub(crate) rate_fps: u32,
    pub(crate) start: [Role; 2],
    /// Whether frames must arrive before the first strike; otherwise it hits the handshake.
    pub(crate) settle_first: bool,
    pub(crate) strikes: Vec<Strike>,
}

/// A `kill -9` and the restart after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strike {
    /// The processes to kill, in the order of their restart.
    pub(crate) victims: Vec<Role>,
    /// Time from the last restart, or from the first frames, to the kill.
    pub(crate) after: Duration,
    pub(crate) down: Duration,
    pub(crate) settle: bool,
}

/// A strike this soon after a start hits the handshake.
const HANDSHAKE: Duration = Duration::from_millis(80);
const DOWN_AT_MOST: Duration = Duration::from_millis(300);
const RATES_FPS: [u32; 3] = [30, 250, 1000];

impl Plan {
    pub(crate) fn new(seed: u64, round: u64, length: Duration) -> Self {
        let mut random = random_of(seed, round);
        let devices = random.usize(1..=4);
        let rate_fps = RATES_FPS[random.usize(..RATES_FPS.len())];
        let start = order(&mut random);
        let settle_first = random.f64() < 0.8;
        let strikes = strikes(&mut random, length, settle_first);
        Self { devices, rate_fps, start, settle_first, strikes }
    }
}

fn order(random: &mut Rng) -> [Role; 2] {
    if random.bool() { [Role::Source, Role::Collector] } else { [Role::Collector, Role::Source] }
}

fn strikes(random: &mut Rng, length: Duration, settle_first: bool) -> Vec<Strike> {
    let count = random.u32(1..=3);
    let mut settled = settle_first;
    let mut strikes = Vec::new();
    for number in 1..=count {
        let window = if settled { length / count } else { HANDSHAKE };
        let settle = number == count || random.f64() < 0.7;
        strikes.push(strike(random, window, settle));
        settled = settle;
    }
    strikes
}

fn strike(random: &mut Rng, window: Duration, settle: bool) -> Strike {
    let both = order(random);
    let victims = match random.u8(..5) {
        0 => both.to_vec(),
        1 | 2 => vec![Role::Source],
        _ => vec![Role::Collector],
    };
    let down = if random.f64() < 0.25 { Duration::ZERO } else { time_below(random, DOWN_AT_MOST) };
    Strike { victims, after: time_below(random, window), down, settle }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} devices at {} frames/s, {} first",
            self.devices, self.rate_fps, self.start[0]
        )?;
        for strike in &self.strikes {
            write!(f, "; {strike}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let victims: Vec<_> = self.victims.iter().map(ToString::to_string).collect();
        write!(
            f,
            "after {} ms kill {} for {} ms{}",
            self.after.as_millis(),
            victims.join(" and "),
            self.down.as_millis(),
            if self.settle { "" } else { " and again" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(2);

    fn plans() -> Vec<Plan> {
        (0..300).map(|round| Plan::new(42, round, LENGTH)).collect()
    }

    #[test]
    fn a_plan_follows_from_its_arguments() {
        assert_eq!(Plan::new(1, 2, LENGTH), Plan::new(1, 2, LENGTH));
        assert_ne!(Plan::new(1, 2, LENGTH), Plan::new(1, 3, LENGTH));
    }

    #[test]
    fn every_round_strikes_and_ends_settled_within_its_length() {
        for plan in plans() {
            assert!((1..=4).contains(&plan.devices));
            assert!(plan.strikes.last().is_some_and(|strike| strike.settle), "{plan}");
            let total: Duration = plan.strikes.iter().map(|strike| strike.after).sum();
            assert!(total < LENGTH + HANDSHAKE * 3, "{plan}");
            assert!(plan.strikes.iter().all(|strike| !strike.victims.is_empty()));
        }
    }

    #[test]
    fn all_kinds_of_strikes_occur() {
        let strikes: Vec<_> = plans().into_iter().flat_map(|plan| plan.strikes).collect();
        let with = |victims: &[Role]| strikes.iter().filter(|s| s.victims == victims).count();
        assert!(with(&[Role::Source]) > 50);
        assert!(with(&[Role::Collector]) > 50);
        assert!(with(&[Role::Source, Role::Collector]) > 10);
        assert!(with(&[Role::Collector, Role::Source]) > 10);
        assert!(strikes.iter().any(|strike| !strike.settle));
        assert!(strikes.iter().any(|strike| strike.down.is_zero()));
        assert!(plans().iter().any(|plan| !plan.settle_first));
    }
}
