//! Sources and collectors that come, go and come back.
use crate::common::{
    Collector, INPUT, Running, check_synthetic, collecting, finish, frames, send, signal,
    wait_for_frames,
};
use rustix::process::Signal;
use std::net::TcpListener;

/// An address that nobody listens on.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn source(address: &str, device: &str, words: &[&str]) -> Running {
    Running::start(send(INPUT, device, address, words).arg("--json"))
}

#[test]
fn two_sources_send_to_one_collector() {
    let (dir, collector) = collecting();
    let words = ["--rate", "max", "--frames", "200"];
    let one = source(&collector.address, "one", &words);
    let two = source(&collector.address, "two", &words);
    one.finish().expect(0);
    two.finish().expect(0);
    check_synthetic(dir.path(), "one", 0, INPUT, 200);
    check_synthetic(dir.path(), "two", 0, INPUT, 200);
    let summary = collector.end();
    assert_eq!(summary["queue_pairs"], 2, "{summary:#}");
    assert_eq!(summary["frames_lost"], 0, "{summary:#}");
}

#[test]
fn a_source_waits_for_its_collector() {
    let dir = tempfile::tempdir().unwrap();
    let address = free_address();
    let words = ["--frames", "20", "--rate", "max"];
    let source = Running::start(&mut send(INPUT, "early", &address, &words));
    // It says after a second that it waits; the collector must not come before.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let _collector = Collector::start_with(&address, &["--out", dir.path().to_str().unwrap()]);
    let finished = source.finish().expect(0);
    assert!(finished.stderr.contains("waiting for a collector"), "{finished:#?}");
    check_synthetic(dir.path(), "early", 0, INPUT, 20);
}

/// Three collectors at one address, each ended in mid-stream except for the last.
fn restart_collector(end: impl Fn(Collector)) {
    const FRAMES: usize = 600;
    let dir = tempfile::tempdir().unwrap();
    let address = free_address();
    let out = ["--out", dir.path().to_str().unwrap()];
    let frames = FRAMES.to_string();
    let source = source(&address, "cam", &["--rate", "150", "--frames", &frames]);
    for after in [40, 150] {
        let collector = Collector::start_with(&address, &out);
        wait_for_frames(dir.path(), "cam", after);
        end(collector);
    }
    let last = Collector::start_with(&address, &out);
    let sent = source.finish().expect(0).last_json();
    assert!(sent["reconnects"].as_u64() >= Some(1), "{sent:#}");
    check_synthetic(dir.path(), "cam", 0, INPUT, FRAMES);
    assert_eq!(last.end()["frames_lost"], 0);
}

#[test]
fn a_collector_that_is_killed_in_mid_stream_leaves_no_gap() {
    restart_collector(Collector::kill);
}

#[test]
fn a_collector_that_ends_in_mid_stream_leaves_no_gap() {
    restart_collector(|collector| drop(collector.end()));
}

#[test]
fn a_source_that_is_killed_goes_on_where_its_frames_ended() {
    let (dir, collector) = collecting();
    let first = source(&collector.address, "cam", &["--rate", "200"]);
    wait_for_frames(dir.path(), "cam", 30);
    first.kill();
    source(&collector.address, "cam", &["--rate", "200", "--frames", "50"]).finish().expect(0);
    let count = frames(&dir.path().join("cam")).len();
    assert!(count >= 80, "{count} frames");
    check_synthetic(dir.path(), "cam", 0, INPUT, count);
}

#[test]
fn a_source_that_is_asked_to_end_delivers_what_it_has() {
    let (dir, collector) = collecting();
    let source = source(&collector.address, "cam", &["--rate", "100"]);
    wait_for_frames(dir.path(), "cam", 5);
    signal(source.id(), Signal::TERM);
    let sent = source.finish().expect(0).last_json();
    let count = sent["frames_sent"].as_u64().unwrap() as usize;
    check_synthetic(dir.path(), "cam", 0, INPUT, count);
}

#[test]
fn a_device_that_may_not_wait_drops_its_newest_or_its_oldest_frames_and_counts() {
    let policies =
        [("drop-newest", "frames_dropped_newest"), ("drop-oldest", "frames_dropped_oldest")];
    for (policy, counter) in policies {
        drop_while_the_collector_stands(policy, counter);
    }
}

fn drop_while_the_collector_stands(policy: &str, counter: &str) {
    let (dir, collector) = collecting();
    let words = ["--rate", "500", "--policy", policy, "--seconds", "3"];
    let source = source(&collector.address, "cam", &words);
    wait_for_frames(dir.path(), "cam", 5);
    signal(collector.id(), Signal::STOP);
    // Long enough to fill the eight blocks of the ring at 500 frames a second.
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(collector.id(), Signal::CONT);
    let sent = source.finish().expect(0).last_json();
    let dropped = sent[counter].as_u64().unwrap();
    assert!(dropped > 0, "{sent:#}");
    let summary = collector.end();
    assert_eq!(summary["frames_lost"], 0, "{summary:#}");
    assert_eq!(summary["frames_received"], sent["frames_sent"], "{summary:#}");
    let skipped = summary["frames_skipped"].as_u64().unwrap();
    assert!((1..=dropped).contains(&skipped), "{dropped} dropped, {summary:#}");
    assert_eq!(summary[counter], dropped, "both ends count the same: {sent:#} {summary:#}");
    let names = frames(&dir.path().join("cam"));
    let last: usize = names.last().unwrap().parse().unwrap();
    assert!(last >= names.len(), "dropped frames leave their numbers out");
}

#[test]
fn the_same_device_from_two_sources_is_refused() {
    let (dir, collector) = collecting();
    let _first = source(&collector.address, "cam", &["--rate", "50"]);
    wait_for_frames(dir.path(), "cam", 1);
    let second = finish(&mut send(INPUT, "cam", &collector.address, &["--wait", "4"])).expect(3);
    assert!(second.stderr.contains("cam"), "{second:#?}");
}

#[test]
fn a_frame_may_be_larger_than_a_block() {
    let (dir, collector) = collecting();
    // 50 MB a frame; a block has at most 32 MiB.
    let input = "synthetic:4096x3072:rgba";
    let words = ["--frames", "3", "--rate", "max"];
    finish(&mut send(input, "big", &collector.address, &words)).expect(0);
    check_synthetic(dir.path(), "big", 0, input, 3);
}

#[test]
fn a_unix_socket_connects_them_too() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let socket = dir.path().join("c.sock");
    let address = format!("unix:{}", socket.display());
    let collector = Collector::start_with(&address, &["--out", out.to_str().unwrap()]);
    source(&address, "cam", &["--rate", "max", "--frames", "10"]).finish().expect(0);
    check_synthetic(&out, "cam", 0, INPUT, 10);
    collector.end();
    assert!(!socket.exists(), "the socket is removed at the end");
}
