//! The narrow link: between network namespaces, or where there may be none a relay of this process.
use super::{BURST_BYTES, CAPACITY_BPS, INTERFACE_MTU, NIC_BPS, QUEUE_KIB, WIRE_PERCENT};
use crate::args::ProviderArgs;
use anyhow::{Context as _, Result};
use catchment_netns::{SharedLink, StarSpec};

/// Makes it, for so many cameras.
pub(super) fn narrow_link(cameras: u8, has_relay: bool) -> Result<SharedLink> {
    let spec = StarSpec {
        sources: cameras,
        mtu: INTERFACE_MTU,
        nic_bps: NIC_BPS,
        bottleneck_bps: CAPACITY_BPS * WIRE_PERCENT / 100,
        queue_bytes: QUEUE_KIB << 10,
        burst_bytes: BURST_BYTES,
        urgent_dscp: None,
    };
    match has_relay {
        true => SharedLink::relay(&spec).context("a relay at 127.0.0.1"),
        false => Ok(SharedLink::namespaces(spec)?),
    }
}

/// Returns how many packets had no room so far.
pub(super) fn dropped(link: &SharedLink) -> Result<u64> {
    Ok(link.drops()? + link.nic_drops()?)
}

/// Returns what the collector's devices are.
pub(super) fn of_collector(link: &SharedLink, asked: &ProviderArgs) -> ProviderArgs {
    let Some(port) = link.collector_port() else { return asked.clone() };
    let mut providers = asked.only_roce();
    providers.devices.roce_port = Some(port);
    providers
}

/// Returns what a camera's devices are.
pub(super) fn of_camera(link: &SharedLink, camera: u8, asked: &ProviderArgs) -> ProviderArgs {
    let Some(entry) = link.via(camera) else { return asked.clone() };
    let mut fault = asked.fault.unwrap_or_default();
    fault.via = Some(entry);
    ProviderArgs { fault: Some(fault), ..asked.only_roce() }
}
