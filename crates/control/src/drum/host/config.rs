//! What a host is given, and what is refused.
use thiserror::Error;

/// What a host is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostConfig {
    /// Its number among all hosts.
    pub host: u32,
    /// Number of its life, from 1: higher after every crash.
    pub incarnation: u32,
    /// Fairness, as [`alpha`](crate::drum::Problem::alpha); from 0.1 to 10.
    pub alpha: f64,
    /// Worth of completions, utility times Mops squared; above 0.
    pub beta: f64,
    /// What it can send, in Mops.
    pub send_capacity: f64,
    /// What it can complete, in Mops.
    pub completion_capacity: f64,
    /// Least time of a round: the longest round trip to a neighbour, at least 1 ms.
    pub round_ns: u64,
    /// How long a grant holds without news from who gave it; more than four rounds.
    pub lease_ns: u64,
    /// Whether an earlier life of this host may have granted what is still in use.
    pub restarted: bool,
}

/// Why a host cannot have a value.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[error("{what} of {value} is not possible")]
pub struct HostError {
    /// Which value.
    pub what: &'static str,
    /// The value.
    pub value: f64,
}

/// Where an application's traffic goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Destination {
    /// The host, which may be its own.
    pub host: u32,
    /// The application there.
    pub application: u32,
    /// Completions there for each unit sent.
    pub completions: f64,
}

/// An application of this host.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// Its number at this host.
    pub application: u32,
    /// Above 0.
    pub weight: f64,
    /// The most that it asks for, in Mops.
    pub limit: Option<f64>,
    /// At least one, no two alike.
    pub destinations: Vec<Destination>,
}

fn demand(what: &'static str, value: f64, good: bool) -> Result<(), HostError> {
    if good { Ok(()) } else { Err(HostError { what, value }) }
}

fn demand_share(what: &'static str, value: f64) -> Result<(), HostError> {
    demand(what, value, (1e-9..=1e9).contains(&value))
}

impl HostConfig {
    pub(super) fn check(&self) -> Result<(), HostError> {
        demand_share("send capacity", self.send_capacity)?;
        demand_share("completion capacity", self.completion_capacity)?;
        demand("alpha", self.alpha, (0.1..=10.0).contains(&self.alpha))?;
        demand("beta", self.beta, (1e-24..=1e12).contains(&self.beta))?;
        demand("round time", self.round_ns as f64, self.round_ns > 0)?;
        demand("lease", self.lease_ns as f64, self.lease_ns / 4 > self.round_ns)?;
        demand("incarnation", f64::from(self.incarnation), self.incarnation > 0)
    }
}

impl Application {
    pub(super) fn check(&self) -> Result<(), HostError> {
        demand_share("weight", self.weight)?;
        self.limit.map_or(Ok(()), |limit| demand_share("limit", limit))?;
        let count = self.destinations.len();
        demand("number of destinations", count as f64, (1..=1024).contains(&count))?;
        let ends = |destination: &Destination| (destination.host, destination.application);
        for (at, destination) in self.destinations.iter().enumerate() {
            let value = destination.completions;
            demand("completions per unit", value, (1e-6..=1e6).contains(&value))?;
            let twice =
                self.destinations[..at].iter().any(|other| ends(other) == ends(destination));
            demand("destination given twice", f64::from(destination.host), !twice)?;
        }
        Ok(())
    }
}
