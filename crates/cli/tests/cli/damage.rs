//! Frames that another process of this user damages in shared memory, between their source and the sink.
use crate::common::{Collector, Running, frames, send, signal, wait_for_frames};
use catchment_netns::wait_until;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

const FRAME_BYTES: usize = 64 * 64;
const DAMAGED: u64 = 7;

/// Where a frame of such bytes lies in the shared memory of a process.
fn find(process: u32, memory: &File, byte: u8) -> Vec<u64> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let shared = maps.lines().filter(|line| line.contains(" rw-s ") && line.contains("catchment"));
    let mut found = Vec::new();
    for line in shared {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let mut copy = vec![0; (to - from) as usize];
        memory.read_exact_at(&mut copy, from).unwrap();
        let is_frame = |at: &usize| copy[*at..].iter().take(FRAME_BYTES).all(|b| *b == byte);
        let places = (0..=copy.len().saturating_sub(FRAME_BYTES)).step_by(64).filter(is_frame);
        found.extend(places.map(|at| from + at as u64));
    }
    found
}

#[test]
fn a_damaged_frame_is_lost_at_both_ends_and_delivered_at_none() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let collector = Collector::start_with("127.0.0.1:0", &["--out", out, "--lease", "60"]);
    let words = ["--format", "64x64:gray", "--rate", "max", "--require", "shm", "--json"];
    let mut command = send("raw:-", "cam", &collector.address, &words);
    let mut source = Running::start(command.stdin(std::process::Stdio::piped()));
    let mut input = source.stdin().unwrap();
    input.write_all(&[0x11; FRAME_BYTES]).unwrap();
    wait_for_frames(dir.path(), "cam", 1);
    // The frames that come now wait in the ring.
    signal(collector.id(), Signal::STOP);
    for _ in 0..DAMAGED {
        input.write_all(&[0xa7; FRAME_BYTES]).unwrap();
    }
    let path = format!("/proc/{}/mem", collector.id());
    let memory = File::options().read(true).write(true).open(path).unwrap();
    let mut places = Vec::new();
    wait_until("all frames are in the ring", || {
        places = find(collector.id(), &memory, 0xa7);
        places.len() as u64 == DAMAGED
    });
    for place in places {
        memory.write_all_at(&[0x5a], place + 1000).unwrap();
    }
    drop(input);
    signal(collector.id(), Signal::CONT);
    let sent = source.finish().expect(1);
    assert!(sent.stderr.contains("7 frames are lost"), "{sent:#?}");
    assert!(!sent.stdout.contains("all delivered"), "{sent:#?}");
    assert_eq!(sent.last_json()["frames_undelivered"], DAMAGED);
    let summary = collector.end_with(1);
    for (field, value) in [("received", 1), ("lost", DAMAGED)] {
        assert_eq!(summary[format!("frames_{field}")], value, "{summary:#}");
    }
    assert_eq!(summary["checksum_errors"], DAMAGED, "{summary:#}");
    assert_eq!(frames(&dir.path().join("cam")), ["000000000000"]);
}
