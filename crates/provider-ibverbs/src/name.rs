//! Names of devices.
use crate::report::{DeviceReport, GidKind, GidReport, PortReport};
use catchment_verbs::Gid;
use std::net::IpAddr;
use std::str::FromStr;

/// A device, one of its ports, and an entry of that port's GID table.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{device}/{port}/{index}")]
pub(crate) struct Place {
    pub(crate) device: String,
    pub(crate) port: u8,
    pub(crate) index: u32,
    pub(crate) gid: Gid,
    pub(crate) kind: GidKind,
}

impl Place {
    pub(crate) fn new(device: &DeviceReport, port: &PortReport, gid: &GidReport) -> Self {
        Self {
            device: device.name.clone(),
            port: port.number,
            index: gid.index,
            gid: gid.gid,
            kind: gid.kind,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeviceName {
    /// The address of one of its GIDs.
    Address(IpAddr),
    /// The kernel's name, perhaps a port, perhaps an index of its GID table.
    Device(String, Option<u8>, Option<u32>),
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inside = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Ok(address) = inside.unwrap_or(text).parse() {
            return Ok(Self::Address(address));
        }
        let wrong = |what: &str| {
            let shown: String = text.chars().take(64).collect();
            Err(format!(
                "{shown:?}: {what}; a device is given by its name, such as rxe0, rxe0/1 (port) or \
                 rxe0/1/3 (index of the GID), or by an address"
            ))
        };
        let fields: Vec<&str> = text.split('/').collect();
        let (name, port, index) = match fields[..] {
            [name] => (name, None, None),
            [name, port] => (name, Some(port), None),
            [name, port, index] => (name, Some(port), Some(index)),
            _ => return wrong("too many slashes"),
        };
        if name.is_empty() {
            return wrong("no name");
        }
        let port = match port.map(str::parse) {
            Some(Ok(0) | Err(_)) => return wrong("the port is not a number from 1 to 255"),
            Some(Ok(port)) => Some(port),
            None => None,
        };
        let index = match index.map(str::parse) {
            Some(Err(_)) => return wrong("the index of the GID is not a number"),
            Some(Ok(index)) => Some(index),
            None => None,
        };
        Ok(Self::Device(name.to_owned(), port, index))
    }
}

impl DeviceName {
    /// Returns whether it can stand for this device.
    pub(crate) fn may_be(&self, device: &str) -> bool {
        match self {
            Self::Address(_) => true,
            Self::Device(name, ..) => name == device,
        }
    }
}
