//! Frames that leave this host unprotected, which its user should know.
//!
//! TLS protects the session. What RDMA moves between hosts is protected by the network, or by `--authenticate`,
//! which keeps others from changing it, not from reading it.
use crate::session::message::SessionPath;
use catchment_provider_roce::io::local_addresses;
use catchment_verbs::Endpoint;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Warns of it, once in the life of a source or collector.
#[derive(Default)]
pub(crate) struct InClear {
    warned: AtomicBool,
}

impl InClear {
    /// Warns if frames over `path` between these ends can be read, or also forged, on their way.
    pub(crate) fn check(&self, path: &SessionPath, local: Endpoint, peer: Endpoint) {
        let provider = &path.source;
        let authenticated = is_authenticated(local) && is_authenticated(peer);
        let (local, peer) = (local.gid.ip(), peer.gid.ip());
        if !path.is_network() || !leaves(local, peer) || self.warned.swap(true, Ordering::Relaxed) {
            return;
        }
        if authenticated {
            tracing::warn!(%local, %peer, provider, "{READABLE}");
        } else {
            tracing::warn!(%local, %peer, provider, "{FORGEABLE}");
        }
    }
}

const READABLE: &str = "frames go over the network in clear: who is between the hosts can read them, but not change \
    them; to hide them, connect the hosts with WireGuard";
const FORGEABLE: &str = "frames go over the network in clear: who is between the hosts can read them and send others \
    in their place; give --authenticate at both ends against others in their place, connect the hosts with \
    WireGuard to hide them too, or use a network that you trust";

/// Returns whether the packets that this end sends are authenticated.
fn is_authenticated(end: Endpoint) -> bool {
    end.net.is_some_and(|net| net.key.is_some())
}

/// Returns whether packets between these addresses leave the host without a tunnel that encrypts them.
fn leaves(local: IpAddr, peer: IpAddr) -> bool {
    local != peer && !peer.is_loopback() && !is_wireguard(local)
}

/// Returns whether an address is that of a WireGuard interface of this host.
fn is_wireguard(local: IpAddr) -> bool {
    let interface = local_addresses().unwrap_or_default().into_iter().find(|a| a.address == local);
    let Some(interface) = interface else { return false };
    // The kernel's own name of the kind of an interface, whatever the interface is called.
    let about = std::fs::read_to_string(format!("/sys/class/net/{}/uevent", interface.interface));
    about.is_ok_and(|about| about.lines().any(|line| line == "DEVTYPE=wireguard"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_within_a_host_do_not_leave_it() {
        let ip = |text: &str| text.parse().unwrap();
        assert!(!leaves(ip("127.0.0.1"), ip("127.0.0.1")));
        assert!(!leaves(ip("::1"), ip("::1")));
        assert!(!leaves(ip("192.0.2.1"), ip("192.0.2.1")));
        assert!(leaves(ip("192.0.2.1"), ip("192.0.2.2")));
    }
}
