//! What a chosen path means for the two queue pairs.

use catchment_verbs::{Endpoint, NetEnd};

use super::{Recovery, Wire};
use crate::observe::SessionSnapshot;
use crate::session::check::WHY_CHARS_MAX;
use crate::session::message::{FailedPath, SessionPath};
use crate::session::names::fit;

impl SessionPath {
    /// Whether it leaves the memory of one host, so that what lies between can stop it.
    pub(crate) fn is_network(&self) -> bool {
        Wire::of(&self.source) == Some(Wire::RoceV2)
    }

    /// A peer's queue pair as this side shall connect to it: with the path MTU of the session, which
    /// must be the same at both ends.
    pub(crate) fn agreed(&self, peer: Endpoint) -> Endpoint {
        let net = match (peer.net, self.path_mtu) {
            (Some(net), Some(path_mtu)) => Some(NetEnd {
                path_mtu: net.path_mtu.min(path_mtu),
                ..net
            }),
            (None, Some(path_mtu)) => Some(NetEnd::of_rnic(path_mtu)),
            (net, None) => net,
        };
        Endpoint { net, ..peer }
    }

    /// That it was tried and failed: at this path MTU only, or at any.
    pub(crate) fn failed(&self, path_mtu: Option<u32>, reason: &str) -> FailedPath {
        FailedPath {
            path: SessionPath {
                path_mtu,
                ..self.clone()
            },
            reason: fit(reason, WHY_CHARS_MAX),
        }
    }

    /// What people see of a session over it.
    pub(crate) fn describe(
        &self,
        (source, collector): (Endpoint, Endpoint),
        reason: &str,
    ) -> SessionSnapshot {
        let address = |end: Endpoint| self.is_network().then(|| end.gid.ip().to_string());
        let recovery = Recovery::of(source.net, collector.net);
        SessionSnapshot {
            collector_gid: collector.gid.to_string(),
            source_gid: source.gid.to_string(),
            collector_qpn: collector.qpn,
            source_qpn: source.qpn,
            collector_address: address(collector),
            source_address: address(source),
            path_mtu: self.path_mtu,
            recovery: recovery.map(|recovery| recovery.as_str().to_owned()),
            ..SessionSnapshot::new(&self.collector, &self.source, reason)
        }
    }
}
