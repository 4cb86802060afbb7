//! Collectors that stand still for a while, or cannot store: sources go on afterwards, and nothing is lost.
use crate::common::{
    Collector, INPUT, Running, check_synthetic, collecting, finish, frames, send, signal,
    wait_for_frames,
};
use catchment_netns::wait_until;
use rustix::process::Signal;
use std::fs;

const SOURCES: usize = 12;
const FRAMES: usize = 400;

/// Attempts that their sources gave up and that still wait in the collector's queue: connections to this
/// port of which the other end is closed and this one is nobody's yet.
fn given_up(port: u16) -> usize {
    const CLOSE_WAIT: &str = "08";
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let waits = |line: &&str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        cells[1].ends_with(&format!(":{port:04X}")) && cells[3] == CLOSE_WAIT && cells[9] == "0"
    };
    table.lines().skip(1).filter(waits).count()
}

#[test]
fn a_collector_that_stands_still_for_long_loses_no_source_and_no_frame() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    // A short lease: sources soon notice.
    let collector = Collector::start_with("127.0.0.1:0", &["--out", out, "--lease", "1"]);
    let count = FRAMES.to_string();
    let words = ["--rate", "40", "--frames", &count];
    let source = |i: usize| {
        Running::start(send(INPUT, &format!("cam{i}"), &collector.address, &words).arg("--json"))
    };
    let sources: Vec<_> = (0..SOURCES).map(source).collect();
    (0..SOURCES).for_each(|i| wait_for_frames(dir.path(), &format!("cam{i}"), 1));
    signal(collector.id(), Signal::STOP);
    let port = collector.address.rsplit_once(':').unwrap().1.parse().unwrap();
    // Each source gives up two attempts at least, and is at another one.
    wait_until("attempts are given up", || given_up(port) >= 2 * SOURCES);
    signal(collector.id(), Signal::CONT);
    for (i, source) in sources.into_iter().enumerate() {
        let sent = source.finish().expect(0).last_json();
        assert_eq!(
            (&sent["frames_sent"], &sent["frames_undelivered"]),
            (&FRAMES.into(), &0.into())
        );
        check_synthetic(dir.path(), &format!("cam{i}"), 0, INPUT, FRAMES);
    }
    let summary = collector.end();
    assert_eq!(summary["frames_lost"], 0, "{summary:#}");
    assert_eq!(summary["frames_received"], SOURCES * FRAMES, "{summary:#}");
}

#[test]
fn a_source_is_told_that_its_collector_cannot_store() {
    let (dir, collector) = collecting();
    let words = ["--rate", "10", "--frames", "60"];
    let source = Running::start(&mut send(INPUT, "cam", &collector.address, &words));
    wait_for_frames(dir.path(), "cam", 5);
    // A directory in the place of a frame that is still to come.
    let obstacle = |next: usize| dir.path().join("cam").join(format!("{next:012}"));
    let obstacle = (0..60).map(obstacle).filter(|path| !path.exists()).nth(20).unwrap();
    fs::create_dir(&obstacle).unwrap();
    wait_until("the source says it", || {
        source.said().contains("the collector cannot store frames")
    });
    assert!(source.said().contains("device cam: cannot"), "the reason is missing");
    fs::remove_dir(&obstacle).unwrap();
    let finished = source.finish().expect(0);
    assert!(finished.stderr.contains("the collector stores frames again"), "{finished:#?}");
    check_synthetic(dir.path(), "cam", 0, INPUT, 60);
}

#[test]
fn a_source_waits_for_a_collector_that_cannot_open_its_device_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("cam"), "a file").unwrap();
    let collector = Collector::start(dir.path());
    let words = ["--wait", "2", "--frames", "1"];
    let finished = finish(&mut send(INPUT, "cam", &collector.address, &words)).expect(3);
    assert!(finished.stderr.contains("Not a directory"), "{finished:#?}");
    assert!(!finished.stderr.contains("no collector"), "{finished:#?}");
    assert!(frames(&dir.path().join("cam")).is_empty());
}
