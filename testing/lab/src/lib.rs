//! The lab: the kernel's RoCE stack in a virtual machine, and ours, over a real network device.
//!
//! [`vm`] boots a guest that has `rdma_rxe`, and [`remote`] runs programs in it. One of them is the
//! [`agent`], which does with the RDMA device what it is asked for. The cases are written here, on
//! the host.

pub mod agent;
pub mod cases;
pub mod end;
pub mod loss;
pub mod peer;
pub mod remote;
pub mod report;
pub mod table;
pub mod verbs;
pub mod vm;
