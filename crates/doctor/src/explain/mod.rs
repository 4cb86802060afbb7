//! Which path frames would take between this host and another, why, and whether packets pass: the
//! answers behind `catchment explain`.
//!
//! [`Asking::here`] says what this side knows by itself. [`Asking::ask`] asks a collector, through a
//! session without devices, which does everything that a real session does up to the proof that
//! packets pass.
mod visit;

use catchment::observe::SessionSnapshot;
use catchment::providers::{self, Ends, ProviderSet, Providers};
use catchment::session::host::{Host, HostError};
use catchment::session::identity::Identity;
use catchment::session::io::{Address, ClientSecurity, ConnectError, Connection};
use catchment::session::message::{
    FAILED_MAX, FailedPath, Hello, ProtocolRange, RingWish, SessionPath,
};
pub use catchment::session::message::{ProviderOffer, WhyNot};
use catchment::session::refusal::Refusal;
use catchment::session::source_side::SourceSideConfig;
use catchment_provider_roce::io::local_addresses;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use visit::{Attempt, Proven, Visit};

/// The requested ring: a full packet fits into a slot.
const RING: RingWish = RingWish { blocks: 8, block_bytes: 8192 };

/// The kernel's route to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The other end.
    pub remote: IpAddr,
    /// The address of this host that packets come from.
    pub local: IpAddr,
    /// The interface with that address; `None` for addresses of loopback that are not listed.
    pub interface: Option<String>,
    /// Longest IP packet in bytes.
    pub mtu_bytes: u32,
    /// Payload of a full RoCEv2 packet in bytes.
    pub path_mtu: u32,
}

/// What this side knows of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    /// The route, or why there is none.
    pub route: Result<Route, String>,
    /// What this side could use there, the preferred one first.
    pub offers: Vec<Offered>,
    /// What it could not, and why.
    pub missing: Vec<WhyNot>,
}

/// A provider that this side could use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// What a collector learns of it.
    pub offer: ProviderOffer,
    /// Its queue pairs keep a rate themselves. Elsewhere what a transmission controller grants is posted in parts of
    /// [`UNPACED_PART_BYTES`](catchment::source::UNPACED_PART_BYTES), each when its time has come.
    pub paces: bool,
}

/// What a collector answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The path of the session, with its reason.
    pub session: SessionSnapshot,
    /// From Connect until packets had passed both ways; short where there are no packets.
    pub proven_in: Duration,
    /// Paths that were tried before and failed.
    pub failed: Vec<String>,
}

/// A collector could not be asked, or there is no path to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// The identity of this host cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The collector cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke.
    #[error("the connection to the collector broke: {0}")]
    Broken(String),
    /// It refused, or no path is left.
    #[error("{refusal}")]
    Refused {
        /// Its refusal.
        refusal: Refusal,
        /// Paths that were tried and failed.
        failed: Vec<String>,
    },
    /// This side has nothing to offer.
    #[error("this side can use no provider: {0}")]
    Nothing(String),
    /// The operating system refused.
    #[error("cannot {0}: {1}")]
    Os(&'static str, #[source] std::io::Error),
}

/// How to ask.
#[derive(Debug, Clone, Default)]
pub struct Asking {
    /// Which providers this side may use, and with which settings.
    pub providers: ProviderSet,
    /// Protection of the control connection.
    pub security: ClientSecurity,
    /// Limit for the connection.
    pub limit: Option<Duration>,
}

impl Asking {
    fn providers(&self) -> Providers {
        Providers::new(&self.providers)
    }

    /// Returns what this side knows of the path to `remote`. Opens the devices that it would offer, and
    /// sends nothing.
    pub fn here(&self, remote: IpAddr) -> Here {
        let route = route(remote);
        let local = route.as_ref().ok().map(|route| route.local);
        let offers = self.providers().for_source(Ends { local, peer: Some(remote) });
        let offered = offers.opened().iter().map(|one| Offered {
            offer: one.offer.clone(),
            paces: one.context.caps().rate.is_some(),
        });
        Here { route, offers: offered.collect(), missing: offers.missing.clone() }
    }

    /// Asks the collector at `address`, tests the path that it chooses, and the next one when that
    /// fails. Blocks; takes some seconds where packets are lost.
    ///
    /// # Errors
    /// [`ExplainError`].
    pub fn ask(&self, address: &Address) -> Result<Answer, ExplainError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ExplainError::Os("start the control thread", error))?;
        runtime.block_on(Box::pin(self.ask_async(address)))
    }

    async fn ask_async(&self, address: &Address) -> Result<Answer, ExplainError> {
        let providers = self.providers();
        let host = Host::read()?;
        let mut failed: Vec<FailedPath> = Vec::new();
        loop {
            let attempt = self.attempt(address, &providers, &host, &failed).await?;
            let tried = || failed.iter().map(describe).collect();
            match attempt {
                Attempt::Proven(Proven { session, took }) => {
                    return Ok(Answer { session, proven_in: took, failed: tried() });
                }
                Attempt::Refused(refusal) => {
                    let failed = tried();
                    return Err(ExplainError::Refused { refusal, failed });
                }
                Attempt::Failed(path) if failed.len() + 1 == FAILED_MAX => {
                    return Err(ExplainError::Broken(path.reason));
                }
                Attempt::Failed(path) => failed.push(path),
            }
        }
    }

    async fn attempt(
        &self,
        address: &Address,
        providers: &Providers,
        host: &Host,
        failed: &[FailedPath],
    ) -> Result<Attempt, ExplainError> {
        let limit = self.limit.unwrap_or(Duration::from_secs(5));
        let connection = Connection::connect(address, &self.security, limit).await?;
        let offers = providers.for_source(Ends::of(&connection));
        let list = offers.list();
        if list.is_empty() {
            let whys: Vec<String> = offers.missing.iter().map(WhyNot::to_string).collect();
            return Err(ExplainError::Nothing(whys.join("; ")));
        }
        // Each attempt is a process of its own: none has devices that another could take over.
        let identity =
            Identity::random().map_err(|error| ExplainError::Os("draw random numbers", error))?;
        let hello = Hello {
            protocol: ProtocolRange::OURS,
            software: concat!("catchment explain ", env!("CARGO_PKG_VERSION")).to_owned(),
            instance: identity.instance(),
            attempt: 1,
            host: host.clone(),
            devices: Vec::new(),
            providers: list,
            missing: offers.missing.clone(),
            failed: failed.to_vec(),
            wish: RING,
        };
        let config = SourceSideConfig::new(providers.known().clone(), identity);
        Visit::make(connection, offers, config, hello).await
    }
}

fn describe(failed: &FailedPath) -> String {
    let SessionPath { source, collector, path_mtu, .. } = &failed.path;
    let mtu = path_mtu.map_or(String::new(), |mtu| format!(" at path MTU {mtu}"));
    format!("{source} to {collector}{mtu}: {}", failed.reason)
}

fn route(remote: IpAddr) -> Result<Route, String> {
    let any = match remote {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let path = providers::route(any, remote)?;
    let all = local_addresses().unwrap_or_default();
    let interface = all.into_iter().find(|at| at.address == path.local);
    Ok(Route {
        remote,
        local: path.local,
        interface: interface.map(|at| at.interface),
        mtu_bytes: path.ip_mtu,
        path_mtu: path.path_mtu.bytes() as u32,
    })
}
