//! What this process can move bytes with. The only place that names providers.
//!
//! shm is opened at once. A RoCE device has an address, and the right one is that of the control
//! connection: the peer has just been reached by it. So devices are opened when a peer is known,
//! and kept.

#[cfg(test)]
mod pairs_test;
mod rnics;
#[cfg(test)]
mod stand_in;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use catchment_provider_ibverbs::{IbverbsOptions, IbverbsProvider};
use catchment_provider_roce::{
    RoceContext, RoceOptions, RoceProvider,
    io::{Path, PathProbe},
};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Context, NetEnd, Provider as _, VerbsError};

use crate::observe::RoceSnapshot;

use super::check::WHY_CHARS_MAX;
use super::host::Host;
use super::message::{ProviderOffer, SessionPath, WhyNot};
use super::names::fit;
use super::path::{
    CollectorFacts, KNOWN_PROVIDERS, PathChoice, PathRules, Side, SourceFacts, choose,
};
use super::refusal::{Refusal, RefusalCode};
use rnics::OpenRnics;
pub(crate) use rnics::Rnics;

/// Settings of the providers that a source or collector may open.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProviderOptions {
    pub(crate) rules: PathRules,
    pub(crate) roce: RoceOptions,
    pub(crate) ibverbs: IbverbsOptions,
    /// What takes the place of the machine's RNICs, in tests.
    pub(crate) rnics: Option<Arc<dyn Rnics>>,
}

/// The providers of a source or collector.
pub(crate) struct Providers {
    rules: PathRules,
    /// Why it cannot be opened, else.
    shm: Result<Arc<dyn Context>, String>,
    rnics: OpenRnics,
    roce: RoceProvider,
    /// One device an address. Opened once, for all sessions over it.
    roce_devices: Mutex<BTreeMap<IpAddr, Arc<RoceContext>>>,
}

/// The two ends of a control connection; `None` over a unix socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// This one.
    pub(crate) local: Option<IpAddr>,
    /// The other one.
    pub(crate) peer: Option<IpAddr>,
}

impl Ends {
    fn are_on_one_host(self) -> bool {
        self.local.is_none_or(|ip| ip.is_loopback())
    }
}

/// A provider's device that a peer can be told of.
pub(crate) struct Opened {
    pub(crate) offer: ProviderOffer,
    pub(crate) context: Arc<dyn Context>,
}

/// What a source can offer to one collector.
pub(crate) struct Offers {
    opened: Vec<Opened>,
    /// What it cannot, and why.
    pub(crate) missing: Vec<WhyNot>,
}

impl Providers {
    /// As [`Providers::new`], with the RNICs of this machine.
    pub(crate) fn of(rules: &PathRules, roce: &RoceOptions, ibverbs: &IbverbsOptions) -> Providers {
        Providers::new(ProviderOptions {
            rules: rules.clone(),
            roce: roce.clone(),
            ibverbs: ibverbs.clone(),
            rnics: None,
        })
    }

    /// With the providers that the rules allow. Nothing but shm is opened yet.
    pub(crate) fn new(options: ProviderOptions) -> Providers {
        let ProviderOptions {
            rules,
            roce,
            ibverbs,
            rnics,
        } = options;
        let rnics = rnics.unwrap_or_else(|| Arc::new(IbverbsProvider::new(ibverbs)));
        Providers {
            rules,
            rnics: OpenRnics::new(rnics),
            shm: ShmProvider::new()
                .open("shm0")
                .map_err(|error| error.to_string()),
            // The offer tells the peer the port, and only hardware could not follow.
            roce: RoceProvider::new(RoceOptions {
                other_port: true,
                ..roce
            }),
            roce_devices: Mutex::default(),
        }
    }

    /// What a source can offer over a control connection with these ends. On one host shm does
    /// everything, so others are offered there only when the rules name them or forbid shm: no port
    /// is opened for nothing.
    pub(crate) fn for_source(&self, ends: Ends) -> Offers {
        let order = self.rules.order();
        let mut offers = Offers {
            opened: Vec::new(),
            missing: Vec::new(),
        };
        for name in &order {
            let idle = ends.are_on_one_host()
                && *name != "shm"
                && order.contains(&"shm")
                && !self.rules.names(name);
            let opened = if idle {
                Err(format!(
                    "shm does it on one host, unless the source's rules name {name}"
                ))
            } else {
                self.open(name, ends)
            };
            match opened {
                Ok(opened) => offers.opened.push(opened),
                Err(reason) => offers.lack(name, &reason),
            }
        }
        for name in KNOWN_PROVIDERS {
            if let Some(because) = self.rules.against(Side::Source, name) {
                offers.lack(name, &because.reason);
            }
        }
        offers
    }

    /// Whether a source that has no provider for this peer now may have one again, without anybody
    /// changing a setting: the port of its device is down.
    pub(crate) fn may_return(&self, ends: Ends) -> bool {
        let is_allowed = self.rules.against(Side::Source, "ibverbs").is_none();
        is_allowed && self.rnics.may_return(ends.local)
    }

    /// The device of a provider for a peer over a control connection with these ends, or why there
    /// is none.
    pub(crate) fn open(&self, provider: &str, ends: Ends) -> Result<Opened, String> {
        let (device, context) = match provider {
            "shm" => (None, self.shm.clone()?),
            "ibverbs" => {
                let far = ends.local.filter(|ip| !ip.is_loopback());
                let (name, context) = self.rnics.open(far)?;
                (Some(name), context)
            }
            "roce" => {
                let opened = self.roce(ends.local).map_err(|error| error.to_string())?;
                (None, opened as Arc<dyn Context>)
            }
            _ => return Err("this program does not have it".to_owned()),
        };
        let net = context.net().map(|net| NetEnd {
            path_mtu: net.path_mtu.min(route_mtu(ends)),
            ..net
        });
        let offer = ProviderOffer {
            name: provider.to_owned(),
            gid: context.gid(),
            device,
            net,
        };
        Ok(Opened { offer, context })
    }

    /// The way to a source over a control connection with these ends, and the device of this side,
    /// which runs on `host`.
    ///
    /// # Errors
    /// The refusal with the reasons against every way.
    pub(crate) fn choose(
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
        let mut collector = CollectorFacts {
            host,
            rules: &self.rules,
            offer: &mut offer,
        };
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

    /// Tells people what happened to RDMA devices. To be called now and then.
    pub(crate) fn look_at_devices(&self) {
        self.rnics.take_events();
    }

    /// What the open RoCEv2 devices have counted.
    pub(crate) fn roce_counters(&self) -> Vec<RoceSnapshot> {
        let devices: Vec<_> = self.roce_devices().values().cloned().collect();
        let snapshot = |context: &Arc<RoceContext>| {
            RoceSnapshot::of(context.local_address().to_string(), &context.counters())
        };
        devices.iter().map(snapshot).collect()
    }

    fn roce_devices(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Arc<RoceContext>>> {
        let devices = self.roce_devices.lock();
        devices.unwrap_or_else(PoisonError::into_inner)
    }

    /// The device at the address by which the peer is reached; on this host, at the loopback
    /// address.
    fn roce(&self, local: Option<IpAddr>) -> Result<Arc<RoceContext>, VerbsError> {
        let address = match local {
            Some(ip) if !ip.is_loopback() => ip,
            _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let mut devices = self.roce_devices();
        if let Some(context) = devices.get(&address) {
            return Ok(context.clone());
        }
        let context = self.roce.open_device(&address.to_string())?;
        devices.insert(address, context.clone());
        Ok(context)
    }
}

/// The way of RoCE packets to `peer` that the kernel would take now, from an address of this host or
/// from the one that fits (unspecified).
pub(crate) fn way(local: IpAddr, peer: IpAddr) -> Result<Path, String> {
    let remote = SocketAddr::new(peer, NetEnd::RNIC_UDP_PORT);
    let probe = PathProbe::new(SocketAddr::new(local, 0)).map_err(|error| error.to_string())?;
    probe.probe(remote).map_err(|error| error.to_string())
}

/// The largest path MTU that the route between the ends allows, as the kernel knows it now.
fn route_mtu(ends: Ends) -> u32 {
    let (Some(local), Some(peer)) = (ends.local, ends.peer) else {
        return u32::MAX;
    };
    match way(local, peer) {
        Ok(path) => path.path_mtu.bytes() as u32,
        // A link-local address without its interface; the devices' own limits remain.
        Err(error) => {
            tracing::debug!(%error, "no MTU of the route");
            u32::MAX
        }
    }
}

impl Offers {
    fn lack(&mut self, provider: &str, reason: &str) {
        self.missing.push(WhyNot {
            provider: provider.to_owned(),
            reason: fit(reason, WHY_CHARS_MAX),
        });
    }

    /// As they stand in a Hello.
    pub(crate) fn list(&self) -> Vec<ProviderOffer> {
        self.opened.iter().map(|one| one.offer.clone()).collect()
    }

    /// The device of an offer that a collector chose.
    pub(crate) fn context(&self, path: &SessionPath) -> Option<&Arc<dyn Context>> {
        let mut opened = self.opened.iter();
        let found = opened.find(|one| is_of(&one.offer, path));
        found.map(|one| &one.context)
    }
}

fn is_of(offer: &ProviderOffer, path: &SessionPath) -> bool {
    offer.name == path.source && offer.gid == path.source_gid
}
