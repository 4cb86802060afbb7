//! The RDMA of this machine: devices, ports, GID tables.
use crate::Unavailable;
use crate::host::HostAddress;
use catchment_verbs::Gid;

/// Everything that decides whether, and over which device, verbs work here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The loaded library, as the dynamic linker found it.
    pub library: Result<String, Unavailable>,
    /// The devices that the kernel shows to this process.
    pub devices: Result<Vec<DeviceReport>, Unavailable>,
    /// Bytes of memory that this process may lock (`RLIMIT_MEMLOCK`): registered memory counts.
    /// `None`: unlimited.
    pub memlock_bytes: Option<u64>,
}

/// One RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceReport {
    /// Name of the kernel, as in `rdma dev`.
    pub name: String,
    /// What it is.
    pub node: NodeKind,
    /// The kernel's driver, if reported.
    pub driver: Option<String>,
    /// Firmware version; empty where there is none.
    pub firmware: String,
    /// The file by which user space reaches it.
    pub device_file: Option<String>,
    /// Why it cannot be opened; `None` if it can.
    pub problem: Option<Unavailable>,
    /// Its ports.
    pub ports: Vec<PortReport>,
}

/// The kind of a device (`ibv_node_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeKind {
    /// InfiniBand or RoCE.
    ChannelAdapter,
    /// iWARP: RDMA over TCP.
    Iwarp,
    /// Anything else.
    Other,
}

/// One port of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortReport {
    /// Its number, from 1.
    pub number: u8,
    /// Whether it carries packets.
    pub state: PortState,
    /// The kind of its network.
    pub link: LinkLayer,
    /// Largest packet payload now, in bytes; `None` if the device cannot be opened.
    pub active_mtu_bytes: Option<u32>,
    /// Largest packet payload that it can be set to, in bytes; `None` as above.
    pub max_mtu_bytes: Option<u32>,
    /// The kernel's text, such as `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// Network interfaces that its GIDs belong to.
    pub netdevs: Vec<String>,
    /// The entries of its GID table that are in use.
    pub gids: Vec<GidReport>,
}

impl PortReport {
    /// The GID table, and with it the interfaces.
    pub(crate) fn set_gids(&mut self, gids: Vec<GidReport>) {
        self.netdevs.extend(gids.iter().filter_map(|gid| gid.netdev.clone()));
        self.netdevs.sort_unstable();
        self.netdevs.dedup();
        self.gids = gids;
    }
}

/// Whether a port carries packets (`ibv_port_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[non_exhaustive]
pub enum PortState {
    /// No link.
    #[display("DOWN")]
    Down,
    /// Physically up, not yet configured (InfiniBand).
    #[display("INIT")]
    Init,
    /// Configured, not yet active (InfiniBand).
    #[display("ARMED")]
    Armed,
    /// It works.
    #[display("ACTIVE")]
    Active,
    /// A number that this crate does not know.
    #[display("state {_0}")]
    Other(u32),
}

impl PortState {
    pub(crate) fn advice(self) -> &'static str {
        match self {
            // What the kernel reports for a port whose device is being removed.
            Self::Other(0) => "the device is being removed, or its driver is just loading",
            Self::Down | Self::Init | Self::Armed | Self::Active | Self::Other(_) => {
                "check the cable and `ip link`"
            }
        }
    }
}

/// The network of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkLayer {
    /// RoCE, or iWARP.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
    /// Anything else.
    Other,
}

/// One entry of a port's GID table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidReport {
    /// Its index in the table; it may move when addresses are added or removed.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// The format of packets that carry it.
    pub kind: GidKind,
    /// Its network interface.
    pub netdev: Option<String>,
    /// The interface is in this network namespace and has this address.
    pub here: bool,
}

impl GidReport {
    pub(crate) fn new(
        index: u32,
        gid: Gid,
        kind: GidKind,
        netdev: Option<String>,
        addresses: &[HostAddress],
    ) -> Self {
        let here =
            addresses.iter().any(|at| at.ip == gid.ip() && Some(&at.netdev) == netdev.as_ref());
        Self { index, gid, kind, netdev, here }
    }
}

/// The format of packets that carry a GID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[non_exhaustive]
pub enum GidKind {
    /// UDP over IP: RoCE v2.
    #[display("RoCE v2")]
    RoceV2,
    /// Ethernet without IP: RoCE v1.
    #[display("RoCE v1")]
    RoceV1,
    /// InfiniBand.
    #[display("InfiniBand")]
    InfiniBand,
    /// The kernel does not report it.
    #[display("unknown type")]
    Unknown,
}
