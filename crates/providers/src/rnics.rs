//! The machine's RDMA devices.
//!
//! A device is found by the address of the control connection each time a peer is known: the index
//! of a GID moves when addresses come and go, ports go down, devices are removed. What was opened is
//! kept for all sessions over the same address.
use super::{Ends, Found, PathProvider, ProviderOptions};
use catchment_provider_ibverbs::{INFO, IbverbsOptions, IbverbsProvider, NoDevice, PortState};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{AsyncEvent, Context, Provider, ProviderInfo, VerbsError};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Where RDMA devices come from: libibverbs, or something else in tests.
pub trait Rnics: Send + Sync + std::fmt::Debug {
    /// The name of the device that has this address of this host, or why there is none.
    fn device_for(&self, local: IpAddr) -> Result<String, String>;
    /// Whether a device has this address whose port is down, or was a moment ago: a cable may be
    /// plugged in again.
    fn may_return(&self, local: IpAddr) -> bool;
    /// The names of all devices.
    fn names(&self) -> Result<Vec<String>, String>;
    /// Opens a device by its name.
    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError>;
}

impl Rnics for IbverbsProvider {
    fn device_for(&self, local: IpAddr) -> Result<String, String> {
        Self::device_for(self, local).map_err(|why| why.to_string())
    }

    fn may_return(&self, local: IpAddr) -> bool {
        match Self::device_for(self, local) {
            Ok(_) => true,
            Err(NoDevice::PortDown { state, .. }) => state == PortState::Down,
            Err(_) => false,
        }
    }

    fn names(&self) -> Result<Vec<String>, String> {
        let devices = self.devices().map_err(|error| error.to_string())?;
        Ok(devices.into_iter().map(|device| device.name).collect())
    }

    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError> {
        Provider::open(self, device)
    }
}

impl ProviderOptions for IbverbsOptions {
    fn info(&self) -> ProviderInfo {
        INFO
    }

    fn provider(&self) -> Arc<dyn PathProvider> {
        Arc::new(OpenRnics::new(Arc::new(IbverbsProvider::new(self.clone()))))
    }
}

/// One open device.
struct OpenRnic {
    name: String,
    context: Arc<dyn Context>,
}

/// RDMA devices and those of them that are open.
pub struct OpenRnics {
    rnics: Arc<dyn Rnics>,
    /// By the address of their GID.
    open: Mutex<BTreeMap<IpAddr, OpenRnic>>,
}

impl OpenRnics {
    /// Makes them; none is open.
    pub fn new(rnics: Arc<dyn Rnics>) -> Self {
        Self { rnics, open: Mutex::default() }
    }

    fn open_any(&self) -> Result<(String, Arc<dyn Context>), String> {
        let mut why = "there is no RDMA device".to_owned();
        for name in self.rnics.names()? {
            match self.open_named(&name, None) {
                Ok(found) => return Ok(found),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// The device of this name, which has this address if one is given.
    fn open_named(
        &self,
        name: &str,
        address: Option<IpAddr>,
    ) -> Result<(String, Arc<dyn Context>), String> {
        let mut open = self.open.lock();
        let known = open.iter().find(|(ip, known)| {
            let is_there = address.is_none_or(|address| address == **ip);
            is_there && known.name == name
        });
        if let Some((_, known)) = known {
            return Ok((known.name.clone(), known.context.clone()));
        }
        let context = self.rnics.open(name).map_err(|error| error.to_string())?;
        let rnic = OpenRnic { name: name.to_owned(), context: context.clone() };
        open.insert(context.gid().ip(), rnic);
        Ok((name.to_owned(), context))
    }
}

impl PathProvider for OpenRnics {
    fn info(&self) -> ProviderInfo {
        INFO
    }

    /// The device with the address of this end; on one host, the first that can be opened.
    fn open_for(&self, ends: Ends) -> Result<Found, String> {
        self.take_events();
        let (name, context) = match ends.local.filter(|ip| !ip.is_loopback()) {
            Some(ip) => self.open_named(&self.rnics.device_for(ip)?, Some(ip))?,
            None => self.open_any()?,
        };
        Ok(Found { device: Some(name), context })
    }

    fn may_return(&self, ends: Ends) -> bool {
        ends.local.is_some_and(|ip| self.rnics.may_return(ip))
    }

    /// Forgets devices that are gone.
    fn take_events(&self) -> bool {
        let mut any = false;
        self.open.lock().retain(|_, rnic| {
            let mut is_there = true;
            while let Some(event) = rnic.context.async_event() {
                any = true;
                is_there &= !matches!(event, AsyncEvent::DeviceFatal);
                log_event(&rnic.name, &event);
            }
            is_there
        });
        any
    }
}

fn log_event(device: &str, event: &AsyncEvent) {
    match event {
        AsyncEvent::QpFatal { qpn, reason } => {
            tracing::warn!(device, qpn, reason, "an RDMA queue pair failed");
        }
        AsyncEvent::CqOverrun => tracing::error!(device, "an RDMA completion queue overran"),
        AsyncEvent::PortDown => {
            tracing::warn!(
                device,
                "the port of an RDMA device is down: check the cable and `ip link`"
            );
        }
        AsyncEvent::DeviceFatal => tracing::warn!(device, "an RDMA device was removed"),
        AsyncEvent::PortActive => tracing::info!(device, "the port of an RDMA device is up again"),
        event => tracing::info!(device, ?event, "event of an RDMA device"),
    }
}
