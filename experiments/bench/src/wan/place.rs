//! Rates, headers, and the link that has them.
use super::method::{Method, URGENT_DSCP};
use crate::hop::{FIRST_PACKET_HEADERS, PATH_MTU};
use anyhow::{Context as _, Result};
use catchment_netns::{SharedLink, StarSpec};

/// What is scaled: the paper's frames, link and chunk, and the simulator's queue.
const FRAME_BYTES: u64 = 24_883_200;
const LINK_BPS: u64 = 20_000_000_000;
const CHUNK_KIB: u64 = 1024;
const QUEUE_BYTES: u64 = 1_250_000;
/// The shortest queue and the smallest chunk that make sense with packets of 4 KiB.
const QUEUE_LEAST: u64 = 8 * 4200;
const CHUNK_LEAST_KIB: u64 = 16;

pub(super) const SOURCES: u8 = 12;
/// Longest IP packet: a path MTU of 4,096 and its headers.
const INTERFACE_MTU: u32 = 4200;
/// By which an IPv6 header is longer.
const IPV6_MORE: u64 = 20;
/// What the bottleneck may send at once when its timer was late.
const BURST_BYTES: u64 = 16_384;

/// The link and all that shares it, at a scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) scale: u64,
    /// NICs as a part of the link.
    pub(super) nic: f64,
    pub(super) ipv6: bool,
    queue_kib: Option<u64>,
    /// There are no namespaces: a relay of this process is the link.
    has_relay: bool,
}

impl Place {
    pub(super) const fn new(scale: u64, nic: f64, ipv6: bool, queue_kib: Option<u64>) -> Self {
        Self { scale, nic, ipv6, queue_kib, has_relay: false }
    }

    pub(super) const fn over_a_relay(self, has_relay: bool) -> Self {
        Self { has_relay, ..self }
    }

    pub(super) const fn frame_bytes(&self) -> u64 {
        FRAME_BYTES / self.scale
    }

    /// Returns what the link carries: payload.
    pub(super) const fn capacity_bps(&self) -> u64 {
        LINK_BPS / self.scale
    }

    pub(super) fn nic_bps(&self) -> u64 {
        (self.capacity_bps() as f64 * self.nic) as u64
    }

    /// Returns the size of a chunk: whole packets.
    pub(super) const fn chunk_kib(&self) -> u64 {
        let kib = CHUNK_KIB / self.scale / 4 * 4;
        if kib < CHUNK_LEAST_KIB { CHUNK_LEAST_KIB } else { kib }
    }

    pub(super) const fn queue_bytes(&self) -> u64 {
        let bytes = match self.queue_kib {
            Some(kib) => kib << 10,
            None => QUEUE_BYTES / self.scale,
        };
        if bytes < QUEUE_LEAST { QUEUE_LEAST } else { bytes }
    }

    pub(super) const fn header_bytes(&self) -> u64 {
        FIRST_PACKET_HEADERS + if self.ipv6 { IPV6_MORE } else { 0 }
    }

    /// Returns what a shaper is set to that is to carry this much payload.
    pub(super) const fn shaper_bps(&self, payload_bps: u64) -> u64 {
        payload_bps * (PATH_MTU + self.header_bytes()) / PATH_MTU
    }

    /// Makes the link, with bands where the method has them.
    pub(super) fn link(&self, method: Method) -> Result<SharedLink> {
        let spec = StarSpec {
            sources: SOURCES,
            mtu: INTERFACE_MTU,
            nic_bps: self.shaper_bps(self.nic_bps()),
            bottleneck_bps: self.shaper_bps(self.capacity_bps()),
            queue_bytes: self.queue_bytes(),
            burst_bytes: BURST_BYTES,
            urgent_dscp: (method == Method::Spq).then_some(URGENT_DSCP),
        };
        match self.has_relay {
            true => SharedLink::relay(&spec).context("a relay at 127.0.0.1"),
            false => Ok(SharedLink::namespaces(spec)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames are scaled with the rates (S2.2).
    #[test]
    fn what_is_scaled_keeps_its_proportions() {
        let place = Place::new(40, 0.5, false, None);
        assert_eq!((place.frame_bytes(), place.capacity_bps()), (622_080, 500_000_000));
        assert_eq!((place.nic_bps(), place.chunk_kib()), (250_000_000, 24));
        assert_eq!(place.shaper_bps(4096), 4096 + 74);
        assert_eq!(Place::new(1, 1.0, true, None).chunk_kib(), 1024);
        assert_eq!(Place::new(200, 1.0, true, None).chunk_kib(), 16);
    }
}
