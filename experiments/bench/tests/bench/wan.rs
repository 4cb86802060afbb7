//! The transmission controller between namespaces and over a relay, at a small scale: what is lost, not how fast it is.
use super::{lines, run};
use catchment_netns::with_privilege;

const FIELDS: [&str; 48] = [
    "what",
    "place",
    "method",
    "calibration",
    "pause",
    "scale",
    "nic_bps",
    "capacity_bps",
    "shaper_bps",
    "queue_bytes",
    "guard_us",
    "rtt_ms",
    "mix",
    "load",
    "load_drawn",
    "seeds",
    "seconds",
    "urgent_ms_p50",
    "urgent_ms_p95",
    "urgent_ms_p99",
    "tolerant_ms_p50",
    "tolerant_ms_p95",
    "tolerant_frame_ms_p95",
    "urgent_on_time",
    "tolerant_on_time_event",
    "tolerant_on_time_frame",
    "missed_told",
    "missed",
    "late_s_p99",
    "late_s_max",
    "jain_devices",
    "sequence_gaps",
    "operations_failed",
    "resent_fraction",
    "messages_per_event",
    "cpu_s_per_gb_collector",
    "cpu_s_per_gb_source",
    "cpu_controller",
    "cpu_us_per_grant",
    "cpu_cores",
    "on_time_simulated",
    "frames_not_there",
    "packets_missing",
    "segments_missing",
    "urgent_events",
    "keeps_order",
    "urgent_sending_ms_p95",
    "tolerant_sending_ms_p50",
];

/// Twelve sources share a link over a router; the controller grants all that goes over it, so no queue is ever full and
/// no frame is lost. 20 s of events, at a two-hundredth of the paper's rates. The queue takes what all may have begun
/// when a busy machine lets them run again after their windows; without a controller it is full in a moment. What both roles, the controller and softirq cost is in its row (S2.15).
#[test]
fn with_a_controller_the_router_drops_nothing_and_no_frame_is_lost() {
    with_privilege("wan::with_a_controller_the_router_drops_nothing_and_no_frame_is_lost", || {
        nothing_is_dropped("netns", &["--seconds", "20"]);
    });
}

/// The same where no namespaces are allowed: a thread is NICs and router between addresses of this host.
#[test]
fn over_a_relay_nothing_is_dropped_either() {
    nothing_is_dropped("relay", &["--relay", "--seconds", "10"]);
}

fn nothing_is_dropped(place: &str, more: &[&str]) {
    let words = ["wan", "--json", "--method", "deadline", "--load", "0.5", "--scale", "200"];
    let beyond = ["--guard-us", "5000", "--queue-kib", "1024"];
    let lines = lines(&run(&[&words[..], &beyond, more].concat()));
    assert_eq!((&lines[0]["what"], &lines[0]["sources"]), (&"run".into(), &12.into()));
    let row = &lines[1];
    assert_eq!(row["place"], place);
    let lacking = FIELDS.iter().find(|field| row.get(**field).is_none());
    assert_eq!(lacking, None, "{row}");
    for dropped in ["packets_dropped", "nic_packets_dropped", "frames_lost"] {
        assert_eq!(row[dropped], 0, "{dropped}: {row}");
    }
    // Packets are counted whatever way they take.
    assert!(row["resent_fraction"].as_f64().unwrap() <= 1.0, "{row}");
    assert!(row["transfers"].as_u64().unwrap() > 0, "{row}");
    let last = lines.last().unwrap();
    assert_eq!((&last["what"], &last["of"].is_u64()), (&"goals".into(), &true));
}
