//! The devices of this machine, as the kernel shows them and as libibverbs opens them.
use crate::Unavailable;
use crate::device::software_driver;
use crate::host::{self, HostAddress};
use crate::mtu::mtu_bytes;
use crate::report::{DeviceReport, GidKind, GidReport, LinkLayer, PortReport};
use crate::sys::types::*;
use crate::sys::{Device, Library};
use crate::sysfs::{self, Roots};
use catchment_verbs::Gid;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct Inventory {
    pub(crate) devices: Vec<DeviceReport>,
    pub(crate) addresses: Vec<HostAddress>,
    opened: BTreeMap<String, Arc<Device>>,
}

impl Inventory {
    /// Lists the devices, without opening any.
    pub(crate) fn new(roots: &Roots) -> Result<Self, Unavailable> {
        let addresses = host::addresses().map_err(|error| Unavailable::Os {
            what: "the addresses of this host".to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self { devices: sysfs::devices(roots)?, addresses, opened: BTreeMap::new() })
    }

    /// Inspects the devices that `wanted` selects: the attributes of the open device, and the GIDs.
    pub(crate) fn inspect(
        &mut self,
        roots: &Roots,
        library: Option<&Arc<Library>>,
        wanted: impl Fn(&str) -> bool,
    ) {
        let chosen = self.devices.iter_mut().filter(|device| wanted(&device.name));
        for report in chosen {
            let opened = library.and_then(|library| open(library, report));
            let has_gids =
                opened.as_ref().is_some_and(|device| ask(device, report, &self.addresses));
            if !has_gids {
                sysfs::add_gids(roots, report, &self.addresses);
            }
            if let Some(device) = opened {
                self.opened.insert(report.name.clone(), Arc::new(device));
            }
        }
    }

    pub(crate) fn opened(&self, name: &str) -> Option<Arc<Device>> {
        self.opened.get(name).map(Arc::clone)
    }
}

/// Opens a device, or records the problem in its report.
fn open(library: &Arc<Library>, report: &mut DeviceReport) -> Option<Device> {
    if report.problem.is_some() {
        return None;
    }
    let device = report.name.clone();
    let problem = match Device::open(Arc::clone(library), &report.name) {
        Ok(Some(device)) => return Some(device),
        Ok(None) => Unavailable::NoDriver(device),
        Err(error) => Unavailable::Os {
            what: format!("opening the RDMA device {device}"),
            reason: error.to_string(),
        },
    };
    report.problem = Some(problem);
    None
}

/// Queries an open device; returns false if it does not list its GIDs.
fn ask(device: &Device, report: &mut DeviceReport, addresses: &[HostAddress]) -> bool {
    if let Ok(attr) = device.query() {
        report.driver = report.driver.take().or(software_driver(&attr).map(str::to_owned));
    }
    let mut entries = 0;
    for port in &mut report.ports {
        if let Ok(attr) = device.query_port(port.number) {
            port.active_mtu_bytes = mtu_bytes(attr.active_mtu);
            port.max_mtu_bytes = mtu_bytes(attr.max_mtu);
            entries += usize::try_from(attr.gid_tbl_len).unwrap_or(0);
        }
    }
    let Some(table) = device.gid_table(entries) else { return false };
    for port in &mut report.ports {
        let ours = table.iter().filter(|entry| entry.port_num == u32::from(port.number));
        port.set_gids(ours.map(|entry| gid(entry, port, addresses)).collect());
    }
    true
}

fn gid(entry: &ibv_gid_entry, port: &PortReport, addresses: &[HostAddress]) -> GidReport {
    let kind = match entry.gid_type {
        IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
        IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
        IBV_GID_TYPE_IB if port.link == LinkLayer::InfiniBand => GidKind::InfiniBand,
        IBV_GID_TYPE_IB => GidKind::RoceV1,
        _ => GidKind::Unknown,
    };
    let netdev = host::interface_name(entry.ndev_ifindex);
    GidReport::new(entry.gid_index, Gid(entry.gid.raw), kind, netdev, addresses)
}
