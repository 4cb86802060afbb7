//! Software RoCE as sources and collectors use it: a device for each address of this host by which
//! peers are reached, opened when the first of them is known, and kept for all sessions over it.
use super::describe::roce_snapshot;
use super::set::drain_events;
use super::{Ends, Found, PathProvider, ProviderOptions};
use catchment_observe::RoceSnapshot;
use catchment_provider_roce::{INFO, RoceContext, RoceOptions, RoceProvider};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{ProviderInfo, VerbsError};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

impl ProviderOptions for RoceOptions {
    fn info(&self) -> ProviderInfo {
        INFO
    }

    fn authenticates(&self) -> bool {
        self.authenticate
    }

    fn provider(&self) -> Arc<dyn PathProvider> {
        Arc::new(Roce {
            // The offer carries the port, which only hardware could not follow.
            provider: RoceProvider::new(Self { other_port: true, ..self.clone() }),
            open: Mutex::default(),
        })
    }
}

struct Roce {
    provider: RoceProvider,
    open: Mutex<BTreeMap<IpAddr, Arc<RoceContext>>>,
}

impl Roce {
    /// Returns the device at the address by which the peer is reached; on this host, at the loopback
    /// address.
    fn device(&self, local: Option<IpAddr>) -> Result<Arc<RoceContext>, VerbsError> {
        let address = match local {
            Some(ip) if !ip.is_loopback() => ip,
            _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let mut open = self.open.lock();
        if let Some(context) = open.get(&address) {
            return Ok(context.clone());
        }
        let context = self.provider.open_device(&address.to_string())?;
        open.insert(address, context.clone());
        Ok(context)
    }
}

impl PathProvider for Roce {
    fn info(&self) -> ProviderInfo {
        INFO
    }

    fn open_for(&self, ends: Ends) -> Result<Found, String> {
        let context = self.device(ends.local).map_err(|error| error.to_string())?;
        Ok(Found { device: None, context })
    }

    fn take_events(&self) -> bool {
        self.open.lock().values().fold(false, |any, context| drain_events(&**context) | any)
    }

    fn counters(&self) -> Vec<RoceSnapshot> {
        let devices: Vec<_> = self.open.lock().values().cloned().collect();
        let snapshot = |context: &Arc<RoceContext>| {
            roce_snapshot(context.local_address().to_string(), &context.counters())
        };
        devices.iter().map(snapshot).collect()
    }
}
