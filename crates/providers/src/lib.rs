//! What a process can move bytes with, and the device that reaches a peer.
//!
//! - In: settings of providers ([`ProviderOptions`]) and the user's rules; the two ends of a control connection.
//! - Out: what a source can offer to a collector ([`Offers`]), and the path that a collector chooses of it, with
//!   an open device. `catchment_session::path` decides; here is what it needs to know.
//! - Promises: the choice of a path sees no more of a provider than its
//!   [`ProviderInfo`](catchment_verbs::ProviderInfo); what cannot be offered is told to the peer with its reason;
//!   a device that is open is kept for all sessions over it.
//!
//! [`ProviderSet`] is the registry. Each provider has one file here that says how it finds the device
//! for a peer ([`PathProvider`]) and from which settings it is made. A device that has an address is opened when a
//! peer is known: the right one is that of the control connection, by which the peer has just been reached.
#![forbid(unsafe_code)]

mod agent;
mod describe;
mod rnics;
mod roce;
mod set;
mod shm;

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use catchment_provider_roce::io::{Path, PathProbe};
use catchment_verbs::{Context, NetEnd, Wire};

pub use catchment_agent::AgentOptions;
use catchment_observe::RoceSnapshot;
use catchment_session::check::WHY_CHARS_MAX;
use catchment_session::host::Host;
use catchment_session::io::Connection;
use catchment_session::message::{ProviderOffer, SessionPath, WhyNot};
use catchment_session::names::fit;
use catchment_session::path::{
    CollectorFacts, KnownProviders, PathChoice, PathRules, Side, SourceFacts, choose,
};
use catchment_session::refusal::{Refusal, RefusalCode};
pub use describe::describe;
pub use rnics::{OpenRnics, Rnics};
pub use set::{Found, KEYS_IN_CLEAR, PathProvider, ProviderOptions, ProviderSet};
pub use shm::ShmOptions;

/// The providers of a source or collector.
pub struct Providers {
    rules: PathRules,
    known: KnownProviders,
    /// The best first.
    all: Vec<Arc<dyn PathProvider>>,
}

/// The two ends of a control connection; `None` over a unix socket.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// This one.
    pub local: Option<IpAddr>,
    /// The other one.
    pub peer: Option<IpAddr>,
}

impl Ends {
    /// Returns those of a connection.
    pub fn of(connection: &Connection) -> Self {
        Self { local: connection.local_ip(), peer: connection.peer().ip() }
    }

    /// Returns those of a socket. IPv4 in an IPv6 socket is IPv4.
    pub fn of_socket(socket: &TcpStream) -> Self {
        let ip = |end: std::io::Result<SocketAddr>| end.ok().map(|end| end.ip().to_canonical());
        Self { local: ip(socket.local_addr()), peer: ip(socket.peer_addr()) }
    }

    fn are_on_one_host(self) -> bool {
        self.local.is_none_or(|ip| ip.is_loopback())
    }
}

/// A provider's device that can be offered to a peer.
pub struct Opened {
    /// What the peer learns about it.
    pub offer: ProviderOffer,
    /// The open device.
    pub context: Arc<dyn Context>,
}

/// What a source can offer to one collector.
pub struct Offers {
    opened: Vec<Opened>,
    /// What it cannot, and why.
    pub missing: Vec<WhyNot>,
}

impl Providers {
    /// Makes the providers of a set.
    pub fn new(set: &ProviderSet) -> Self {
        Self { rules: set.rules.clone(), known: set.known(), all: set.providers() }
    }

    /// Returns what the choice of a path knows of them.
    pub fn known(&self) -> &KnownProviders {
        &self.known
    }

    fn get(&self, name: &str) -> Option<&Arc<dyn PathProvider>> {
        self.all.iter().find(|provider| provider.info().name == name)
    }

    /// Returns the provider that does everything between processes of one host, if it is allowed.
    fn on_one_host(&self, allowed: &[&str]) -> Option<&'static str> {
        let mut known = self.known.iter();
        let memory = known.find(|info| info.wire == Wire::Memory && allowed.contains(&info.name));
        memory.map(|info| info.name)
    }

    /// What a source can offer over a control connection with these ends. On one host shm does
    /// everything, so others are offered there only when the rules name them or forbid shm: no port
    /// is opened for nothing.
    pub fn for_source(&self, ends: Ends) -> Offers {
        let order = self.rules.order(&self.known);
        let mut offers = Offers { opened: Vec::new(), missing: Vec::new() };
        let best = ends.are_on_one_host().then(|| self.on_one_host(&order)).flatten();
        for name in &order {
            let idle = best.filter(|best| best != name && !self.rules.names(name));
            let opened = match idle {
                Some(best) => Err(format!(
                    "{best} does it on one host, unless the source's rules name {name}"
                )),
                None => self.open(name, ends),
            };
            match opened {
                Ok(opened) => offers.opened.push(opened),
                Err(reason) => offers.lack(name, &reason),
            }
        }
        for name in self.known.names() {
            if let Some(because) = self.rules.against(Side::Source, name) {
                offers.lack(name, &because.reason);
            }
        }
        offers
    }

    /// Returns whether a source without a provider for this peer may have one again without a change of
    /// settings: the port of its device is down.
    pub fn may_return(&self, ends: Ends) -> bool {
        let is_allowed = |name| self.rules.against(Side::Source, name).is_none();
        let mut all = self.all.iter();
        all.any(|provider| is_allowed(provider.info().name) && provider.may_return(ends))
    }

    /// The device of a provider for a peer over a control connection with these ends, or why there
    /// is none.
    pub fn open(&self, provider: &str, ends: Ends) -> Result<Opened, String> {
        let Some(known) = self.get(provider) else {
            return Err("this program does not have it".to_owned());
        };
        let Found { device, context } = known.open_for(ends)?;
        let net =
            context.net().map(|net| NetEnd { path_mtu: net.path_mtu.min(route_mtu(ends)), ..net });
        let offer = ProviderOffer { name: provider.to_owned(), gid: context.gid(), device, net };
        Ok(Opened { offer, context })
    }

    /// Chooses the path to a source over a control connection with these ends, and the device of this
    /// side, which runs on `host`.
    ///
    /// # Errors
    /// The refusal with the reasons against every path.
    pub fn choose(
        &self,
        host: &Host,
        source: &SourceFacts<'_>,
        ends: Ends,
    ) -> Result<(PathChoice, Arc<dyn Context>), Refusal> {
        let mut contexts = Vec::new();
        let mut offer = |provider: &str| {
            let opened = self.open(provider, ends)?;
            contexts.push((provider.to_owned(), opened.context));
            Ok(opened.offer)
        };
        let mut collector =
            CollectorFacts { host, known: &self.known, rules: &self.rules, offer: &mut offer };
        let choice = choose(&mut collector, source).map_err(|error| error.refusal())?;
        let chosen = &choice.path.collector;
        let context = contexts.into_iter().find(|(name, _)| name == chosen);
        match context {
            Some((_, context)) => Ok((choice, context)),
            None => {
                let reason = format!("provider {chosen} was chosen and is not open");
                Err(Refusal::new(RefusalCode::Internal, reason, "report this"))
            }
        }
    }

    /// Takes and logs the events of all devices, and returns whether there were any. To be called now
    /// and then.
    pub fn take_events(&self) -> bool {
        self.all.iter().fold(false, |any, provider| provider.take_events() | any)
    }

    /// Returns whether a provider reports every failure of a queue pair as an event. A device of
    /// hardware must be asked.
    pub fn reports_failures(&self, provider: &str) -> bool {
        !self.known().is_hardware(provider)
    }

    /// Returns what the open devices have counted.
    pub fn counters(&self) -> Vec<RoceSnapshot> {
        self.all.iter().flat_map(|provider| provider.counters()).collect()
    }
}

/// Returns the route that the kernel would take now for RoCE packets to `peer`, from an address of
/// this host or from the one that fits (unspecified).
pub fn route(local: IpAddr, peer: IpAddr) -> Result<Path, String> {
    let remote = SocketAddr::new(peer, NetEnd::RNIC_UDP_PORT);
    let probe = PathProbe::new(SocketAddr::new(local, 0)).map_err(|error| error.to_string())?;
    probe.probe(remote).map_err(|error| error.to_string())
}

/// The largest path MTU that the route between the ends allows, as the kernel knows it now.
fn route_mtu(ends: Ends) -> u32 {
    let (Some(local), Some(peer)) = (ends.local, ends.peer) else { return u32::MAX };
    match route(local, peer) {
        Ok(path) => path.path_mtu.bytes() as u32,
        // A link-local address without its interface; the devices' own limits remain.
        Err(error) => {
            tracing::debug!(%error, "cannot read the MTU of the route");
            u32::MAX
        }
    }
}

impl Offers {
    fn lack(&mut self, provider: &str, reason: &str) {
        self.missing
            .push(WhyNot { provider: provider.to_owned(), reason: fit(reason, WHY_CHARS_MAX) });
    }

    /// All of them, the preferred one first.
    pub fn opened(&self) -> &[Opened] {
        &self.opened
    }

    /// As they stand in a Hello.
    pub fn list(&self) -> Vec<ProviderOffer> {
        self.opened.iter().map(|one| one.offer.clone()).collect()
    }

    /// The device of an offer that a collector chose.
    pub fn context(&self, path: &SessionPath) -> Option<&Arc<dyn Context>> {
        self.opened.iter().find(|one| is_of(&one.offer, path)).map(|one| &one.context)
    }
}

fn is_of(offer: &ProviderOffer, path: &SessionPath) -> bool {
    offer.name == path.source && offer.gid == path.source_gid
}
