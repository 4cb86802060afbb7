//! Options of devices.
use std::path::PathBuf;

/// Options with which a [`crate::IbverbsProvider`] finds and opens its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IbverbsOptions {
    /// The library: a name for the dynamic linker, or a path.
    pub library: PathBuf,
    /// Largest path MTU in bytes (256, 512, 1024, 2048 or 4096); `None`: the port's.
    pub path_mtu: Option<u32>,
    /// Traffic class of packets: the DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Service level (priority) of packets, 0..=7.
    pub service_level: u8,
}

impl Default for IbverbsOptions {
    fn default() -> Self {
        Self {
            library: PathBuf::from("libibverbs.so.1"),
            path_mtu: None,
            traffic_class: 0,
            service_level: 0,
        }
    }
}
