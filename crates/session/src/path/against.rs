//! What rules a pair of providers out, by the facts of both sides.
use super::{Because, CollectorFacts, KnownProviders, SourceFacts};
use crate::host::Host;
use crate::message::{FailedPath, ProviderOffer};
use catchment_verbs::NetEnd;
use std::net::IpAddr;

/// Checks what shm needs: one kernel (one memory), one network namespace (its sockets have abstract
/// names) and one user (peers are checked by their credentials).
pub(super) fn memory(collector: &Host, source: &Host) -> Option<Because> {
    if source.boot_id != collector.boot_id {
        return Because::new(
            format!(
                "the source is on another host (boot id {}, collector {})",
                source.boot_id, collector.boot_id
            ),
            "allow a provider that works between hosts",
        );
    }
    if source.netns != collector.netns {
        return Because::new(
            format!(
                "the source is in another network namespace (inode {}, collector {})",
                source.netns, collector.netns
            ),
            "run both containers in one network namespace (one pod, or --network container:NAME)",
        );
    }
    if source.uid != collector.uid {
        return Because::new(
            format!("other user (uid {}, collector uid {})", source.uid, collector.uid),
            "run source and collector as the same user",
        );
    }
    None
}

/// Says which end alone sends packets.
pub(super) fn packets_of_one(ours: &ProviderOffer, theirs: &ProviderOffer) -> Option<Because> {
    let ends = [("collector", ours), ("source", theirs)];
    let [(sends, sender), (other, memory)] =
        if ours.net.is_some() { ends } else { [ends[1], ends[0]] };
    Because::new(
        format!(
            "the {sends}'s {} sends packets, the {other}'s {} does not",
            sender.name, memory.name
        ),
        "use agents at both sides whose devices send packets, or none",
    )
}

/// Checks what RoCEv2 needs: addresses of one family that reach each other without translation, and
/// UDP port 4791 where the other side is an RNIC.
pub(super) fn packets(
    collector: (&CollectorFacts<'_>, &ProviderOffer),
    source: (&SourceFacts<'_>, &ProviderOffer),
) -> Option<Because> {
    let ((collector, ours), (source, theirs)) = (collector, source);
    let (here, there) = (ours.gid.ip(), theirs.gid.ip());
    families(here, there)
        .or_else(|| port("collector", ours, theirs, collector.known))
        .or_else(|| port("source", theirs, ours, collector.known))
        .or_else(|| authentication(ours, theirs))
        .or_else(|| reach(collector.host, source, here, there))
}

fn families(collector: IpAddr, source: IpAddr) -> Option<Because> {
    if collector.is_ipv4() == source.is_ipv4() {
        return None;
    }
    Because::new(
        format!("the source has address {source}, the collector {collector}: two families"),
        "connect to an address of the collector of the family that the source has",
    )
}

/// Returns what rules out the port of `offer`, seen from `peer`.
fn port(
    side: &str,
    offer: &ProviderOffer,
    peer: &ProviderOffer,
    providers: &KnownProviders,
) -> Option<Because> {
    let Some(net) = offer.net else {
        return Because::new(
            format!("the {side} does not say what its {} takes", offer.name),
            "use source and collector of the same version",
        );
    };
    let known = NetEnd::RNIC_UDP_PORT;
    if !providers.is_hardware(&peer.name) || net.udp_port == known {
        return None;
    }
    Because::new(
        format!(
            "the {side}'s {} listens on UDP port {}, and an RNIC knows only {known}",
            offer.name, net.udp_port
        ),
        format!(
            "free UDP port {known} at the {side} (`catchment doctor` there shows its owner), \
             and omit --roce-port"
        ),
    )
}

/// Returns what rules out a pair of which one side alone authenticates its packets.
fn authentication(ours: &ProviderOffer, theirs: &ProviderOffer) -> Option<Because> {
    let authenticates = |offer: &ProviderOffer| {
        offer.net.is_some_and(|net| net.extensions & NetEnd::AUTHENTICATED != 0)
    };
    let (side, other, name) = match (authenticates(ours), authenticates(theirs)) {
        (true, false) => ("collector", "source", &theirs.name),
        (false, true) => ("source", "collector", &ours.name),
        (true, true) | (false, false) => return None,
    };
    Because::new(
        format!("the {side} takes authenticated packets only, and the {other}'s {name} sends none"),
        format!("start the {other} with --authenticate too, or the {side} without"),
    )
}

fn reach(
    collector: &Host,
    source: &SourceFacts<'_>,
    here: IpAddr,
    there: IpAddr,
) -> Option<Because> {
    let one_host = source.host.boot_id == collector.boot_id && source.host.netns == collector.netns;
    if one_host {
        return None;
    }
    if let Some(seen) = source.seen
        && seen != there
    {
        return Because::new(
            format!(
                "the source has address {there} and comes from {seen}: \
                 an address translation (NAT) lies between, and RoCEv2 does not pass it"
            ),
            "give the source an address of the network (for a container: --network host)",
        );
    }
    if here.is_loopback() || there.is_loopback() {
        return Because::new(
            format!(
                "a loopback address does not leave its host (source {there}, collector {here})"
            ),
            "connect to an address of the collector's network device",
        );
    }
    None
}

/// Returns the path MTU for a pair: the smaller of both, and below what was tried without success.
/// `None` for a pair without packets.
pub(super) fn path_mtu(
    ours: &ProviderOffer,
    theirs: &ProviderOffer,
    failed: &[&FailedPath],
) -> Result<Option<u32>, Because> {
    let ends = ours.net.zip(theirs.net);
    let Some(mut mtu) = ends.map(|(ours, theirs)| ours.path_mtu.min(theirs.path_mtu)) else {
        return match failed.first() {
            Some(failed) => Err(tried(failed)),
            None => Ok(None),
        };
    };
    for failed in failed {
        match failed.path.path_mtu.map(smaller) {
            None | Some(None) => return Err(tried(failed)),
            Some(Some(smaller)) => mtu = mtu.min(smaller),
        }
    }
    Ok(Some(mtu))
}

fn tried(failed: &FailedPath) -> Because {
    Because {
        reason: failed.reason.clone(),
        remedy: "fix the network between the two; the reason says where to look".to_owned(),
        may_pass: true,
    }
}

/// Returns the path MTU to try after this one: from jumbo packets straight to what every Ethernet
/// carries.
fn smaller(path_mtu: u32) -> Option<u32> {
    match path_mtu {
        2048.. => Some(1024),
        1024.. => Some(512),
        512.. => Some(256),
        _ => None,
    }
}
