//! Why verbs, or a device, cannot be used on this machine: what was found, and what to do.
use crate::report::PortState;
use catchment_verbs::VerbsError;
use std::net::IpAddr;

/// Why verbs, or one device, cannot be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The library cannot be loaded: the dynamic linker's error.
    #[error(
        "libibverbs cannot be loaded ({0}): install it, on Debian and Ubuntu with `apt install \
         ibverbs-providers`, on Fedora and RHEL with `dnf install libibverbs`"
    )]
    NoLibrary(String),
    /// The library lacks a function of 2006 or later that is needed.
    #[error("{library} has no {symbol}: this is not rdma-core's libibverbs, or one before 2018")]
    OldLibrary {
        /// The library.
        library: String,
        /// The function with its version.
        symbol: String,
    },
    /// The kernel's RDMA core is not loaded: the folder that is missing.
    #[error(
        "the kernel has no RDMA support (no {0}): load the driver of the RNIC; without an RNIC, \
         `modprobe rdma_rxe` and `rdma link add rxe0 type rxe netdev eth0`"
    )]
    NoModule(String),
    /// The RDMA core is loaded, but there is no device.
    #[error(
        "the kernel has no RDMA device here: no RNIC, its driver is not loaded, or it belongs to \
         another network namespace (`rdma system`, `rdma dev`); without an RNIC, `rdma link add \
         rxe0 type rxe netdev eth0`"
    )]
    NoDevice,
    /// There are devices, but user space cannot reach them.
    #[error(
        "{0} cannot be reached from user space: `modprobe ib_uverbs`; if that is loaded, the \
         device is being removed"
    )]
    NoUverbs(String),
    /// The device file is missing: most often in a container.
    #[error(
        "{device} has no device file {path}: give it to the container (`--device {path}`, in \
         Kubernetes an RDMA device plugin)"
    )]
    NoDeviceFile {
        /// The device.
        device: String,
        /// The file.
        path: String,
    },
    /// The device file must not be opened.
    #[error(
        "no permission for {path}, the device file of {device} ({reason}): its mode or the \
         container's device rules forbid it; rdma-core's udev rules make it 0666, a container needs \
         `--device {path}`"
    )]
    Permission {
        /// The device.
        device: String,
        /// The file.
        path: String,
        /// The system's error.
        reason: String,
    },
    /// libibverbs does not know a device that the kernel has.
    #[error(
        "libibverbs has no driver for {0}: install ibverbs-providers (Debian, Ubuntu) or \
         libibverbs (Fedora, RHEL) of the same release as the library, or the vendor's"
    )]
    NoDriver(String),
    /// Any other error of the system.
    #[error("{what}: {reason}")]
    Os {
        /// What was requested.
        what: String,
        /// Its error.
        reason: String,
    },
}

impl From<Unavailable> for VerbsError {
    fn from(why: Unavailable) -> Self {
        Self::Unavailable { provider: crate::NAME, reason: why.to_string() }
    }
}

/// Why no device has an address of this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoDevice {
    /// Verbs do not work on this machine at all.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// No interface of this network namespace has the address.
    #[error("no network interface here has the address {0}")]
    NotLocal(IpAddr),
    /// The address is in a GID table, for an interface of another network namespace.
    #[error(
        "{address} is GID {index} of {device} port {port}, but its interface{} is in another network \
         namespace: start the program there, or move the interface here", .netdev.as_ref().map_or(String::new(), |name| format!(" {name}"))
    )]
    OtherNamespace {
        /// The address.
        address: IpAddr,
        /// The device.
        device: String,
        /// Its port.
        port: u8,
        /// Index of the GID.
        index: u32,
        /// The name of the interface there.
        netdev: Option<String>,
    },
    /// The interface with the address has no RDMA device.
    #[error(
        "no RDMA device is on {netdev}, the interface with {address}; there are: {}", list(.known)
    )]
    NoRdma {
        /// The address.
        address: IpAddr,
        /// Its interface.
        netdev: String,
        /// The devices and the interfaces they are on.
        known: Vec<String>,
    },
    /// The interface has an RDMA device, in whose GID table the address is missing.
    #[error(
        "{device} port {port} is on {netdev}, but {address} is not in its GID table: the table takes \
         an address when the interface is up; look at `rdma link` and `ip address show {netdev}`"
    )]
    NoGid {
        /// The address.
        address: IpAddr,
        /// Its interface.
        netdev: String,
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// The device knows the address for RoCE v1 only.
    #[error(
        "{device} port {port} has {address} as a RoCE v1 GID only, and RoCE v2 is needed: see the \
         driver's documentation for the RoCE mode"
    )]
    OnlyRoceV1 {
        /// The address.
        address: IpAddr,
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// The device's port carries no packets.
    #[error(
        "{device} port {port}, which has {address}, is {state}: {}", state.advice()
    )]
    PortDown {
        /// The address.
        address: IpAddr,
        /// The device.
        device: String,
        /// Its port.
        port: u8,
        /// Its state.
        state: PortState,
    },
    /// The interface belongs to a kind of RDMA that this provider does not drive.
    #[error("{device}, on {netdev} with {address}, speaks {kind}: this provider needs RoCE v2")]
    NotRoce {
        /// The address.
        address: IpAddr,
        /// Its interface.
        netdev: String,
        /// The device.
        device: String,
        /// What it speaks.
        kind: &'static str,
    },
    /// The device is the right one, and cannot be opened.
    #[error("{address} is on {device}: {problem}")]
    Unusable {
        /// The address.
        address: IpAddr,
        /// The device.
        device: String,
        /// Why.
        problem: Unavailable,
    },
}

pub(crate) fn list(known: &[String]) -> String {
    if known.is_empty() {
        return "none".to_owned();
    }
    known.join(", ")
}
