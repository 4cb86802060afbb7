//! The measurement of packets as its users run it, shortened.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
use catchment_netns::with_privilege;
use serde_json::Value;
use std::process::Command;

#[test]
fn bare_udp_is_measured_between_two_namespaces() {
    with_privilege("bare_udp_is_measured_between_two_namespaces", || {
        for family in [&[][..], &["--ipv4"]] {
            let output = Command::new(env!("CARGO_BIN_EXE_catchment-bench"))
                .args(["roce", "--json", "--no-iperf3", "--rounds", "1"])
                .args(["--seconds", "0.2"])
                .args(family)
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
            let text = String::from_utf8(output.stdout).unwrap();
            let lines: Vec<Value> = text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            assert!(lines[0]["environment"]["cores"].as_u64().unwrap() > 0);
            let cells: Vec<_> = lines[1..]
                .iter()
                .map(|line| {
                    (
                        line["path_mtu"].as_u64().unwrap(),
                        line["bytes"].as_u64().unwrap(),
                    )
                })
                .collect();
            assert_eq!(cells, [(4096, 1 << 20), (1024, 1 << 20), (4096, 64)]);
            for line in &lines[1..3] {
                for name in [
                    "bytes_per_s",
                    "cpu_s_per_gb_sender",
                    "cpu_s_per_gb_receiver",
                ] {
                    assert!(line[name].as_f64().unwrap() > 0.0, "{line}");
                }
            }
            assert!(lines[3]["latency_ns_p50"].as_f64().unwrap() > 100.0);
        }
    });
}
