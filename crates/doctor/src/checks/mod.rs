//! What this machine can do, and what to fix: the checks behind `catchment doctor`.
//!
//! Nothing is changed, and nothing is sent to another host but to a controller that was named. The checks read what
//! the kernel exposes, and try what a source or collector would do: open sockets, create shared memory, load
//! libibverbs, ask the agents of this host.
//!
//! ```
//! use catchment_doctor::checks::{Doctor, Level};
//!
//! let examined = Doctor::default().examine();
//! for check in &examined.checks {
//!     println!("{:?} {}: {}", check.level, check.name, check.seen);
//! }
//! assert!(examined.works.iter().any(|provider| provider.name == "shm"));
//! # let _ = Level::Problem;
//! ```
mod agents;
mod container;
mod controller;
mod facts;
mod network;
mod rdma;
mod system;

use catchment::ibverbs::IbverbsOptions;
use catchment::roce::RoceOptions;
use catchment::session::io::{Address, ClientSecurity};
use catchment_provider_ibverbs::IbverbsProvider;
use facts::Facts;
use rdma::Rdma;
use serde::Serialize;

/// Severity of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works but could be better, or something optional is missing.
    Note,
    /// Something present does not work.
    Problem,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name; one word, the same in all versions.
    pub name: &'static str,
    /// How good it is.
    pub level: Level,
    /// The finding.
    pub seen: String,
    /// What to do about it; `None` if nothing.
    pub remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, seen: impl Into<String>) -> Self {
        Self { name, level: Level::Ok, seen: seen.into(), remedy: None }
    }

    fn note(name: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Note, remedy: Some(remedy.into()), ..Self::ok(name, seen) }
    }

    fn problem(name: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::note(name, seen, remedy) }
    }
}

/// Whether a provider can be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Works {
    /// Name of the provider.
    pub name: &'static str,
    /// Whether a source or collector could use it now.
    pub works: bool,
    /// With what, or why not.
    pub how: String,
}

/// All findings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Examined {
    /// The checks, in reading order.
    pub checks: Vec<Check>,
    /// The providers, the best first.
    pub works: Vec<Works>,
}

impl Examined {
    /// Counts the checks of this level.
    pub fn count(&self, level: Level) -> usize {
        self.checks.iter().filter(|c| c.level == level).count()
    }
}

/// Examines this machine, as a source or collector with these settings would find it.
#[derive(Debug, Clone, Default)]
pub struct Doctor {
    /// Settings of RoCEv2 devices.
    pub roce: RoceOptions,
    /// Settings of RDMA devices.
    pub ibverbs: IbverbsOptions,
    /// The transmission controller to ask, and how to connect to it.
    pub controller: Option<(Address, ClientSecurity)>,
}

impl Doctor {
    /// Runs all checks. Takes well under a second; with a controller that does not answer, up to ten.
    pub fn examine(&self) -> Examined {
        let facts = Facts::default();
        let rdma = Rdma::of(&IbverbsProvider::new(self.ibverbs.clone()).report(), &facts);
        let shm = system::shm();
        let udp = network::Udp::try_out(&self.roce);
        let mut checks = vec![
            system::kernel(&facts),
            system::cores(&facts),
            system::files(),
            system::clock(&facts),
        ];
        checks.extend(system::governor(&facts));
        checks.push(container::container(&facts));
        checks.extend(container::limits(&facts));
        checks.push(shm.clone());
        checks.extend(udp.checks(&facts));
        checks.push(network::port(&self.roce, &rdma));
        checks.extend(network::interfaces());
        checks.extend(rdma.checks());
        checks.push(system::ffmpeg());
        checks.extend(agents::agents());
        if let Some((address, security)) = &self.controller {
            checks.extend(controller::controller(address, security));
        }
        let works = vec![
            Works {
                name: catchment_provider_shm::INFO.name,
                works: shm.level == Level::Ok,
                how: shm.seen,
            },
            rdma.works(),
            udp.works(),
        ];
        Examined { checks, works }
    }
}
