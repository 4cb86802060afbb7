//! The metrics of paths, sessions and RoCEv2 devices.
use super::{Labels, Text, metrics};
use crate::network::{RoceSnapshot, SessionSnapshot};
use crate::snapshot::PathSnapshot;

metrics! { ROCE of |d: &RoceSnapshot|
    gauge "catchment_roce_queue_pairs" = d.queue_pairs as f64 => "Queue pairs now.";
    counter "catchment_roce_packets_sent_total" = d.packets_sent as f64 =>
        "Packets sent, acknowledgements and those sent again too.";
    counter "catchment_roce_sent_bytes_total" = d.bytes_sent as f64 => "Bytes of the packets sent.";
    counter "catchment_roce_packets_received_total" = d.packets_received as f64 =>
        "Packets received.";
    counter "catchment_roce_received_bytes_total" = d.bytes_received as f64 =>
        "Bytes of the packets received.";
    counter "catchment_roce_packets_retransmitted_total" = d.retransmitted as f64 =>
        "Request packets sent again.";
    counter "catchment_roce_packets_lost_total" = d.lost as f64 =>
        "Packets found lost by later ones that arrived.";
    counter "catchment_roce_packets_spurious_total" = d.spurious as f64 =>
        "Packets sent again that had arrived.";
    counter "catchment_roce_timeouts_total" = d.timeouts as f64 => "Retransmission timeouts.";
    counter "catchment_roce_sequence_naks_sent_total" = d.sequence_naks_sent as f64 =>
        "NAKs sent for a gap in the sequence.";
    counter "catchment_roce_sequence_naks_received_total" = d.sequence_naks_received as f64 =>
        "NAKs received for a gap in the sequence.";
    counter "catchment_roce_packets_duplicate_total" = d.duplicates as f64 =>
        "Packets received twice.";
    counter "catchment_roce_packets_out_of_order_total" = d.out_of_order as f64 =>
        "Packets received before an earlier one.";
    counter "catchment_roce_cnps_received_total" = d.cnps_received as f64 =>
        "Congestion notifications received.";
    counter "catchment_roce_packets_refused_total" = d.refused_packets as f64 =>
        "Packets that the kernel refused to send.";
}

impl Text {
    pub(super) fn paths(&mut self, paths: &[PathSnapshot]) {
        let name = "catchment_path_info";
        self.head(
            name,
            "gauge",
            "Open sessions by the providers of both sides and the reason for them.",
        );
        for path in paths {
            let labels = vec![
                ("provider", path.provider.clone()),
                ("source_provider", path.source_provider.clone()),
                ("reason", path.reason.clone()),
            ];
            self.line(name, &labels, path.sessions_open as f64);
        }
    }

    pub(super) fn sessions<'a>(&mut self, sessions: impl Iterator<Item = &'a SessionSnapshot>) {
        let name = "catchment_session_info";
        self.head(
            name,
            "gauge",
            "Always 1; the labels are the ends of a session and how they are connected.",
        );
        for session in sessions {
            self.line(name, &ends(session), 1.0);
        }
    }

    pub(super) fn roce(&mut self, devices: &[RoceSnapshot]) {
        let device = |d: &RoceSnapshot| vec![("roce_device", d.device.clone())];
        self.table(ROCE, devices, device);
        let name = "catchment_roce_packets_dropped_total";
        self.head(name, "counter", "Packets received and dropped, by reason.");
        for one in devices {
            for (reason, &packets) in &one.dropped {
                let mut labels = device(one);
                labels.push(("reason", reason.clone()));
                self.line(name, &labels, packets as f64);
            }
        }
    }
}

fn ends(session: &SessionSnapshot) -> Labels {
    let mtu = session.path_mtu.map(|mtu| mtu.to_string());
    vec![
        ("peer", session.peer.clone()),
        ("provider", session.provider.clone()),
        ("source_provider", session.source_provider.clone()),
        ("collector_gid", session.collector_gid.clone()),
        ("source_gid", session.source_gid.clone()),
        ("path_mtu", mtu.unwrap_or_default()),
        ("recovery", session.recovery.clone().unwrap_or_default()),
    ]
}
