//! The beam-diagnostics paper's client and server beside TCP, shortened.
use super::{Folder, bench, errors, rows};
use serde_json::Value;
use std::fs;

const SCENARIO: &str = r#"
id = "E9.4"
title = "Short"
source = "nowhere"
method = "As it comes."
workload = "duplex"
[[measure]]
providers = ["shm"]
mechanisms = ["duplex", "duplex-tcp"]
blocks = [4]
wait = "doorbell"
quick = { bytes = [2, 65536], restarts = 2, count = 50 }
full = { bytes = [2] }
[[claim]]
id = "E9.4.1"
registered = { commit = "26eeeb07", date = "2026-11-22" }
claim = "Latency by TCP's"
providers = ["shm"]
metric = "latency_ns_mean"
mechanism = "duplex"
over = "duplex-tcp"
take = "most"
report = true
"#;

/// Both have the same sizes, trials, buffers and threads, every byte of a twin run was compared at both ends,
/// and the processor time of each thread is told (S3.15).
#[test]
fn s3_15_client_and_server_are_measured_beside_tcp_with_the_same_threads() {
    let folder = Folder::new("duplex");
    let file = folder.0.join("short.toml");
    fs::write(&file, SCENARIO).unwrap();
    let output = bench(&["papers", "--quick", "--json", "--realtime", "off", "--scenario"])
        .arg(&file)
        .arg("--out")
        .arg(&folder.0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let line: Value = serde_json::from_slice(output.stdout.trim_ascii()).unwrap();
    assert!(line["measured"].as_f64().unwrap() > 0.0, "{line}");
    // Nobody spins, so nobody's share of a core was watched.
    assert!(line["disturbed"].is_null() && line["held"].is_null(), "{line}");
    let rows = rows(&folder, "e9.4");
    for mechanism in ["duplex", "duplex-tcp"] {
        for bytes in [2, 65_536] {
            let of = |metric: &str, variant: Option<&str>| {
                let found = rows.iter().find(|row| {
                    row["mechanism"] == mechanism
                        && row["bytes"] == bytes
                        && row["metric"] == metric
                        && row["variant"].as_str() == variant
                });
                found.unwrap_or_else(|| panic!("no {metric} {variant:?} of {mechanism}, {bytes}"))
            };
            let number = |metric: &str| of(metric, None)["median"].as_f64().unwrap();
            assert_eq!(number("trials"), 50.0);
            let latency = of("latency_ns_mean", None);
            assert_eq!((&latency["samples"], &latency["restarts"]), (&2.into(), &2.into()));
            // 32 at each of two ends, in two pairs of processes.
            assert_eq!(latency["verified_blocks"], 128, "{latency}");
            assert!(number("latency_ns") > 0.0 && number("bytes_per_s") > 0.0);
            assert!(number("latency_ns_p99") >= number("latency_ns"));
            for end in ["client", "server"] {
                for role in ["program", "sq", "cq", "rq"] {
                    let cost = of("thread_cpu_s_per_gb", Some(&format!("{end} {role}")));
                    assert!(cost["median"].as_f64().unwrap() > 0.0, "{cost}");
                }
            }
        }
    }
}
