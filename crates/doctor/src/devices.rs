//! The devices of all providers, as `catchment devices` lists them.
//!
//! ```
//! use catchment_doctor::devices::devices;
//!
//! for device in devices(&Default::default(), &Default::default()) {
//!     println!("{} {}: {}", device.provider, device.name, device.state);
//! }
//! ```
use catchment::ibverbs::IbverbsOptions;
use catchment::roce::RoceOptions;
use catchment_provider_ibverbs::{
    DeviceReport, GidKind, INFO as IBVERBS, IbverbsProvider, LinkLayer, PortReport, PortState,
};
use catchment_provider_roce::io::{LocalAddress, Scope, local_addresses};
use catchment_provider_roce::{INFO as ROCE, PathMtu};
use catchment_provider_shm::INFO as SHM;
use serde::Serialize;
use std::collections::BTreeMap;

/// One device that a session could use, or why it could not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The provider.
    pub provider: &'static str,
    /// What the provider calls it.
    pub name: String,
    /// `up`, `down`, or what else its state is called.
    pub state: String,
    /// Network interface; `None` where there is none.
    pub interface: Option<String>,
    /// Addresses that peers reach it by.
    pub addresses: Vec<String>,
    /// MTU of the interface in bytes, IP header included.
    pub mtu_bytes: Option<u32>,
    /// Payload of a full packet in bytes.
    pub path_mtu: Option<u32>,
    /// Speed as the driver reports it, such as `100 Gb/s`.
    pub speed: Option<String>,
    /// Why it cannot be used, or what is special; empty for nothing.
    pub note: String,
}

/// Returns all devices, those of the best provider first. A provider without any has one row that says
/// why.
pub fn devices(roce: &RoceOptions, ibverbs: &IbverbsOptions) -> Vec<Device> {
    let mut all = vec![shm()];
    all.extend(rdma(ibverbs));
    all.extend(software(roce));
    all
}

fn empty(provider: &'static str, name: &str, state: &str) -> Device {
    Device {
        provider,
        name: name.to_owned(),
        state: state.to_owned(),
        interface: None,
        addresses: Vec::new(),
        mtu_bytes: None,
        path_mtu: None,
        speed: None,
        note: String::new(),
    }
}

fn shm() -> Device {
    Device {
        note: "processes of one host, network namespace and user".to_owned(),
        ..empty(SHM.name, catchment_provider_shm::DEVICE, "up")
    }
}

fn missing(provider: &'static str, why: String) -> Device {
    Device { note: why, ..empty(provider, "-", "missing") }
}

fn rdma(options: &IbverbsOptions) -> Vec<Device> {
    let report = IbverbsProvider::new(options.clone()).report();
    let devices = match (&report.library, &report.devices) {
        (_, Err(why)) => return vec![missing(IBVERBS.name, why.to_string())],
        (Err(why), Ok(devices)) if devices.is_empty() => {
            return vec![missing(IBVERBS.name, why.to_string())];
        }
        (_, Ok(devices)) => devices,
    };
    let library = report.library.as_ref().err().map(ToString::to_string);
    let rows = devices.iter().flat_map(|device| {
        device.ports.iter().map(|port| rdma_port(device, port, library.as_deref()))
    });
    rows.collect()
}

fn rdma_port(device: &DeviceReport, port: &PortReport, no_library: Option<&str>) -> Device {
    let name = match device.ports.len() {
        1 => device.name.clone(),
        _ => format!("{}/{}", device.name, port.number),
    };
    let state = if port.state == PortState::Active {
        "up".to_owned()
    } else {
        port.state.to_string().to_lowercase()
    };
    let usable = port.gids.iter().filter(|gid| gid.here && gid.kind == GidKind::RoceV2);
    let addresses: Vec<String> = usable.map(|gid| gid.gid.ip().to_string()).collect();
    let note = if let Some(why) = no_library {
        why.to_owned()
    } else if let Some(problem) = &device.problem {
        problem.to_string()
    } else if port.link != LinkLayer::Ethernet {
        "no RoCE: this program needs Ethernet".to_owned()
    } else if addresses.is_empty() {
        "no RoCE v2 GID of this network namespace".to_owned()
    } else {
        device.driver.clone().unwrap_or_default()
    };
    Device {
        interface: (!port.netdevs.is_empty()).then(|| port.netdevs.join(", ")),
        mtu_bytes: port.netdevs.first().and_then(|name| netdev(name, "mtu")?.parse().ok()),
        addresses,
        path_mtu: port.active_mtu_bytes,
        speed: (!port.rate.is_empty()).then(|| port.rate.clone()),
        note,
        ..empty(IBVERBS.name, &name, &state)
    }
}

fn software(options: &RoceOptions) -> Vec<Device> {
    let all = match local_addresses() {
        Ok(all) => all,
        Err(error) => return vec![missing(ROCE.name, error.to_string())],
    };
    let mut interfaces: BTreeMap<(Scope, &str), Vec<&LocalAddress>> = BTreeMap::new();
    for at in &all {
        let best = all.iter().filter(|other| other.interface == at.interface);
        let scope = best.map(|other| other.scope).min().unwrap_or(at.scope);
        interfaces.entry((scope, &at.interface)).or_default().push(at);
    }
    if interfaces.is_empty() {
        return vec![missing(ROCE.name, "no interface is up and has an address".to_owned())];
    }
    interfaces.into_iter().map(|((_, name), at)| software_on(name, &at, options)).collect()
}

fn software_on(name: &str, addresses: &[&LocalAddress], options: &RoceOptions) -> Device {
    let mtu = addresses[0].mtu;
    let ipv6 = addresses.iter().any(|at| at.address.is_ipv6());
    let fitting = PathMtu::for_interface_mtu(mtu as usize, ipv6);
    let path_mtu =
        fitting.map(|fitting| options.path_mtu.map_or(fitting, |most| most.min(fitting)));
    let loopback = addresses.iter().all(|at| at.scope == Scope::Loopback);
    Device {
        interface: Some(name.to_owned()),
        addresses: addresses.iter().map(|at| at.address.to_string()).collect(),
        mtu_bytes: Some(mtu),
        path_mtu: path_mtu.map(|mtu| mtu.bytes() as u32),
        speed: netdev_speed(name),
        note: if path_mtu.is_none() {
            "its MTU is too small for RoCE".to_owned()
        } else if loopback {
            "this host only".to_owned()
        } else {
            "software".to_owned()
        },
        ..empty(ROCE.name, name, "up")
    }
}

fn netdev(name: &str, file: &str) -> Option<String> {
    let path = format!("/sys/class/net/{name}/{file}");
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The kernel writes Mb/s, and -1 for "unknown".
fn netdev_speed(name: &str) -> Option<String> {
    let mbit: i64 = netdev(name, "speed")?.parse().ok()?;
    match mbit {
        ..=0 => None,
        1..=999 => Some(format!("{mbit} Mb/s")),
        _ => Some(format!("{} Gb/s", mbit as f64 / 1000.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_shm_and_a_loopback() {
        let all = devices(&RoceOptions::default(), &IbverbsOptions::default());
        assert_eq!(all[0].provider, "shm");
        let on_loopback = |device: &&Device| device.interface.as_deref() == Some("lo");
        let lo = all.iter().find(on_loopback).unwrap();
        assert_eq!((lo.provider, lo.path_mtu), ("roce", Some(4096)));
        assert!(lo.addresses.contains(&"127.0.0.1".to_owned()));
        assert!(all.iter().any(|device| device.provider == "ibverbs"));
    }

    #[test]
    fn without_the_library_a_row_says_so() {
        let nowhere = IbverbsOptions {
            library: "/nowhere/libibverbs.so.1".into(),
            ..IbverbsOptions::default()
        };
        let all = rdma(&nowhere);
        assert!(!all.is_empty());
        assert!(all.iter().all(|row| !row.note.is_empty()), "{all:?}");
    }
}
