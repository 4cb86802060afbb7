//! Applications through an agent, shortened: what is there, not how fast it is.
use super::{lines, run};
use catchment_netns::with_privilege;
use serde_json::Value;

const FIELDS: [&str; 27] = [
    "provider", "op", "bytes", "apps", "batch", "outstanding", "background", "ops_per_s",
    "bytes_per_s", "ops_ratio_to_raw", "latency_ns_p50", "latency_ns_p80", "latency_ns_p99",
    "added_ns_p50", "agent_ns_per_op", "cpu_percent_agent", "cpu_percent_apps", "queue_pairs",
    "registrations", "misrouted", "lost", "take_fraction", "schedule_fraction", "post_fraction",
    "complete_fraction", "command_fraction", "look_fraction",
];

/// Each row has every field, RAW and the agent the same cells over both devices; an agent's processor time and queue
/// pairs are its own; and every goal is there, held or not, or said to be unmeasured.
/// S5.26: what the agent takes is counted, and its core.
#[test]
fn an_application_through_an_agent_is_measured_beside_one_with_its_own_device() {
    with_privilege(
        "agent::an_application_through_an_agent_is_measured_beside_one_with_its_own_device",
        rows_and_goals_are_there,
    );
}

fn rows_and_goals_are_there() {
    let words = [
        "agent", "--json", "--runs", "1", "--seconds", "0.02", "--bytes", "64,65536", "--windows",
        "2", "--window-seconds", "0.05",
    ];
    let lines = lines(&run(&words));
    assert_eq!((&lines[0]["what"], &lines[0]["form"]), (&"run".into(), &"--quick".into()));
    let of = |what: &str| lines.iter().filter(|line| line["what"] == what).collect::<Vec<_>>();
    let raw = of("raw");
    let count = |provider: &str| raw.iter().filter(|row| row["provider"] == provider).count();
    assert_eq!(count("shm"), 8, "two operations, two sizes, one or 64 at once");
    assert_eq!(count("roce"), 4, "WRITEs of two sizes, one or 64 at once");
    for (what, raw, agent) in ["justitia", "drum", "unlimited"].iter().flat_map(|what| {
        let agent = of(what);
        assert_eq!(agent.len(), raw.len(), "{what}");
        raw.iter().zip(agent).map(move |(raw, agent)| (what, *raw, agent))
    }) {
        for row in [raw, agent] {
            let lacking = FIELDS.iter().find(|field| row.get(**field).is_none());
            assert_eq!(lacking, None, "{row}");
            assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(row["latency_ns_p50"].is_null(), row["outstanding"] != 1, "{row}");
        }
        let cell = ["provider", "op", "bytes", "outstanding"];
        assert!(cell.iter().all(|field| raw[field] == agent[field]), "{what}: {raw} {agent}");
        assert!(raw["agent_ns_per_op"].is_null() && raw["queue_pairs"].is_null(), "{raw}");
        // Of few requests in a short time it may be under what the kernel counts in.
        assert!(agent["agent_ns_per_op"].as_f64().unwrap() >= 0.0, "{agent}");
        let parts = ["take", "schedule", "post", "complete", "command", "look"];
        let part = |step: &str| agent[format!("{step}_fraction")].as_f64();
        let parts = parts.map(|step| part(step).unwrap_or_else(|| panic!("{step}: {agent}")));
        assert!((parts.iter().sum::<f64>() - 1.0).abs() < 0.001, "{agent}");
        // One agent has both ends over shared memory, each its own over a network.
        // JUSTITIA's agents have one each, and one for probes.
        let ends = if agent["provider"] == "shm" || *what == "justitia" { 2 } else { 1 };
        assert_eq!(agent["queue_pairs"], ends, "{agent}");
    }
    // SHARE beside RAW, over both devices.
    for what in ["share", "shared"] {
        let rows = of(what);
        assert_eq!(rows.len(), raw.len(), "{what}");
        for (row, raw) in rows.iter().zip(&raw) {
            let cell = ["provider", "op", "bytes", "outstanding"];
            assert!(cell.iter().all(|field| raw[field] == row[field]), "{raw} {row}");
            assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(row["queue_pairs"], 1, "{row}");
        }
    }
    assert!(of("cache-line")[0]["latency_ns_p50"].as_f64().unwrap() > 0.0);
    crowds_are_there(&lines);
    let goals = of("goal");
    let judged = goals.iter().filter(|goal| goal["held"].is_boolean()).count();
    // Of WRITE and SEND, and of WRITE over a network: both depths from 64 KiB, the deep one at 64 bytes; and what a WRITE
    // takes longer over each. How long new rates take: on one host, and time and rounds of two changes on two, by either way of their rounds.
    // Of crowds: four of each row of the agent's shares and two beside a rival's, three of connections, two of requests. RAW alone at both depths. Whether each row of
    // shared queue pairs stands still.
    assert_eq!(judged, 16 + 17 + 4 + 2 + of("shared").len(), "{goals:?}");
    assert!(
        goals.iter().filter(|goal| goal["held"].is_null()).all(|goal| goal["why_not"].is_string())
    );
}

/// Regions in memory chunks need no registration, those of memfds one, of each size over both devices.
#[test]
fn regions_are_made_of_memfds_and_in_memory_chunks() {
    let lines = lines(&run(&["agent", "--json", "--regions", "--runs", "1"]));
    let rows: Vec<_> = lines.iter().filter(|line| line["what"] == "region").collect();
    assert_eq!(rows.len(), 2 * 3 * 3, "devices, sizes, kinds");
    for row in &rows {
        let expected = if row["of"] == "memfd" { 1.0 } else { 0.0 };
        assert_eq!(row["registrations"], expected, "{row}");
        for field in ["made_us_p50", "made_us_p99", "ended_us_p50", "regions"] {
            assert!(row[field].as_f64().unwrap() > 0.0, "{field}: {row}");
        }
    }
    let goals = lines.iter().filter(|line| line["what"] == "goal");
    assert_eq!(goals.count(), 2 * rows.len() * 2 / 3);
}

/// Fifty applications that come and go, with a line and without, beside RAW and JUSTITIA; connections from none to 1,000; and of the requests of a
/// hundred applications, none that went astray.
fn crowds_are_there(lines: &[Value]) {
    let of = |what: &str| lines.iter().filter(|line| line["what"] == what).collect::<Vec<_>>();
    let fairness = of("fairness");
    let modes: Vec<&Value> = fairness.iter().map(|row| &row["mode"]).collect();
    assert_eq!(modes, ["drum", "raw", "drum", "justitia"]);
    for row in fairness {
        let counts = ["apps", "windows", "changes"].map(|field| row[field].as_u64().unwrap());
        let windows = if row["mode"] == "drum" { 2 } else { 1 };
        assert_eq!(counts, [50, windows, windows], "{row}");
        assert!(row["capacity_used"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["left_out_ms_mean"].as_f64().unwrap() >= 20.0, "{row}");
        assert!(row["error_by_weight_p99"].as_f64().unwrap() >= 0.0, "{row}");
        assert_eq!(row["error_p99"].is_null(), row["mode"] == "raw", "it decides nothing: {row}");
    }
    let connections = of("connections");
    let counts: Vec<&Value> = connections.iter().map(|row| &row["connections"]).collect();
    assert_eq!(counts, [0, 250, 250, 1000, 1000, 1000]);
    // Both ends of each, until connections of two hosts share few.
    let queue_pairs: Vec<u64> =
        connections.iter().map(|row| row["queue_pairs"].as_u64().unwrap()).collect();
    assert_eq!(queue_pairs[..5], [0, 500, 500, 2000, 2000]);
    assert!(queue_pairs[5] < 100, "{queue_pairs:?}");
    let routing = of("routing")[0];
    assert_eq!((&routing["apps"], &routing["queue_pairs"]), (&100.into(), &13.into()));
    assert_eq!((&routing["misrouted"], &routing["lost"]), (&0.into(), &0.into()));
    assert!(routing["requests"].as_u64().unwrap() >= 100_000, "{routing}");
}
