//! Frames over RoCEv2 without an RNIC: between two network namespaces, which stand for two hosts,
//! and on one host when a rule asks for it.
use crate::common::{
    Collector, Finished, Running, assert_same, catchment, check_synthetic, clip, decoded, demo,
    finish, run, send, signal, stream, wait_for_frames,
};
use catchment_netns::{VethPair, with_privilege};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;

const INPUT: &str = "synthetic:320x240:rgb24";
/// The usual MTU of Ethernet: path MTU 1024.
const MTU: u32 = 1500;

/// A collector in the left namespace. `address` is its own there.
fn collector(hosts: &VethPair, address: &str, out: &Path) -> Collector {
    let words = ["--insecure", "--out", out.to_str().unwrap()];
    let start = || Collector::start_with(address, &words);
    hosts.left.run(start).unwrap()
}

fn source(hosts: &VethPair, words: &[&str], collector: &str) -> Running {
    let start = || {
        let mut command = catchment();
        command.args(["send", "--json", "--insecure"]).args(words);
        Running::start(command.arg(collector))
    };
    hosts.right.run(start).unwrap()
}

/// Of the left host, in both families; the system chooses the port.
fn addresses() -> [String; 2] {
    [VethPair::LEFT_V4, VethPair::LEFT_V6].map(|ip| SocketAddr::new(ip, 0).to_string())
}

fn summary_over_roce(collector: Collector) -> Value {
    let summary = collector.end();
    assert_eq!(summary["provider"], "roce", "{summary:#}");
    assert_eq!(summary["frames_lost"], 0, "{summary:#}");
    summary
}

#[test]
fn a_clip_arrives_on_another_host_as_ffmpeg_decodes_it() {
    with_privilege("roce::a_clip_arrives_on_another_host_as_ffmpeg_decodes_it", || {
        let hosts = VethPair::new(MTU).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = clip(dir.path(), "clip.mp4", 7, 40);
        let expected = decoded(&path);
        for (i, address) in addresses().iter().enumerate() {
            let out = dir.path().join(i.to_string());
            let collector = collector(&hosts, address, &out);
            let words = ["--input", path.to_str().unwrap(), "--device", "cam0", "--rate", "max"];
            let words = [&words[..], &["--verbose"]].concat();
            let said = source(&hosts, &words, &collector.address).finish().expect(0).stderr;
            assert!(said.contains("RoCE path MTU 1024"), "{said}");
            assert_same(&stream(&out, "cam0"), &expected);
            let summary = summary_over_roce(collector);
            let reason = summary["provider_reason"].as_str().unwrap();
            assert!(reason.starts_with("RoCEv2 from "), "{reason}");
            for part in [
                "(roce), path MTU 1024, selective repeat; not shm",
                "not shm: the source is in another network namespace",
            ] {
                assert!(reason.contains(part), "{reason}");
            }
        }
    });
}

#[test]
fn many_devices_share_one_queue_pair_over_the_network() {
    with_privilege("roce::many_devices_share_one_queue_pair_over_the_network", || {
        let hosts = VethPair::new(9000).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let collector = collector(&hosts, &addresses()[0], dir.path());
        let devices: Vec<String> = (0..12).map(|i| format!("cam{i:02}")).collect();
        let mut words = vec!["--rate", "max", "--frames", "50"];
        for device in &devices {
            words.extend(["--input", INPUT, "--device", device]);
        }
        source(&hosts, &words, &collector.address).finish().expect(0);
        for (i, device) in devices.iter().enumerate() {
            check_synthetic(dir.path(), device, i, INPUT, 50);
        }
        assert_eq!(summary_over_roce(collector)["queue_pairs"], 1);
    });
}

#[test]
fn a_collector_killed_in_mid_stream_leaves_no_gap_over_the_network() {
    with_privilege("roce::a_collector_killed_in_mid_stream_leaves_no_gap_over_the_network", || {
        const FRAMES: usize = 400;
        let hosts = VethPair::new(MTU).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let first = collector(&hosts, &addresses()[0], dir.path());
        let address = first.address.clone();
        let frames = FRAMES.to_string();
        let words = ["--input", INPUT, "--device", "cam", "--rate", "200", "--frames", &frames];
        let source = source(&hosts, &words, &address);
        wait_for_frames(dir.path(), "cam", 60);
        first.kill();
        let second = collector(&hosts, &address, dir.path());
        let sent = source.finish().expect(0).last_json();
        assert!(sent["reconnects"].as_u64() >= Some(1), "{sent:#}");
        check_synthetic(dir.path(), "cam", 0, INPUT, FRAMES);
        summary_over_roce(second);
    });
}

#[test]
fn both_sides_say_once_that_frames_go_in_clear() {
    with_privilege("roce::both_sides_say_once_that_frames_go_in_clear", || {
        let hosts = VethPair::new(MTU).unwrap();
        let insecure = ["--insecure".to_owned()];
        for warning in warnings_in_clear(&hosts, &insecure, &insecure) {
            for words in ["send others in their place", "--authenticate", "WireGuard"] {
                assert!(warning.contains(words), "{warning}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let (out, name) = (dir.path().to_str().unwrap(), VethPair::LEFT_V4.to_string());
        run(["cert", "--out", out, "--name", &name, "--name", "camera"]).expect(0);
        let security = |name: &str| {
            let file = |name: &str| dir.path().join(name).display().to_string();
            let (cert, key, ca) =
                (file(&format!("{name}.pem")), file(&format!("{name}.key")), file("ca.pem"));
            [
                "--cert".to_owned(),
                cert,
                "--key".to_owned(),
                key,
                "--ca".to_owned(),
                ca,
                "--authenticate".to_owned(),
            ]
        };
        for warning in warnings_in_clear(&hosts, &security(&name), &security("camera")) {
            assert!(warning.contains("not change them"), "{warning}");
            assert!(!warning.contains("--authenticate"), "{warning}");
        }
    });
}

/// Lets two devices send, and returns the one warning of each of the three processes.
fn warnings_in_clear(hosts: &VethPair, collect: &[String], send: &[String]) -> Vec<String> {
    let address = SocketAddr::new(VethPair::LEFT_V4, 7117).to_string();
    let words = ["collect", "--sink", "null", "--no-dashboard", "--listen", &address];
    let start = || Running::start(catchment().args(words).args(collect));
    let collector = hosts.left.run(start).unwrap();
    let once = |finished: &Finished| {
        let warnings = finished.stderr.lines().filter(|line| line.contains("in clear"));
        let warnings: Vec<&str> = warnings.collect();
        assert_eq!(warnings.len(), 1, "{finished:#?}");
        warnings[0].to_owned()
    };
    let mut warnings = Vec::new();
    for device in ["one", "two"] {
        let words = ["send", "--input", INPUT, "--device", device, "--frames", "5"];
        let start = || Running::start(catchment().args(words).args(send).arg(&address));
        warnings.push(once(&hosts.right.run(start).unwrap().finish().expect(0)));
    }
    signal(collector.id(), rustix::process::Signal::TERM);
    warnings.push(once(&collector.finish().expect(0)));
    warnings
}

#[test]
fn injected_faults_cost_no_frame() {
    let tmp = tempfile::tempdir().unwrap();
    let faults = "drop=0.02,reorder=0.02,dup=0.02,corrupt=0.01,seed=3";
    let words = ["--json", "--seconds", "2", "--devices", "4", "--provider", "roce"];
    let mut demo = demo(tmp.path(), &words);
    let summary = finish(demo.args(["--fault", faults])).expect(0).last_json();
    assert_eq!(summary["frames_verified"], summary["frames_sent"], "{summary:#}");
    assert_eq!(summary["frames_lost"], 0, "{summary:#}");
    let wrong = run(["demo", "--provider", "roce", "--fault", "drop=2"]);
    refused(&wrong.expect(2), "a share is a number from 0 to 1");
}

fn refused(finished: &Finished, words: &str) {
    assert!(finished.stderr.contains(words), "{finished:#?}");
}

#[test]
fn rules_that_leave_nothing_are_refused_with_the_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["--forbid", "roce", "--out", dir.path().to_str().unwrap()];
    let collector = Collector::start_with("127.0.0.1:0", &words);
    let send = |words: [&str; 2]| {
        let mut command = send(INPUT, "cam", &collector.address, &words);
        finish(command.args(["--wait", "4"]))
    };
    let finished = send(["--provider", "roce"]);
    assert_ne!(finished.code, Some(0));
    refused(&finished, "roce at the collector: forbidden by the collector's rules");
    let finished = send(["--provider", "carrier-pigeon"]);
    assert_ne!(finished.code, Some(0));
    refused(&finished, "require names provider \"carrier-pigeon\", known: shm, ibverbs, roce");
    let finished = send(["--forbid", "shm,roce"]);
    assert_ne!(finished.code, Some(0));
    refused(&finished, "no provider can be used");
}
