//! The virtual machine: a Debian kernel with `rdma_rxe`, emulated, on a tap device.
//!
//! Everything belongs to one process. The tap devices are in an unnamed network namespace, which ends
//! with the last process in it, and qemu dies with its parent. So nothing is left behind however the
//! process ends, including by `kill -9`.
pub(crate) mod guest;
pub(crate) mod host;
pub(crate) mod initramfs;
pub(crate) mod kernel;
pub(crate) mod network;
pub(crate) mod shell;
