//! Describes sessions and devices of other crates as snapshots of the metrics.
use catchment_observe::{RoceSnapshot, SessionSnapshot};
use catchment_provider_roce::{DeviceCounters, DropReason};
use catchment_session::message::SessionPath;
use catchment_session::path::Recovery;
use catchment_verbs::Endpoint;
use std::collections::BTreeMap;

/// Returns what there is to see of a session over `path` between the endpoints of source and
/// collector.
pub fn describe(
    path: &SessionPath,
    (source, collector): (Endpoint, Endpoint),
    reason: &str,
) -> SessionSnapshot {
    // That of shared memory is a secret of the two sides.
    let gid = |end: Endpoint| {
        if path.is_network() { end.gid.to_string() } else { end.gid.redacted() }
    };
    let address = |end: Endpoint| path.is_network().then(|| end.gid.ip().to_string());
    let recovery = Recovery::of(source.net, collector.net);
    SessionSnapshot {
        collector_gid: gid(collector),
        source_gid: gid(source),
        collector_qpn: collector.qpn,
        source_qpn: source.qpn,
        collector_address: address(collector),
        source_address: address(source),
        path_mtu: path.path_mtu,
        recovery: recovery.map(|recovery| recovery.as_str().to_owned()),
        ..SessionSnapshot::new(&path.collector, &path.source, reason)
    }
}

/// Returns what there is to see of the RoCEv2 device that listens at `device`.
pub(super) fn roce_snapshot(device: String, counters: &DeviceCounters) -> RoceSnapshot {
    let protocol = &counters.protocol;
    let mut dropped: BTreeMap<String, u64> = DropReason::ALL
        .into_iter()
        .map(|reason| (reason.name().to_owned(), counters.dropped(reason)))
        .collect();
    // Those that a queue pair dropped: answers to nothing that it asked.
    dropped.insert("not_expected".to_owned(), protocol.dropped);
    dropped.insert("truncated".to_owned(), counters.received.truncated);
    // What a third host forged, as far as it shows.
    dropped.insert("forged_nak".to_owned(), protocol.forged_naks);
    dropped.insert("ignored_cnp".to_owned(), protocol.cnps_ignored);
    dropped.retain(|_, packets| *packets > 0);
    RoceSnapshot {
        device,
        queue_pairs: counters.queue_pairs,
        packets_sent: counters.sent.packets,
        bytes_sent: counters.sent.bytes,
        packets_received: counters.received.packets,
        bytes_received: counters.received.bytes,
        retransmitted: protocol.retransmitted,
        lost: protocol.lost,
        spurious: protocol.spurious,
        timeouts: protocol.timeouts,
        sequence_naks_received: protocol.sequence_naks_received,
        sequence_naks_sent: protocol.sequence_naks_sent,
        duplicates: protocol.duplicates,
        out_of_order: protocol.out_of_order,
        cnps_received: protocol.cnps_received,
        refused_packets: counters.sent.refused_packets,
        dropped,
        gso: counters.gso,
        gro: counters.gro,
    }
}
