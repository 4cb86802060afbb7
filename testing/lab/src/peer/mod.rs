//! Peers of the guest's queue pairs, on this host.
//!
//! [`wire`] sends and receives packets on UDP port 4791. [`rig`] is a queue pair of the guest whose
//! peer is the case itself, which sends packets and checks each answer. [`pair`] connects a queue pair
//! of the guest to one of ours, which an [`endpoint`] drives.
pub(crate) mod endpoint;
pub(crate) mod pair;
pub(crate) mod rig;
pub(crate) mod wire;
