//! The measurement of packets as its users run it, shortened.
use super::{Folder, bench, errors, lines};
use catchment_netns::with_privilege;
use serde_json::Value;

#[test]
fn ours_and_bare_udp_are_measured_between_two_namespaces() {
    with_privilege("roce::ours_and_bare_udp_are_measured_between_two_namespaces", || {
        for family in [&[][..], &["--ipv4"]] {
            let output = bench(&["roce", "--json", "--no-iperf3", "--rounds", "1"])
                .args(["--seconds", "0.2"])
                .args(family)
                .output()
                .unwrap();
            let lines = lines(&output);
            assert!(lines[0]["environment"]["cores"].as_u64().unwrap() > 0);
            let row = |what: &str, op: &str, path_mtu: u64, polling: Option<&str>| {
                let path_mtu = (path_mtu > 0).then_some(path_mtu);
                let is_it = |line: &&Value| {
                    line["what"] == what
                        && line["op"] == op
                        && line["path_mtu"].as_u64() == path_mtu
                        && line["polling"].as_str() == polling
                };
                let found = lines.iter().find(is_it);
                found
                    .unwrap_or_else(|| panic!("no {what} {op} {path_mtu:?} {polling:?}: {lines:?}"))
            };
            let streams = [
                // TCP cuts as it likes.
                ("tcp", "stream", 0),
                ("ours", "write-again", 4096),
                ("bare-udp", "write", 4096),
                ("bare-udp", "write", 1024),
                ("ours", "write", 4096),
                ("ours", "write", 1024),
                ("ours", "read", 4096),
                ("ours", "send", 4096),
                ("ours", "write-rate", 4096),
            ];
            for (what, op, path_mtu) in streams {
                let line = row(what, op, path_mtu, None);
                for name in ["bytes_per_s", "cpu_s_per_gb_sender", "cpu_s_per_gb_receiver"] {
                    assert!(line[name].as_f64().unwrap() > 0.0, "{line}");
                }
            }
            for (what, polling) in [
                ("bare-udp", Some("receiving thread")),
                ("bare-udp", Some("inline polling")),
                ("ours", Some("engine thread")),
                ("ours", Some("inline polling")),
            ] {
                let line = row(what, "write-latency", 4096, polling);
                assert!(line["latency_ns_p50"].as_f64().unwrap() > 100.0);
            }
            let goals = lines.iter().filter(|line| line["what"] == "goal");
            // Those that need no iperf3.
            assert_eq!(goals.count(), 7);
        }
    });
}

#[test]
fn without_iperf3_its_row_is_left_out_with_a_note() {
    with_privilege("roce::without_iperf3_its_row_is_left_out_with_a_note", || {
        // Namespaces need `ip`, and nothing else is there.
        let tools = Folder::new("tools");
        let path = std::env::var_os("PATH").unwrap();
        let mut ip = std::env::split_paths(&path).map(|folder| folder.join("ip"));
        let ip = ip.find(|ip| ip.exists()).unwrap();
        std::os::unix::fs::symlink(ip, tools.0.join("ip")).unwrap();
        let output =
            bench(&["roce", "--json", "--only", "iperf3"]).env("PATH", &tools.0).output().unwrap();
        let (lines, errors) = (lines(&output), errors(&output));
        assert!(errors.contains("apt-get install iperf3"), "{errors}");
        assert_eq!(lines.len(), 1, "the machine alone: {lines:?}");
    });
}
