//! What a chosen path means for the two queue pairs.
use crate::check::WHY_CHARS_MAX;
use crate::message::{FailedPath, SessionPath};
use crate::names::fit;
use catchment_verbs::{Endpoint, NetEnd};

impl SessionPath {
    /// Returns whether it leaves the host, so that the network can fail it.
    pub fn is_network(&self) -> bool {
        self.path_mtu.is_some()
    }

    /// Returns a peer's queue pair as this side must connect to it: with the path MTU of the session,
    /// which must be the same at both ends.
    pub fn agreed(&self, peer: Endpoint) -> Endpoint {
        let net = match (peer.net, self.path_mtu) {
            (Some(net), Some(path_mtu)) => {
                Some(NetEnd { path_mtu: net.path_mtu.min(path_mtu), ..net })
            }
            (None, Some(path_mtu)) => Some(NetEnd::of_rnic(path_mtu)),
            (net, None) => net,
        };
        Endpoint { net, ..peer }
    }

    /// Reports that it failed: at this path MTU only, or at any.
    pub fn failed(&self, path_mtu: Option<u32>, reason: &str) -> FailedPath {
        FailedPath { path: Self { path_mtu, ..self.clone() }, reason: fit(reason, WHY_CHARS_MAX) }
    }
}
