//! Applications through an agent, shortened: what is there, not how fast it is.
use super::{lines, run};
use serde_json::Value;

const FIELDS: [&str; 21] = [
    "provider", "op", "bytes", "apps", "batch", "outstanding", "background", "ops_per_s",
    "bytes_per_s", "ops_ratio_to_raw", "latency_ns_p50", "latency_ns_p80", "latency_ns_p99",
    "added_ns_p50", "agent_ns_per_op", "cpu_percent_agent", "cpu_percent_apps", "queue_pairs",
    "registrations", "misrouted", "lost",
];

/// Each row has every field, RAW and the agent the same cells; an agent's processor time and queue pairs are
/// its own; and every goal is there, held or not, or said to be unmeasured.
#[test]
fn an_application_through_an_agent_is_measured_beside_one_with_its_own_device() {
    let words = [
        "agent", "--json", "--runs", "1", "--seconds", "0.02", "--bytes", "64,65536", "--windows",
        "2", "--window-seconds", "0.05",
    ];
    let lines = lines(&run(&words));
    assert_eq!((&lines[0]["what"], &lines[0]["form"]), (&"run".into(), &"--quick".into()));
    let of = |what: &str| lines.iter().filter(|line| line["what"] == what).collect::<Vec<_>>();
    let (raw, drum) = (of("raw"), of("drum"));
    assert_eq!((raw.len(), drum.len()), (8, 8), "two operations, two sizes, one or 64 at once");
    for (raw, drum) in raw.iter().zip(&drum) {
        for row in [raw, drum] {
            let lacking = FIELDS.iter().find(|field| row.get(**field).is_none());
            assert_eq!(lacking, None, "{row}");
            assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(row["latency_ns_p50"].is_null(), row["outstanding"] != 1, "{row}");
        }
        let same = ["op", "bytes", "outstanding"].iter().all(|field| raw[field] == drum[field]);
        assert!(same, "{raw} {drum}");
        assert!(raw["agent_ns_per_op"].is_null() && raw["queue_pairs"].is_null(), "{raw}");
        assert!(drum["agent_ns_per_op"].as_f64().unwrap() > 0.0, "{drum}");
        assert_eq!(drum["queue_pairs"], 2, "one at each end: {drum}");
    }
    assert!(of("cache-line")[0]["latency_ns_p50"].as_f64().unwrap() > 0.0);
    let fairness = of("fairness");
    let apps: Vec<&Value> = fairness.iter().map(|row| &row["apps"]).collect();
    assert_eq!(apps, [2, 3, 4]);
    let windows =
        |row: &&Value| row["windows"].as_u64().unwrap() + row["windows_left_out"].as_u64().unwrap();
    assert!(fairness.iter().all(|row| windows(row) == 2), "{fairness:?}");
    let goals = of("goal");
    let judged = goals.iter().filter(|goal| goal["held"].is_boolean()).count();
    // Of WRITE and SEND: both depths from 64 KiB, the deep one at 64 bytes; and what a WRITE takes longer.
    assert_eq!(judged, 7, "{goals:?}");
    assert!(
        goals.iter().filter(|goal| goal["held"].is_null()).all(|goal| goal["why_not"].is_string())
    );
}
