//! Why verbs, or one device, cannot be used on this machine: what was seen, and what to do.
use catchment_verbs::VerbsError;

/// Why verbs, or one device, cannot be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The library is not there.
    #[error(
        "libibverbs cannot be loaded ({reason}): install it, on Debian and Ubuntu with `apt install \
         ibverbs-providers`, on Fedora and RHEL with `dnf install libibverbs`"
    )]
    NoLibrary {
        /// What the dynamic linker said.
        reason: String,
    },
    /// The library lacks a function of 2006 or later that is needed.
    #[error("{library} has no {symbol}: this is not rdma-core's libibverbs, or one before 2018")]
    OldLibrary {
        /// The library.
        library: String,
        /// The function with its version.
        symbol: String,
    },
    /// The kernel's RDMA core is not loaded.
    #[error(
        "the kernel knows no RDMA (no {path}): load the driver of the RNIC; without an RNIC, \
         `modprobe rdma_rxe` and `rdma link add rxe0 type rxe netdev eth0`"
    )]
    NoModule {
        /// The folder that is missing.
        path: String,
    },
    /// The RDMA core is there, a device is not.
    #[error(
        "the kernel has no RDMA device here: no RNIC, its driver is not loaded, or it belongs to \
         another network namespace (`rdma system`, `rdma dev`); without an RNIC, `rdma link add \
         rxe0 type rxe netdev eth0`"
    )]
    NoDevice,
    /// There are devices, and no way from user space to them.
    #[error("{device} cannot be reached from user space: `modprobe ib_uverbs`")]
    NoUverbs {
        /// The device.
        device: String,
    },
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
        /// What the system said.
        reason: String,
    },
    /// libibverbs does not know a device that the kernel has.
    #[error(
        "libibverbs has no driver for {device}: install ibverbs-providers (Debian, Ubuntu) or \
         libibverbs (Fedora, RHEL) of the same release as the library, or the vendor's"
    )]
    NoDriver {
        /// The device.
        device: String,
    },
    /// Something else that the system said.
    #[error("{what}: {reason}")]
    Os {
        /// What was asked of it.
        what: String,
        /// Its answer.
        reason: String,
    },
}

impl From<Unavailable> for VerbsError {
    fn from(why: Unavailable) -> VerbsError {
        VerbsError::Unavailable {
            provider: crate::NAME,
            reason: why.to_string(),
        }
    }
}
