//! The network between the host and the guests: two switches in a network namespace of their own.
//!
//! RoCE uses one, orders to the guests the other, so that they arrive whatever a case does to the
//! first. Each guest has a tap device at both.
use super::shell;
use anyhow::{Context as _, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Large enough for the largest path MTU of RoCE, 4096.
pub(crate) const MTU: usize = 9000;

pub(crate) const CONTROL_MTU: usize = 1500;
const SWITCH: &str = "lab0";
const CONTROL_SWITCH: &str = "lab1";
const CONTROL_HOST: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
pub(crate) const HOST: Addresses = Addresses::numbered(1);
pub(crate) const GUEST: Addresses = SEATS[0].addresses;

pub(crate) const SEATS: [Seat; 2] = [
    Seat {
        number: 0,
        tap: "tap0",
        control_tap: "tap1",
        addresses: Addresses::numbered(2),
        control: Ipv4Addr::new(10, 78, 0, 2),
    },
    Seat {
        number: 1,
        tap: "tap2",
        control_tap: "tap3",
        addresses: Addresses::numbered(3),
        control: Ipv4Addr::new(10, 78, 0, 3),
    },
];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) number: u8,
    /// The tap device for RoCE.
    pub(crate) tap: &'static str,
    /// The tap device for orders.
    pub(crate) control_tap: &'static str,
    pub(crate) addresses: Addresses,
    pub(crate) control: Ipv4Addr,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) ipv4: Ipv4Addr,
    pub(crate) ipv6: Ipv6Addr,
}

impl Addresses {
    const fn numbered(number: u8) -> Self {
        Self {
            ipv4: Ipv4Addr::new(10, 77, 0, number),
            ipv6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number as u16),
        }
    }

    pub(crate) fn of(&self, version: IpVersion) -> IpAddr {
        match version {
            IpVersion::V4 => self.ipv4.into(),
            IpVersion::V6 => self.ipv6.into(),
        }
    }

    /// Returns both with prefix lengths, as `ip addr add` takes them.
    pub(crate) fn with_prefixes(&self) -> [String; 2] {
        [format!("{}/24", self.ipv4), format!("{}/64", self.ipv6)]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
pub(crate) enum IpVersion {
    /// IPv4, whose identification is part of the ICRC.
    #[display("v4")]
    V4,
    #[display("v6")]
    V6,
}

/// Creates the switches with our addresses, and the tap devices of all guests, in the current network
/// namespace.
pub(crate) fn set_up() -> Result<()> {
    ip("link set lo up")?;
    switch(SWITCH, MTU)?;
    switch(CONTROL_SWITCH, CONTROL_MTU)?;
    for seat in SEATS {
        tap(seat.tap, SWITCH, MTU)?;
        tap(seat.control_tap, CONTROL_SWITCH, CONTROL_MTU)?;
    }
    let [ipv4, ipv6] = HOST.with_prefixes();
    ip(&format!("addr add {ipv4} dev {SWITCH}"))?;
    // Without duplicate address detection, so that it works at once.
    ip(&format!("-6 addr add {ipv6} dev {SWITCH} nodad"))?;
    ip(&format!("addr add {CONTROL_HOST}/24 dev {CONTROL_SWITCH}"))
}

fn switch(name: &str, mtu: usize) -> Result<()> {
    ip(&format!("link add {name} type bridge"))?;
    ip(&format!("link set {name} mtu {mtu} up"))
}

fn tap(name: &str, switch: &str, mtu: usize) -> Result<()> {
    ip(&format!("tuntap add dev {name} mode tap vnet_hdr"))?;
    ip(&format!("link set {name} mtu {mtu} master {switch} up"))
}

fn ip(arguments: &str) -> Result<()> {
    let words: Vec<_> = ["ip"].into_iter().chain(arguments.split(' ')).collect();
    shell::output(&words).context("cannot set up the network of the guests")?;
    Ok(())
}
