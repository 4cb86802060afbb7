//! The lab: the kernel's RoCE stack in a virtual machine, and ours, over a real network device.
//!
//! [`vm`] boots a guest that has `rdma_rxe` and an [`agent`], which does what it is asked for. The
//! cases are written here, on the host.

pub mod agent;
pub mod cases;
pub mod loss;
pub mod peer;
pub mod report;
pub mod vm;
