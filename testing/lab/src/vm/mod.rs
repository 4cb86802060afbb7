//! The virtual machine: a Debian kernel with `rdma_rxe`, emulated, on a tap device.
//!
//! Everything belongs to one process. The tap lives in a network namespace without a name, which
//! ends with the last process in it; qemu is told to die with its parent. So nothing stays behind,
//! however the process ends, be it by `kill -9`.
pub(crate) mod guest;
pub(crate) mod host;
pub(crate) mod initramfs;
pub(crate) mod kernel;
pub(crate) mod network;
pub(crate) mod shell;
