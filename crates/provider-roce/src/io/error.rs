//! Errors of a socket: opening it, and sending.
use super::port_owner;
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// A socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process has the port. Its owner, as far as it can be known, is looked up when the
    /// error is displayed: that reads the open files of all processes.
    #[error("UDP port {at} is taken: {advice}", at = .0, advice = port_owner::advice(*.0))]
    InUse(SocketAddr),
    /// The address is none of this host's (of this network namespace's).
    #[error("{address} is not an address of this host, which has: {}", .known.join(", "))]
    NotLocal {
        /// The requested address.
        address: SocketAddr,
        /// The addresses of this host.
        known: Vec<String>,
    },
    /// The system refused for another reason.
    #[error("UDP {address}: {call}: {source}")]
    Os {
        /// The requested address and port.
        address: SocketAddr,
        /// The system call.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl BindError {
    /// Why bind(2) failed.
    pub(super) fn refused(address: SocketAddr, errno: Errno) -> Self {
        match errno {
            Errno::ADDRINUSE => Self::InUse(address),
            Errno::ADDRNOTAVAIL => Self::NotLocal { address, known: known_addresses() },
            other => Self::Os { address, call: "bind", source: other.into() },
        }
    }
}

fn known_addresses() -> Vec<String> {
    let all = super::local_addresses().unwrap_or_default();
    all.iter().map(|a| describe(a.address, &a.interface)).collect()
}

fn describe(address: IpAddr, interface: &str) -> String {
    format!("{address} ({interface})")
}

/// Packets that were dropped because the kernel refused them.
#[derive(Debug, thiserror::Error)]
#[error("{packets} packets of {bytes} bytes to {remote}: {source}{}", mtu_text(.ip_mtu))]
pub struct SendFault {
    /// The peer.
    pub remote: SocketAddr,
    /// How many packets.
    pub packets: usize,
    /// Bytes of the first of them.
    pub bytes: usize,
    /// The MTU of the path in bytes, IP header included, if the packets exceed it: it may
    /// have dropped.
    pub ip_mtu: Option<u32>,
    /// The kernel's error.
    #[source]
    pub source: io::Error,
}

fn mtu_text(ip_mtu: &Option<u32>) -> String {
    ip_mtu.map_or_else(String::new, |mtu| {
        format!(" (the MTU of the path is now {mtu}: choose a smaller path MTU)")
    })
}
