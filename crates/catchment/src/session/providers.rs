//! What this process can move bytes with. The only place that names providers.
//!
//! shm is opened at once. A RoCE device has an address, and the right one is that of the control
//! connection: the peer has just been reached by it. So devices are opened when a peer is known,
//! and kept.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Context, Provider as _, VerbsError};

use super::message::ProviderOffer;
use super::path::{PathRules, WhyNot};

/// The providers of a source or collector.
pub(crate) struct Providers {
    rules: PathRules,
    /// Why it cannot be opened, else.
    shm: Result<Arc<dyn Context>, String>,
    roce: RoceProvider,
    /// One device an address. Opened once, for all sessions over it.
    roce_devices: Mutex<BTreeMap<IpAddr, Arc<dyn Context>>>,
}

/// What can be offered to one peer.
pub(crate) struct Offers {
    contexts: Vec<(&'static str, Arc<dyn Context>)>,
    /// What cannot, and why.
    pub(crate) missing: Vec<WhyNot>,
}

impl Providers {
    /// With the providers that `rules` allow, the preferred ones first.
    pub(crate) fn new(rules: PathRules, roce: RoceOptions) -> Providers {
        Providers {
            rules,
            shm: ShmProvider::new()
                .open("shm0")
                .map_err(|error| error.to_string()),
            roce: RoceProvider::new(roce),
            roce_devices: Mutex::default(),
        }
    }

    /// The rules that were given.
    pub(crate) fn rules(&self) -> &PathRules {
        &self.rules
    }

    /// What a source can offer over a control connection that ends here at `local`; `None` for one
    /// over a unix socket. On one host shm does everything, so RoCE is offered there only when the
    /// rules name it or forbid shm: no port is opened for nothing.
    pub(crate) fn for_source(&self, local: Option<IpAddr>) -> Offers {
        let rules = &self.rules;
        let named = rules
            .require
            .iter()
            .chain(&rules.prefer)
            .any(|n| n == "roce");
        let here = local.is_none_or(|ip| ip.is_loopback());
        let needed = !here || named || !rules.order().contains(&"shm");
        self.open(local, |name| name != "roce" || needed)
    }

    /// What a collector can use of the offers of a source.
    pub(crate) fn for_collector(&self, local: Option<IpAddr>, source: &[ProviderOffer]) -> Offers {
        self.open(local, |name| source.iter().any(|offer| offer.name == name))
    }

    fn open(&self, local: Option<IpAddr>, wanted: impl Fn(&str) -> bool) -> Offers {
        let mut offers = Offers {
            contexts: Vec::new(),
            missing: Vec::new(),
        };
        for name in self.rules.order().into_iter().filter(|name| wanted(name)) {
            let opened = match name {
                "shm" => self.shm.clone(),
                "roce" => self.roce(local).map_err(|error| error.to_string()),
                _ => continue,
            };
            match opened {
                Ok(context) => offers.contexts.push((name, context)),
                Err(reason) => offers.missing.push(WhyNot {
                    provider: name.to_owned(),
                    reason,
                }),
            }
        }
        offers
    }

    /// The device at the address by which the peer is reached; on this host, at the loopback
    /// address. When its port is taken, at another one: the endpoint tells the peer, and only
    /// hardware could not follow.
    fn roce(&self, local: Option<IpAddr>) -> Result<Arc<dyn Context>, VerbsError> {
        let address = match local {
            Some(ip) if !ip.is_loopback() => ip,
            _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let devices = self.roce_devices.lock();
        let mut devices = devices.unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = devices.get(&address) {
            return Ok(context.clone());
        }
        let context = match self.roce.open(&address.to_string()) {
            Ok(context) => context,
            Err(taken) => {
                let any_port = SocketAddr::new(address, 0).to_string();
                let context = self.roce.open(&any_port)?;
                tracing::info!(%address, reason = %taken, "RoCEv2 on another UDP port, which no RNIC knows");
                context
            }
        };
        devices.insert(address, context.clone());
        Ok(context)
    }
}

impl Offers {
    /// As they stand in a Hello.
    pub(crate) fn list(&self) -> Vec<ProviderOffer> {
        let offer = |(name, context): &(&'static str, Arc<dyn Context>)| ProviderOffer {
            name: (*name).to_owned(),
            gid: context.gid(),
        };
        self.contexts.iter().map(offer).collect()
    }

    /// The device of a provider that was offered.
    pub(crate) fn context(&self, provider: &str) -> Option<&Arc<dyn Context>> {
        let found = self.contexts.iter().find(|(name, _)| *name == provider);
        found.map(|(_, context)| context)
    }
}
