//! Verbs on RDMA hardware and on the kernel's RDMA devices (rdma_rxe), through libibverbs.
//!
//! The library is loaded at run time, by its versioned symbols: programs build and start on machines
//! that have none, and get [`Unavailable`] there. A device is called as the kernel calls it
//! (`mlx5_0`), with a port (`mlx5_0/1`) and the index of a GID (`mlx5_0/1/3`) where that matters, or
//! by an IP address, which stands for the device, port and RoCE v2 GID that have it.
//!
//! RoCE v2 only: InfiniBand needs local identifiers and iWARP a connection manager, neither of which
//! an endpoint of the verbs vocabulary has.
mod choose;
mod host;
mod options;
mod report;
mod sysfs;
mod unavailable;

pub use choose::NoDevice;
pub use options::IbverbsOptions;
pub use report::{
    DeviceReport, GidKind, GidReport, LinkLayer, NodeKind, PortReport, PortState, Report,
};
pub use unavailable::Unavailable;

use catchment_verbs::{Context, DeviceInfo, Provider, VerbsError};
use host::HostAddress;
use std::{net::IpAddr, sync::Arc};
use sysfs::Roots;

/// Name of the provider.
pub(crate) const NAME: &str = "ibverbs";

/// The provider of the RDMA devices of this machine.
#[derive(Debug, Clone, Default)]
pub struct IbverbsProvider {
    options: IbverbsOptions,
    roots: Roots,
}

impl IbverbsProvider {
    /// A provider with these options. Nothing is loaded or opened yet.
    pub fn new(options: IbverbsOptions) -> IbverbsProvider {
        IbverbsProvider {
            options,
            roots: Roots::default(),
        }
    }

    /// The name, for [`Provider::open`], of the device, port and GID that have this address of this
    /// host. For use at once: the index of a GID moves when addresses come and go.
    ///
    /// # Errors
    /// Why there is none, and what helps.
    pub fn device_for(&self, local: IpAddr) -> Result<String, NoDevice> {
        let addresses = addresses()?;
        let devices = sysfs::devices(&self.roots, &addresses)?;
        let place = choose::by_address(local, &devices, &addresses)?;
        Ok(place.to_string())
    }

    /// All that decides whether, and over which device, verbs work here.
    pub fn report(&self) -> Report {
        let devices = addresses().and_then(|addresses| sysfs::devices(&self.roots, &addresses));
        Report {
            library: Ok(self.options.library.display().to_string()),
            devices,
            memlock_bytes: rustix::process::getrlimit(rustix::process::Resource::Memlock).current,
        }
    }
}

fn addresses() -> Result<Vec<HostAddress>, Unavailable> {
    host::addresses().map_err(|error| Unavailable::Os {
        what: "the addresses of this host".to_owned(),
        reason: error.to_string(),
    })
}

impl Provider for IbverbsProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        let devices = sysfs::devices(&self.roots, &addresses()?)?;
        let ports = devices
            .iter()
            .flat_map(|device| device.ports.iter().map(move |port| (device, port)));
        Ok(ports
            .map(|(device, port)| DeviceInfo {
                name: choose::port_name(device, port),
                description: describe(device, port),
            })
            .collect())
    }

    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError> {
        let addresses = addresses()?;
        let devices = sysfs::devices(&self.roots, &addresses)?;
        let place = choose::resolve(device, &devices, &addresses)?;
        Err(VerbsError::Invalid(format!(
            "opening {place} is not built yet"
        )))
    }
}

/// One line for a person.
fn describe(device: &DeviceReport, port: &PortReport) -> String {
    let driver = device.driver.as_deref().unwrap_or("no driver named");
    let netdevs = port.netdevs.join(", ");
    let problem = device.problem.as_ref();
    let problem = problem.map_or(String::new(), |problem| format!("; {problem}"));
    format!(
        "{driver}, port {} {} on {netdevs}, {}{problem}",
        port.number, port.state, port.rate
    )
}
