//! Paths to peers, and address handles: paths that datagrams name.
use crate::address_vector::{AddressVector, AhCore};
use crate::device_core::DeviceCore;
use crate::handles::RocePd;
use crate::io::Route;
use catchment_roce::wire::{PathMtu, ROCE_PORT};
use catchment_verbs::provider::Handle;
use catchment_verbs::{Ah, PortAddr, VerbsError};
use std::net::SocketAddr;
use std::sync::Arc;

impl AddressVector {
    /// Returns the vector from this device to a port, or why there is none and what to do.
    pub(crate) fn to(device: &DeviceCore, to: &PortAddr) -> Result<Self, String> {
        let address = to.gid.ip();
        if address.is_ipv4() != device.local.is_ipv4() {
            return Err(format!(
                "this device has the address {}: open one of the same family as the peer",
                device.local.ip()
            ));
        }
        let theirs = match to.net {
            None => PathMtu::Mtu4096,
            Some(net) => PathMtu::from_bytes(net.path_mtu as usize).ok_or_else(|| {
                format!("its path MTU is {}: 256, 512, 1024, 2048 or 4096 is needed", net.path_mtu)
            })?,
        };
        let mut remote = SocketAddr::new(address, to.net.map_or(ROCE_PORT, |net| net.udp_port));
        if let (SocketAddr::V6(remote), SocketAddr::V6(from)) = (&mut remote, device.local) {
            remote.set_scope_id(from.scope_id());
        }
        let path = device.datagrams.path_to(remote).map_err(|error| error.to_string())?;
        let room = (path.ip_mtu as usize).saturating_sub(device.options.trailer_bytes());
        let fitting = PathMtu::for_interface_mtu(room, address.is_ipv6());
        let path_mtu = theirs.min(device.path_mtu).min(fitting.unwrap_or(PathMtu::Mtu256));
        tracing::info!(%path, agreed = path_mtu.bytes(), "path to a peer");
        let traffic_class = device.options.sent_traffic_class();
        let route = Route { local: device.local, remote, traffic_class };
        Ok(Self { route, path_mtu })
    }
}

/// The application's address handle.
pub(crate) struct RoceAh {
    core: Arc<Handle<AhCore>>,
    pd: RocePd,
}

impl RoceAh {
    pub(crate) fn new(pd: RocePd, to: &PortAddr) -> Result<Self, VerbsError> {
        let device = pd.device();
        let vector = AddressVector::to(device, to).map_err(|reason| {
            VerbsError::Invalid(format!("no path to {}: {reason}", to.gid.ip()))
        })?;
        let core = AhCore { pd: pd.id, vector, to: *to };
        Ok(Self { core: device.ahs.add(core)?, pd })
    }
}

impl Drop for RoceAh {
    fn drop(&mut self) {
        self.pd.device().ahs.remove(&self.core);
    }
}

impl Ah for RoceAh {
    fn handle(&self) -> u32 {
        self.core.number()
    }

    fn to(&self) -> &PortAddr {
        &self.core.object.to
    }
}
