//! Two network namespaces and what joins them.
use catchment_netns::{Namespace, Star, VethPair};
use std::net::IpAddr;

/// Two namespaces with a network between them, and their addresses: that of applications or clients, and that of what they use.
#[derive(Clone, Copy)]
pub(crate) struct Hop<'a> {
    pub(crate) left: (&'a Namespace, IpAddr),
    pub(crate) right: (&'a Namespace, IpAddr),
}

impl<'a> From<&'a VethPair> for Hop<'a> {
    fn from(pair: &'a VethPair) -> Self {
        Self { left: (&pair.left, VethPair::LEFT_V4), right: (&pair.right, VethPair::RIGHT_V4) }
    }
}

impl<'a> Hop<'a> {
    /// Returns the hop from the first source of a star to its collector.
    pub(crate) fn of_star(star: &'a Star) -> Option<Self> {
        let left = (star.sources.first()?, Star::source(0).0);
        Some(Self { left, right: (&star.collector, Star::COLLECTOR_V4) })
    }
}

/// Bytes of payload in a packet of a WRITE that is not its last.
pub(crate) const PATH_MTU: u64 = 4096;
/// Headers of a packet of a WRITE over IPv4: Ethernet 14, IP 20, UDP 8, BTH 12, ICRC 4.
const PACKET_HEADERS: u64 = 14 + 20 + 8 + 12 + 4;
/// Those of its first one: RETH 16. Who makes a line for payload counts them in each packet, as it has WRITEs of one too.
pub(crate) const FIRST_PACKET_HEADERS: u64 = PACKET_HEADERS + 16;

/// A line between routers that takes so many bits a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// Bits a second, Ethernet headers included.
    pub(crate) bps: u64,
    /// What may wait for it.
    pub(crate) queue_bytes: u64,
}

impl Line {
    /// Longest IP packet: a WRITE's packet of 4,096 bytes fits.
    const MTU: u32 = 4200;
    const BURST_BYTES: u64 = 64 << 10;

    /// What it takes of payload in bytes a second, of long WRITEs.
    pub(crate) const fn payload_bytes_per_s(self) -> u64 {
        self.bps / 8 * PATH_MTU / (PATH_MTU + PACKET_HEADERS)
    }

    /// Joins two namespaces by a router and this line: towards the collector, nothing shapes the way back.
    pub(crate) fn join(self) -> Result<Star, catchment_netns::NetnsError> {
        Star::new(catchment_netns::StarSpec {
            sources: 1,
            mtu: Self::MTU,
            nic_bps: 20 * self.bps,
            bottleneck_bps: self.bps,
            queue_bytes: self.queue_bytes,
            burst_bytes: Self::BURST_BYTES,
            urgent_dscp: None,
        })
    }
}
