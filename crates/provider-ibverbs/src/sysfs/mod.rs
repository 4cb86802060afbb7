//! What the kernel reports about RDMA devices in /sys, without opening any.
use crate::Unavailable;
use crate::host::HostAddress;
use crate::report::{DeviceReport, GidKind, GidReport, LinkLayer, NodeKind, PortReport, PortState};
use catchment_verbs::Gid;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The folders of the kernel's files; others in tests.
#[derive(Debug, Clone)]
pub(crate) struct Roots {
    pub(crate) sys: PathBuf,
    pub(crate) dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into() }
    }
}

/// Returns all devices, in the order of their names, without their GIDs: [`add_gids`] reads these,
/// which takes long for large tables.
pub(crate) fn devices(roots: &Roots) -> Result<Vec<DeviceReport>, Unavailable> {
    let class = roots.sys.join("class/infiniband");
    let names = match entries(&class) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Unavailable::NoModule(class.display().to_string()));
        }
        Err(error) => {
            return Err(Unavailable::Os {
                what: format!("reading {}", class.display()),
                reason: error.to_string(),
            });
        }
    };
    if names.is_empty() {
        return Err(Unavailable::NoDevice);
    }
    Ok(names.iter().map(|name| device(roots, &class.join(name), name)).collect())
}

fn device(roots: &Roots, path: &Path, name: &str) -> DeviceReport {
    let device_file = uverbs(roots, name).map(|uverbs| roots.dev.join("infiniband").join(uverbs));
    let driver = fs::read_link(path.join("device/driver")).ok();
    let driver = driver.and_then(|link| Some(link.file_name()?.to_str()?.to_owned()));
    DeviceReport {
        name: name.to_owned(),
        node: match number(&line(&path.join("node_type"))) {
            Some(1) => NodeKind::ChannelAdapter,
            Some(4) => NodeKind::Iwarp,
            _ => NodeKind::Other,
        },
        driver,
        firmware: line(&path.join("fw_ver")),
        problem: problem(name, device_file.as_deref()),
        device_file: device_file.map(|file| file.display().to_string()),
        ports: ports(path),
    }
}

pub(crate) fn port_path(roots: &Roots, device: &str, port: u8) -> PathBuf {
    roots.sys.join("class/infiniband").join(device).join("ports").join(port.to_string())
}

pub(crate) fn uverbs_path(roots: &Roots, device: &str) -> PathBuf {
    roots.sys.join("class/infiniband_verbs").join(uverbs(roots, device).unwrap_or_default())
}

/// Returns the name of the device file, such as `uverbs0`.
fn uverbs(roots: &Roots, device: &str) -> Option<String> {
    let class = roots.sys.join("class/infiniband_verbs");
    let all = entries(&class).ok()?;
    all.into_iter().find(|uverbs| line(&class.join(uverbs).join("ibdev")) == device)
}

fn problem(device: &str, file: Option<&Path>) -> Option<Unavailable> {
    let device = device.to_owned();
    let Some(file) = file else {
        return Some(Unavailable::NoUverbs(device));
    };
    let path = file.display().to_string();
    let error = fs::File::options().read(true).write(true).open(file).err()?;
    if error.kind() == io::ErrorKind::NotFound {
        return Some(Unavailable::NoDeviceFile { device, path });
    }
    let reason = error.to_string();
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Some(Unavailable::Permission { device, path, reason });
    }
    Some(Unavailable::Os { what: format!("opening {path}, the device file of {device}"), reason })
}

fn ports(device: &Path) -> Vec<PortReport> {
    let ports = device.join("ports");
    let parent = line(&device.join("parent"));
    numbers(&ports)
        .into_iter()
        .filter_map(|number| u8::try_from(number).ok())
        .map(|number| port(&ports.join(number.to_string()), number, &parent))
        .collect()
}

fn port(path: &Path, number: u8, parent: &str) -> PortReport {
    PortReport {
        number,
        state: port_state(&line(&path.join("state"))),
        link: link_layer(path),
        active_mtu_bytes: None,
        max_mtu_bytes: None,
        rate: line(&path.join("rate")),
        netdevs: Some(parent.to_owned()).filter(|parent| !parent.is_empty()).into_iter().collect(),
        gids: Vec::new(),
    }
}

pub(crate) fn add_gids(roots: &Roots, device: &mut DeviceReport, addresses: &[HostAddress]) {
    for port in &mut device.ports {
        let path = port_path(roots, &device.name, port.number);
        let gids = numbers(&path.join("gids")).into_iter();
        port.set_gids(gids.filter_map(|index| gid(&path, index, port.link, addresses)).collect());
    }
}

/// `4: ACTIVE`
fn port_state(text: &str) -> PortState {
    match number(text) {
        Some(1) => PortState::Down,
        Some(2) => PortState::Init,
        Some(3) => PortState::Armed,
        Some(4) => PortState::Active,
        other => PortState::Other(other.unwrap_or(0)),
    }
}

fn gid(port: &Path, index: u32, link: LinkLayer, addresses: &[HostAddress]) -> Option<GidReport> {
    let at = |folder: &str| line(&port.join(folder).join(index.to_string()));
    let gid: Ipv6Addr = at("gids").parse().ok()?;
    if gid.is_unspecified() {
        return None;
    }
    let gid = Gid(gid.octets());
    let kind = match at("gid_attrs/types").as_str() {
        "RoCE v2" => GidKind::RoceV2,
        "IB/RoCE v1" if link == LinkLayer::InfiniBand => GidKind::InfiniBand,
        "IB/RoCE v1" => GidKind::RoceV1,
        _ => GidKind::Unknown,
    };
    let netdev = Some(at("gid_attrs/ndevs")).filter(|name| !name.is_empty());
    Some(GidReport::new(index, gid, kind, netdev, addresses))
}

/// Returns the index of a GID of this kind in the table of a port: `hint`, unless it moved.
pub(crate) fn gid_index(port: &Path, hint: u32, gid: Gid, kind: GidKind) -> Option<u32> {
    let link = link_layer(port);
    let is_it = |index: &u32| {
        let seen = self::gid(port, *index, link, &[]);
        seen.is_some_and(|seen| seen.gid == gid && seen.kind == kind)
    };
    if is_it(&hint) {
        return Some(hint);
    }
    numbers(&port.join("gids")).into_iter().find(is_it)
}

fn numbers(folder: &Path) -> Vec<u32> {
    let names = entries(folder).unwrap_or_default();
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn link_layer(port: &Path) -> LinkLayer {
    match line(&port.join("link_layer")).as_str() {
        "Ethernet" => LinkLayer::Ethernet,
        "InfiniBand" => LinkLayer::InfiniBand,
        _ => LinkLayer::Other,
    }
}

fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().into_string()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    let mut names: Vec<String> = names.into_iter().filter_map(Result::ok).collect();
    names.sort_unstable();
    Ok(names)
}

/// Returns the first line of a file; empty if it cannot be read, as for unused entries of a table.
fn line(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Returns the number before the colon: `4: ACTIVE`.
fn number(text: &str) -> Option<u32> {
    text.split(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
