//! Which device, port and GID: by name, or by the address through which a peer is reached.
use crate::NoDevice;
use crate::error::list;
use crate::host::HostAddress;
use crate::name::{DeviceName, Place};
use crate::report::{DeviceReport, GidKind, LinkLayer, NodeKind, PortReport, PortState};
use catchment_verbs::{Gid, VerbsError};
use std::net::IpAddr;

/// Returns the place that a user's name stands for, as `asked` and as parsed.
pub(crate) fn resolve(
    asked: &str,
    name: &DeviceName,
    devices: &[DeviceReport],
    addresses: &[HostAddress],
) -> Result<Place, VerbsError> {
    let unknown =
        || VerbsError::NoDevice { name: asked.chars().take(64).collect(), known: names(devices) };
    match name {
        DeviceName::Address(address) => by_address(*address, devices, addresses)
            .map_err(|why| VerbsError::Invalid(why.to_string())),
        DeviceName::Device(device, port, index) => {
            let device = devices.iter().find(|at| at.name == *device).ok_or_else(unknown)?;
            if let Some(problem) = &device.problem {
                return Err(problem.clone().into());
            }
            match port {
                None => by_device(device),
                Some(port) => {
                    let port = device.ports.iter().find(|at| at.number == *port);
                    by_port(device, port.ok_or_else(unknown)?, *index)
                }
            }
        }
    }
}

/// Returns the names of devices: with the port where there is more than one.
pub(crate) fn names(devices: &[DeviceReport]) -> Vec<String> {
    let all = devices.iter();
    all.flat_map(|device| device.ports.iter().map(|port| port_name(device, port))).collect()
}

pub(crate) fn port_name(device: &DeviceReport, port: &PortReport) -> String {
    match device.ports.len() {
        1 => device.name.clone(),
        _ => format!("{}/{}", device.name, port.number),
    }
}

/// Returns the first port that works.
fn by_device(device: &DeviceReport) -> Result<Place, VerbsError> {
    let tried = device.ports.iter().map(|port| by_port(device, port, None));
    let mut first = None;
    for result in tried {
        match result {
            Ok(place) => return Ok(place),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| VerbsError::Invalid(format!("{} has no port", device.name))))
}

/// Returns the requested entry, or the best one of a port.
fn by_port(
    device: &DeviceReport,
    port: &PortReport,
    index: Option<u32>,
) -> Result<Place, VerbsError> {
    let (name, number) = (&device.name, port.number);
    let invalid = |text: String| Err(VerbsError::Invalid(text));
    if let Some(kind) = foreign_kind(device, port) {
        return invalid(format!("{name} port {number} speaks {kind}: this provider needs RoCE v2"));
    }
    if port.state != PortState::Active {
        return invalid(format!("{name} port {number} is {}: {}", port.state, port.state.advice()));
    }
    let mut usable = port.gids.iter();
    let gid = match index {
        Some(index) => usable.find(|gid| gid.index == index),
        None => usable
            .filter(|gid| gid.kind == GidKind::RoceV2 && gid.here)
            .min_by_key(|gid| rank(gid.gid)),
    };
    match gid {
        Some(gid) => Ok(Place::new(device, port, gid)),
        None => invalid(format!(
            "{name} port {number} has no {} that an interface of this network namespace has; its \
             table: {}",
            index.map_or("RoCE v2 GID".to_owned(), |index| format!("GID {index}")),
            table(port),
        )),
    }
}

fn table(port: &PortReport) -> String {
    let entries = port.gids.iter().map(|gid| {
        let netdev = gid.netdev.as_deref().unwrap_or("no interface");
        format!("{} {} ({}, {netdev})", gid.index, gid.gid.ip(), gid.kind)
    });
    list(&entries.collect::<Vec<_>>())
}

/// Ranks addresses of a wide scope first.
fn rank(gid: Gid) -> u8 {
    match gid.ip() {
        IpAddr::V4(v4) if !v4.is_link_local() => 0,
        IpAddr::V6(v6) if v6.is_unicast_link_local() => 3,
        IpAddr::V6(v6) if v6.is_unique_local() => 2,
        IpAddr::V6(_) => 1,
        IpAddr::V4(_) => 3,
    }
}

/// Returns what a port speaks if it is not RoCE.
fn foreign_kind(device: &DeviceReport, port: &PortReport) -> Option<&'static str> {
    match (device.node, port.link) {
        (NodeKind::Iwarp, _) => Some("iWARP"),
        (_, LinkLayer::InfiniBand) => Some("InfiniBand"),
        (NodeKind::ChannelAdapter, LinkLayer::Ethernet) => None,
        _ => Some("something else"),
    }
}

pub(crate) fn by_address(
    address: IpAddr,
    devices: &[DeviceReport],
    addresses: &[HostAddress],
) -> Result<Place, NoDevice> {
    let gid = Gid::from_ip(address);
    let address = gid.ip();
    let all =
        || devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    let same = || {
        all().flat_map(|(device, port)| {
            port.gids.iter().filter(|at| at.gid == gid).map(move |gid| (device, port, gid))
        })
    };
    let Some(at) = addresses.iter().find(|at| at.ip == address) else {
        return Err(match same().next() {
            Some((device, port, gid)) => NoDevice::OtherNamespace {
                address,
                device: device.name.clone(),
                port: port.number,
                index: gid.index,
                netdev: gid.netdev.clone(),
            },
            None => NoDevice::NotLocal(address),
        });
    };
    let mut usable = same().filter(|(_, _, gid)| gid.here && gid.kind == GidKind::RoceV2);
    let best = usable.clone().find(|(device, port, _)| works(device, port));
    if let Some((device, port, gid)) = best.or_else(|| usable.next()) {
        return checked(address, device, port).map(|()| Place::new(device, port, gid));
    }
    if let Some((device, port, _)) = same().find(|(_, _, gid)| gid.kind == GidKind::RoceV1) {
        return Err(NoDevice::OnlyRoceV1 {
            address,
            device: device.name.clone(),
            port: port.number,
        });
    }
    let on_it = all().find(|(_, port)| port.netdevs.contains(&at.netdev));
    Err(why_not_on(address, &at.netdev, on_it, devices))
}

fn works(device: &DeviceReport, port: &PortReport) -> bool {
    device.problem.is_none() && port.state == PortState::Active
}

fn checked(address: IpAddr, device: &DeviceReport, port: &PortReport) -> Result<(), NoDevice> {
    if let Some(problem) = &device.problem {
        return Err(NoDevice::Unusable {
            address,
            device: device.name.clone(),
            problem: problem.clone(),
        });
    }
    if port.state != PortState::Active {
        return Err(NoDevice::PortDown {
            address,
            device: device.name.clone(),
            port: port.number,
            state: port.state,
        });
    }
    Ok(())
}

/// Returns why the address is not a RoCE GID of the device on its interface.
fn why_not_on(
    address: IpAddr,
    netdev: &str,
    on_it: Option<(&DeviceReport, &PortReport)>,
    devices: &[DeviceReport],
) -> NoDevice {
    let netdev = netdev.to_owned();
    let Some((device, port)) = on_it else {
        let known = devices.iter().flat_map(|device| {
            device.ports.iter().map(|port| {
                let netdevs = list(&port.netdevs);
                format!("{} on {netdevs}", port_name(device, port))
            })
        });
        return NoDevice::NoRdma { address, netdev, known: known.collect() };
    };
    let name = device.name.clone();
    match foreign_kind(device, port) {
        Some(kind) => NoDevice::NotRoce { address, netdev, device: name, kind },
        None if port.state != PortState::Active => {
            NoDevice::PortDown { address, device: name, port: port.number, state: port.state }
        }
        None => NoDevice::NoGid { address, netdev, device: name, port: port.number },
    }
}

#[cfg(test)]
mod tests;
