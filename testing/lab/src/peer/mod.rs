//! Peers of the guest's queue pairs, on the host.
//!
//! [`wire`] sends and receives packets on UDP port 4791. [`rig`] is a queue pair of the guest whose
//! peer is the case itself: it sends packets by hand and looks at each answer. [`pair`] connects
//! one of the guest to one of ours, which an [`endpoint`] drives.
pub(crate) mod endpoint;
pub(crate) mod pair;
pub(crate) mod rig;
pub(crate) mod wire;
