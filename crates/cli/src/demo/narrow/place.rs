//! Where the narrow link is: between network namespaces, or where there may be none a relay of this process.
use super::{BURST_BYTES, CAPACITY_BPS, INTERFACE_MTU, NIC_BPS, QUEUE_KIB, WIRE_PERCENT};
use crate::args::ProviderArgs;
use anyhow::{Context as _, Result};
use catchment_netns::{Detour, Namespace, PathSpec, Star, StarSpec};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

const CONTROL_PORT: u16 = 7118;

pub(super) enum Place {
    /// Cameras in namespaces of their own before a router.
    Namespaces(Star),
    /// Packets of RoCE make a detour on their way to the collector; all else of 127.0.0.1 goes straight. Sources have no
    /// NIC of a rate of its own.
    Relay { detour: Detour, collector: SocketAddr },
}

impl Place {
    pub(super) fn namespaces(cameras: u8) -> Result<Self> {
        let spec = StarSpec {
            sources: cameras,
            mtu: INTERFACE_MTU,
            nic_bps: NIC_BPS,
            bottleneck_bps: CAPACITY_BPS * WIRE_PERCENT / 100,
            queue_bytes: QUEUE_KIB << 10,
            burst_bytes: BURST_BYTES,
            urgent_dscp: None,
        };
        Ok(Self::Namespaces(Star::new(spec)?))
    }

    pub(super) fn relay() -> Result<Self> {
        // The collector of each time takes this port; nobody else is told of it.
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a UDP port of 127.0.0.1")?;
        let collector = free.local_addr()?;
        let spec = PathSpec {
            rate_bps: CAPACITY_BPS * WIRE_PERCENT / 100,
            delay: Duration::ZERO,
            queue_bytes: QUEUE_KIB << 10,
            mtu: INTERFACE_MTU,
        };
        let detour = Detour::new(spec, collector).context("a relay at 127.0.0.1")?;
        Ok(Self::Relay { detour, collector })
    }

    /// As it stands in the summary.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Namespaces(_) => "netns",
            Self::Relay { .. } => "relay",
        }
    }

    /// Where the collector and the controller listen.
    pub(super) fn address(&self) -> IpAddr {
        match self {
            Self::Namespaces(_) => Star::COLLECTOR_V4,
            Self::Relay { .. } => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Where the controller will listen: on this host a port that is free now, elsewhere the usual one.
    pub(super) fn controller(&self) -> Result<SocketAddr> {
        match self {
            Self::Namespaces(_) => Ok(SocketAddr::new(self.address(), CONTROL_PORT)),
            Self::Relay { .. } => Ok(TcpListener::bind((self.address(), 0))?.local_addr()?),
        }
    }

    /// Packets for which the link had no room so far.
    pub(super) fn dropped(&self) -> Result<u64> {
        Ok(match self {
            Self::Namespaces(star) => star.bottleneck()?.drops,
            Self::Relay { detour, .. } => detour.counts()?.queue_full,
        })
    }

    /// Runs it where the collector is.
    pub(super) fn at_collector<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self {
            Self::Namespaces(star) => Ok(star.collector.run(work)?),
            Self::Relay { .. } => Ok(work()),
        }
    }

    /// Runs it where a camera is.
    pub(super) fn at_camera<T: Send>(
        &self,
        camera: u8,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        match self {
            Self::Namespaces(star) => {
                let namespace: Option<&Namespace> = star.sources.get(usize::from(camera));
                Ok(namespace.context("a namespace")?.run(work)?)
            }
            Self::Relay { .. } => Ok(work()),
        }
    }

    /// Returns what the collector's devices are.
    pub(super) fn of_collector(&self, asked: &ProviderArgs) -> ProviderArgs {
        let Self::Relay { collector, .. } = self else { return asked.clone() };
        let mut providers = asked.only_roce();
        providers.devices.roce_port = Some(collector.port());
        providers
    }

    /// Returns what a camera's devices are.
    pub(super) fn of_camera(&self, asked: &ProviderArgs) -> Result<ProviderArgs> {
        let Self::Relay { detour, .. } = self else { return Ok(asked.clone()) };
        let mut fault = asked.fault.unwrap_or_default();
        fault.via = Some(detour.entry()?);
        Ok(ProviderArgs { fault: Some(fault), ..asked.only_roce() })
    }
}
