//! Collects frames from many devices into collectors over RDMA.
