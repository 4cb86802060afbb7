//! Paths to peers, and address handles: paths that datagrams name.
use crate::cores::AhCore;
use crate::device::Device;
use crate::handles::IbPd;
use crate::mtu::{mtu_bytes, mtu_code};
use crate::path;
use crate::sys::AddressHandle;
use catchment_verbs::provider::Handle;
use catchment_verbs::{Ah, Gid, NetEnd, PortAddr, VerbsError};
use std::sync::Arc;

/// Returns whether an RNIC can talk to this port: the code of the path MTU, or what to do.
pub(crate) fn check_port(device: &Device, to: &PortAddr) -> Result<u32, String> {
    let (ours, theirs) = (device.place.gid.ip(), to.gid.ip());
    if ours.is_ipv4() != theirs.is_ipv4() {
        return Err(format!(
            "this device has the address {ours}: open it by a GID of the same family as the peer"
        ));
    }
    let Some(net) = to.net else {
        return mtu_code(device.path_mtu).ok_or_else(|| "no path MTU".to_owned());
    };
    if net.udp_port != NetEnd::RNIC_UDP_PORT {
        return Err(format!(
            "it listens on UDP port {}, and RNICs send to {} only: free that port there",
            net.udp_port,
            NetEnd::RNIC_UDP_PORT
        ));
    }
    mtu_code(net.path_mtu).and_then(|_| mtu_code(net.path_mtu.min(device.path_mtu))).ok_or_else(
        || format!("its path MTU is {}: 256, 512, 1024, 2048 or 4096 is needed", net.path_mtu),
    )
}

/// Returns the route to a peer. Looks up our GID again: it moves when addresses change.
pub(crate) fn route(device: &Device, remote: Gid) -> Result<path::Route, String> {
    let place = &device.place;
    let index = device.gid_index().ok_or_else(|| {
        format!(
            "our own GID {} ({}) is no longer in the table of {} port {}: its address was \
             removed, or the interface is down; open the device again",
            place.gid,
            place.gid.ip(),
            place.device,
            place.port
        )
    })?;
    Ok(path::Route {
        port: place.port,
        index,
        remote,
        traffic_class: device.options.traffic_class,
        service_level: device.options.service_level,
    })
}

/// The application's address handle.
pub(crate) struct IbAh {
    core: Arc<Handle<AhCore>>,
    pd: IbPd,
}

impl IbAh {
    pub(crate) fn new(pd: IbPd, to: &PortAddr) -> Result<Self, VerbsError> {
        let device = pd.device();
        let address = to.gid.ip();
        let no_way = |reason| VerbsError::Invalid(format!("no path to {address}: {reason}"));
        let mtu = check_port(device, to).map_err(no_way)?;
        let route = route(device, to.gid).map_err(no_way)?;
        let refused = |error| VerbsError::os(format!("an address handle for {address}"), error);
        let attr = path::address(&route).map_err(refused)?;
        let core = device.ahs.add(AhCore {
            domain: Arc::clone(&pd.domain),
            native: AddressHandle::new(Arc::clone(&pd.domain), attr).map_err(refused)?,
            path_mtu: mtu_bytes(mtu).unwrap_or(device.path_mtu),
            to: *to,
        })?;
        Ok(Self { core, pd })
    }
}

impl Drop for IbAh {
    fn drop(&mut self) {
        self.pd.device().ahs.remove(&self.core);
    }
}

impl Ah for IbAh {
    fn handle(&self) -> u32 {
        self.core.number()
    }

    fn to(&self) -> &PortAddr {
        &self.core.object.to
    }
}
