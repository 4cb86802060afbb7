//! The network between host and guest: two tap devices in a namespace of their own.
//!
//! RoCE goes over the one, orders for the guest over the other: whatever a case does to the one,
//! orders arrive.

use super::shell;
use anyhow::{Context as _, Result};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The tap device for RoCE.
pub const TAP: &str = "tap0";

/// The tap device for orders.
pub const CONTROL_TAP: &str = "tap1";

/// Our address on the tap device for orders, in a network of 24 bits.
const CONTROL_HOST: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

/// The guest's address there.
pub const CONTROL_GUEST: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

/// Large enough for the largest path MTU of RoCE, 4096.
pub const MTU: usize = 9000;

/// Our end of the network.
pub const HOST: Addresses = Addresses {
    ipv4: Ipv4Addr::new(10, 77, 0, 1),
    ipv6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1),
};

/// The guest's end.
pub const GUEST: Addresses = Addresses {
    ipv4: Ipv4Addr::new(10, 77, 0, 2),
    ipv6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2),
};

/// The addresses of one end.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// In a network of 24 bits.
    pub ipv4: Ipv4Addr,
    /// In a network of 64 bits.
    pub ipv6: Ipv6Addr,
}

impl Addresses {
    /// The address of the asked-for version.
    #[must_use]
    pub fn of(&self, version: IpVersion) -> IpAddr {
        match version {
            IpVersion::V4 => self.ipv4.into(),
            IpVersion::V6 => self.ipv6.into(),
        }
    }

    /// Both with the length of their networks, as `ip addr add` takes them.
    #[must_use]
    pub fn with_prefixes(&self) -> [String; 2] {
        [format!("{}/24", self.ipv4), format!("{}/64", self.ipv6)]
    }
}

/// A version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4, whose identification is part of the ICRC.
    V4,
    /// IPv6.
    V6,
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        })
    }
}

/// Makes the tap devices and gives them our addresses. The namespace is the one we run in.
///
/// # Errors
/// When the kernel refuses; the message says what.
pub fn set_up() -> Result<()> {
    let [ipv4, ipv6] = HOST.with_prefixes();
    let mtu = MTU.to_string();
    let control = format!("{CONTROL_HOST}/24");
    let commands: [&[&str]; 8] = [
        &["ip", "link", "set", "lo", "up"],
        &["ip", "tuntap", "add", "dev", TAP, "mode", "tap", "vnet_hdr"],
        &["ip", "link", "set", TAP, "mtu", &mtu, "up"],
        &["ip", "addr", "add", &ipv4, "dev", TAP],
        // Without duplicate address detection: it must work at once.
        &["ip", "-6", "addr", "add", &ipv6, "dev", TAP, "nodad"],
        &[
            "ip",
            "tuntap",
            "add",
            "dev",
            CONTROL_TAP,
            "mode",
            "tap",
            "vnet_hdr",
        ],
        &["ip", "link", "set", CONTROL_TAP, "up"],
        &["ip", "addr", "add", &control, "dev", CONTROL_TAP],
    ];
    for command in commands {
        shell::output(command).context("cannot set up the network of the guest")?;
    }
    Ok(())
}
