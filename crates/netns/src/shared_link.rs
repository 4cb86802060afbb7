//! A link that sources share, wherever this host can have one.
use crate::detour::Detour;
use crate::namespace::NetnsError;
use crate::star::{Star, StarSpec};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

/// A narrow link between sources and their collector.
#[derive(Debug)]
pub enum SharedLink {
    /// Namespaces and a router: the queues of the kernel.
    Namespaces(Star),
    /// Packets of RoCE make a detour on their way to the collector; all else of 127.0.0.1 goes straight.
    Relay(Detour),
}

impl SharedLink {
    /// Makes it between namespaces.
    ///
    /// # Errors
    /// [`NetnsError`]; nothing is left behind.
    pub fn namespaces(spec: StarSpec) -> Result<Self, NetnsError> {
        Star::new(spec).map(Self::Namespaces)
    }

    /// Makes it of a thread of this process, where there may be no namespaces. It has one queue for all classes.
    ///
    /// # Errors
    /// There is no port.
    pub fn relay(spec: &StarSpec) -> io::Result<Self> {
        Detour::new(spec).map(Self::Relay)
    }

    /// Returns its name in rows and summaries.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Namespaces(_) => "netns",
            Self::Relay(_) => "relay",
        }
    }

    /// Returns where a collector and a controller listen.
    #[must_use]
    pub const fn collector(&self, ipv6: bool) -> IpAddr {
        match self {
            Self::Namespaces(_) if ipv6 => Star::COLLECTOR_V6,
            Self::Namespaces(_) => Star::COLLECTOR_V4,
            Self::Relay(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// Returns where a controller will listen: at this port, or on this host, which others share, at one that is free now.
    ///
    /// # Errors
    /// No port is free.
    pub fn controller(&self, ipv6: bool, port: u16) -> io::Result<SocketAddr> {
        let at = self.collector(ipv6);
        match self {
            Self::Namespaces(_) => Ok(SocketAddr::new(at, port)),
            Self::Relay(_) => TcpListener::bind((at, 0))?.local_addr(),
        }
    }

    /// Returns the address of a source.
    #[must_use]
    pub const fn source(&self, at: u8, ipv6: bool) -> IpAddr {
        match self {
            Self::Namespaces(_) if ipv6 => Star::source(at).1,
            Self::Namespaces(_) => Star::source(at).0,
            Self::Relay(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// Returns the UDP port that the collector's RoCE must have; `None`: the usual one.
    #[must_use]
    pub const fn collector_port(&self) -> Option<u16> {
        match self {
            Self::Namespaces(_) => None,
            Self::Relay(detour) => Some(detour.collector().port()),
        }
    }

    /// Returns where packets of a source enter; `None`: they are sent to the collector.
    #[must_use]
    pub fn via(&self, source: u8) -> Option<SocketAddr> {
        match self {
            Self::Namespaces(_) => None,
            Self::Relay(detour) => detour.entry(source),
        }
    }

    /// Runs it where the collector is.
    ///
    /// # Errors
    /// [`NetnsError`]: the namespace cannot be entered.
    pub fn at_collector<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        match self {
            Self::Namespaces(star) => star.collector.run(work),
            Self::Relay(_) => Ok(work()),
        }
    }

    /// Runs it where a source is, of those that there are.
    ///
    /// # Errors
    /// [`NetnsError`]: the namespace cannot be entered.
    pub fn at_source<T: Send>(
        &self,
        at: u8,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, NetnsError> {
        match self {
            Self::Namespaces(star) => star.sources[usize::from(at)].run(work),
            Self::Relay(_) => Ok(work()),
        }
    }

    /// Returns how many packets found its queue full.
    ///
    /// # Errors
    /// [`NetnsError::Tool`].
    pub fn drops(&self) -> Result<u64, NetnsError> {
        match self {
            Self::Namespaces(star) => Ok(star.bottleneck()?.drops),
            Self::Relay(detour) => Ok(detour.drops()),
        }
    }

    /// Returns how many packets found no room before it, at the NICs of their sources.
    ///
    /// # Errors
    /// [`NetnsError`]: the counters cannot be read.
    pub fn nic_drops(&self) -> Result<u64, NetnsError> {
        match self {
            Self::Namespaces(star) => Ok(star.nics()?.drops),
            Self::Relay(detour) => {
                let call = "getsockopt(SO_MEMINFO)";
                detour.nic_drops().map_err(|source| NetnsError::Os { call, source })
            }
        }
    }

    /// Returns whether packets come in the order in which the link sent them.
    #[must_use]
    pub const fn keeps_order(&self) -> bool {
        match self {
            Self::Namespaces(star) => star.keeps_order,
            Self::Relay(_) => true,
        }
    }
}
