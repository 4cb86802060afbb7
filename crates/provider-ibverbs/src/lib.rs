//! Verbs on RDMA hardware and on the kernel's RDMA devices (rdma_rxe), through libibverbs.
//!
//! The library is loaded at run time, by its versioned symbols: programs build and start on
//! machines that have none, and get [`Unavailable`] there. A device has the kernel's name
//! (`mlx5_0`), with a port (`mlx5_0/1`) and the index of a GID (`mlx5_0/1/3`) where that matters,
//! or by an IP address, which stands for the device, port and RoCE v2 GID that have it.
//!
//! RoCE v2 only: InfiniBand needs local identifiers and iWARP a connection manager, neither of
//! which an endpoint of the verbs vocabulary has.
#![deny(unsafe_code)]
mod ah;
mod choose;
mod context;
mod cores;
mod cq;
mod device;
mod error;
mod events;
mod handles;
mod host;
mod inventory;
mod keys;
mod memlock;
mod mr;
mod mtu;
mod name;
mod options;
mod path;
mod probe;
mod qp;
mod rate;
mod report;
mod slots;
#[allow(unsafe_code, reason = "the functions of a C library; the only module with any")]
mod sys;
mod sysfs;

pub use error::{NoDevice, Unavailable};
pub use handles::IbverbsContext;
pub use options::IbverbsOptions;
pub use report::{
    DeviceReport, GidKind, GidReport, LinkLayer, NodeKind, PortReport, PortState, Report,
};

use catchment_verbs::{Context, DeviceInfo, Provider, ProviderInfo, VerbsError, Wire};
use device::Device;
use inventory::Inventory;
use name::DeviceName;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use sys::Library;
use sysfs::Roots;

pub(crate) const NAME: &str = "ibverbs";

/// The provider of the RDMA devices of this machine.
#[derive(Debug, Clone, Default)]
pub struct IbverbsProvider {
    options: IbverbsOptions,
    roots: Roots,
    /// Loaded when first needed. A failure is retried: it may have been installed since.
    library: Arc<OnceLock<Arc<Library>>>,
}

impl IbverbsProvider {
    /// Creates a provider with these options. Nothing is loaded or opened yet.
    pub fn new(options: IbverbsOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Like [`Provider::open`], with access to what only these devices have.
    ///
    /// # Errors
    /// When verbs do not work here ([`Unavailable`]), there is no such device, its port is down, or
    /// it has no RoCE v2 GID that this network namespace can use.
    pub fn open_device(&self, device: &str) -> Result<Arc<IbverbsContext>, VerbsError> {
        let library = self.library()?;
        let mut inventory = Inventory::new(&self.roots)?;
        let name: DeviceName = device.parse().map_err(VerbsError::Invalid)?;
        inventory.inspect(&self.roots, Some(&library), |at| name.may_be(at));
        let place = choose::resolve(device, &name, &inventory.devices, &inventory.addresses)?;
        let handle = inventory.opened(&place.device);
        let handle = handle.ok_or_else(|| Unavailable::NoDriver(place.device.clone()))?;
        IbverbsContext::new(Device::new(handle, place, (self.options.clone(), &self.roots))?)
    }

    /// Returns the name, for [`Provider::open`], of the device, port and GID that have this address
    /// of this host. Use it at once: the index of a GID moves when addresses are added or removed.
    ///
    /// # Errors
    /// Why there is none, and what helps.
    pub fn device_for(&self, local: IpAddr) -> Result<String, NoDevice> {
        let library = self.library()?;
        let mut inventory = Inventory::new(&self.roots)?;
        inventory.inspect(&self.roots, Some(&library), |_| true);
        Ok(choose::by_address(local, &inventory.devices, &inventory.addresses)?.to_string())
    }

    /// Reports what decides whether and over which device verbs work here. Opens each device.
    pub fn report(&self) -> Report {
        let library = self.library();
        let devices = Inventory::new(&self.roots).map(|mut inventory| {
            inventory.inspect(&self.roots, library.as_ref().ok(), |_| true);
            inventory.devices
        });
        Report {
            library: library.map(|library| library.path.to_owned()),
            devices,
            memlock_bytes: memlock::limit_bytes(),
        }
    }

    fn library(&self) -> Result<Arc<Library>, Unavailable> {
        if let Some(library) = self.library.get() {
            return Ok(Arc::clone(library));
        }
        let loaded = Library::load(&self.options.library)?;
        Ok(Arc::clone(self.library.get_or_init(|| loaded)))
    }
}

/// The provider's entry for a registry.
pub const INFO: ProviderInfo =
    ProviderInfo { name: NAME, rank: 100, wire: Wire::RoceV2, is_hardware: true };

impl Provider for IbverbsProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        let library = self.library()?;
        let mut inventory = Inventory::new(&self.roots)?;
        inventory.inspect(&self.roots, Some(&library), |_| true);
        let devices = inventory.devices.iter();
        let ports = devices.flat_map(|device| device.ports.iter().map(move |port| (device, port)));
        Ok(ports
            .map(|(device, port)| DeviceInfo {
                name: choose::port_name(device, port),
                description: describe(device, port),
            })
            .collect())
    }

    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError> {
        Ok(self.open_device(device)?)
    }
}

/// Describes a device in one line for users.
fn describe(device: &DeviceReport, port: &PortReport) -> String {
    let driver = device.driver.as_deref().unwrap_or("no driver named");
    let netdevs = port.netdevs.join(", ");
    let problem = device.problem.as_ref();
    let problem = problem.map_or(String::new(), |problem| format!("; {problem}"));
    format!("{driver}, port {} {} on {netdevs}, {}{problem}", port.number, port.state, port.rate)
}
