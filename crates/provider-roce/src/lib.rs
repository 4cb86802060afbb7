//! RoCEv2 without an RNIC: verbs over UDP sockets.
//!
//! A device is an address of this host and a UDP port. Its engine, one thread, owns the queue pairs
//! (the state machines of `catchment-roce`), receives, and sends; programs post through lock-free
//! rings and poll completion queues ([`RoceOptions::inline_polling`] lets them do the engine's work
//! themselves). Bytes are copied once at each end: from the registered region into the kernel, and
//! from the receive buffer into the region.
//!
//! [`io`] moves packets between registered memory and the network. It knows the outside
//! of a packet (addresses, lengths, ICRC) and nothing of queue pairs.
//!
//! Silent peers: requests to a dead peer fail after their retries. A queue pair that
//! only receives cannot tell a dead peer from an idle one; that is left to leases of a higher layer.
#![deny(unsafe_code)]
mod address_vector;
mod ah;
mod context;
mod counters;
mod cq;
mod device;
mod device_core;
mod dirty;
#[cfg(test)]
mod dirty_tests;
mod engine;
mod fault;
mod handles;
#[allow(unsafe_code, reason = "system calls that no crate wraps; the only module with any")]
pub mod io;
mod keys;
mod memory;
mod mr;
mod name;
mod options;
mod qp;
mod region;
mod request;
mod sleep;
mod sync;

pub use counters::DeviceCounters;
pub use fault::{FaultCounters, FaultParseError, Faults};
pub use handles::RoceContext;
pub use options::RoceOptions;

pub use catchment_roce::wire::{DropReason, PathMtu};

use catchment_verbs::{Context, DeviceInfo, Gid, Provider, ProviderInfo, VerbsError, Wire};
use io::{Datagrams, LocalAddress};
use std::sync::Arc;

/// The provider of software RoCE devices, all with the same options.
#[derive(Debug, Clone, Default)]
pub struct RoceProvider {
    options: RoceOptions,
}

impl RoceProvider {
    /// Creates a provider of devices with these options.
    pub fn new(options: RoceOptions) -> Self {
        Self { options }
    }

    /// Like [`Provider::open`], with access to what only these devices have.
    ///
    /// A device is named by an address (`10.0.0.1`, `fd00::1`), with a port if it is not that of
    /// the options (`10.0.0.1:0`, `[::1]:4791`), or by a network interface (`eth0`), which stands
    /// for its address that reaches furthest.
    ///
    /// # Errors
    /// When there is no such address, or the port is taken: the text names the owner.
    pub fn open_device(&self, device: &str) -> Result<Arc<RoceContext>, VerbsError> {
        RoceContext::open(device, &self.options)
    }

    /// Opens a device whose packets are carried by `datagrams` instead of a UDP socket.
    ///
    /// # Errors
    /// When its MTU is unknown or too small for RoCE, or the system refuses a thread or a
    /// descriptor.
    pub fn open_on(&self, datagrams: Box<dyn Datagrams>) -> Result<Arc<RoceContext>, VerbsError> {
        RoceContext::open_on(datagrams, &self.options)
    }

    fn describe(&self, at: &LocalAddress) -> DeviceInfo {
        let (address, interface, mtu) = (at.address, &at.interface, at.mtu);
        let path_mtu = PathMtu::for_interface_mtu(mtu as usize, address.is_ipv6());
        let path_mtu = path_mtu.map_or("too small for RoCE".into(), |path_mtu| {
            let path_mtu = self.options.path_mtu.map_or(path_mtu, |most| most.min(path_mtu));
            format!("path MTU {}", path_mtu.bytes())
        });
        let gid = Gid::from_ip(address);
        let faults = self
            .options
            .fault
            .map_or(String::new(), |faults| format!(", INJECTS FAULTS ({faults})"));
        DeviceInfo {
            name: address.to_string(),
            description: format!(
                "software RoCE on {interface}, MTU {mtu}, {path_mtu}, GID {gid}{faults}"
            ),
        }
    }
}

/// The provider's entry for a registry.
pub const INFO: ProviderInfo =
    ProviderInfo { name: "roce", rank: 200, wire: Wire::RoceV2, is_hardware: false };

impl Provider for RoceProvider {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        Ok(name::usable()?.iter().map(|at| self.describe(at)).collect())
    }

    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError> {
        Ok(self.open_device(device)?)
    }
}
