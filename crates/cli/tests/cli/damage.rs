//! Frames that another process of this user damages in shared memory, between their source and the sink.
use crate::common::{
    Collector, Running, assert_same, frames, send, signal, stream, wait_for_frames,
};
use catchment_netns::wait_until;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{ChildStdin, Stdio};

const FRAME_BYTES: usize = 64 * 64;
/// With the 64 bytes behind the payload (docs/spec/block.md).
const BLOCK_BYTES: usize = FRAME_BYTES + 64;
const DAMAGED: u64 = 7;
const DAMAGED_BYTE: u8 = 0xa7;
const IN_PAYLOAD: u64 = 1000;
const IN_COMMIT_WORD: u64 = FRAME_BYTES as u64 + 56;

/// A collector that writes into a folder, and a source whose frames come from a pipe.
struct Ends {
    dir: tempfile::TempDir,
    collector: Collector,
    source: Running,
    input: ChildStdin,
}

impl Ends {
    /// Starts both, with such words more each, and waits until a first frame has been stored.
    fn start(of_collector: &[&str], of_source: &[&str], first: u8) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().to_str().unwrap();
        let words = [&["--out", out], of_collector].concat();
        let collector = Collector::start_with("127.0.0.1:0", &words);
        let words = [&["--format", "64x64:gray", "--rate", "max", "--json"], of_source].concat();
        let mut command = send("raw:-", "cam", &collector.address, &words);
        let mut source = Running::start(command.stdin(Stdio::piped()));
        let input = source.stdin().unwrap();
        let mut ends = Self { dir, collector, source, input };
        ends.send(first);
        wait_for_frames(ends.dir.path(), "cam", 1);
        ends
    }

    fn send(&mut self, byte: u8) {
        self.input.write_all(&[byte; FRAME_BYTES]).unwrap();
    }
}

/// Where a frame of such bytes lies in the shared memory of a process, in a block that is committed: its last
/// word was 0 in a ring that is new.
fn find(process: u32, memory: &File, byte: u8) -> Vec<u64> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let shared = maps.lines().filter(|line| line.contains(" rw-s ") && line.contains("catchment"));
    let mut found = Vec::new();
    for line in shared {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let mut copy = vec![0; (to - from) as usize];
        memory.read_exact_at(&mut copy, from).unwrap();
        let is_frame = |at: &usize| {
            let (frame, trailer) = copy[*at..][..BLOCK_BYTES].split_at(FRAME_BYTES);
            frame.iter().all(|b| *b == byte) && trailer[56..] != [0; 8]
        };
        let ends = (copy.len() + 1).saturating_sub(BLOCK_BYTES);
        let places = (0..ends).step_by(64).filter(is_frame);
        found.extend(places.map(|at| from + at as u64));
    }
    found
}

/// Stops all threads of a collector, which goes on for a moment after the signal.
fn stop(collector: &Collector) {
    signal(collector.id(), Signal::STOP);
    let has_stopped = |task: io::Result<fs::DirEntry>| {
        let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
        stat.is_ok_and(|stat| stat.rsplit_once(") ").unwrap().1.starts_with('T'))
    };
    let tasks = || fs::read_dir(format!("/proc/{}/task", collector.id())).unwrap();
    wait_until("all threads have stopped", || tasks().all(has_stopped));
}

/// Changes a byte of all frames of this byte that wait in a collector's ring, once all are there: the one
/// at `offset` from the first byte of each.
fn damage(collector: &Collector, byte: u8, frames: u64, offset: u64) {
    let path = format!("/proc/{}/mem", collector.id());
    let memory = File::options().read(true).write(true).open(path).unwrap();
    let mut places = Vec::new();
    wait_until("all frames are in the ring", || {
        places = find(collector.id(), &memory, byte);
        places.len() as u64 == frames
    });
    for place in places {
        let mut byte = [0];
        memory.read_exact_at(&mut byte, place + offset).unwrap();
        memory.write_all_at(&[!byte[0]], place + offset).unwrap();
    }
}

/// The source fills them in memory of its own: it still has what is damaged at the collector.
#[test]
fn damaged_frames_that_the_source_still_has_arrive_as_they_were_sent() {
    for words in [["--require", "shm", "--no-in-place"].as_slice(), &["--require", "roce"]] {
        let mut ends = Ends::start(&[], words, 0x11);
        // The collector cannot store the next frame: it waits in the ring, checked, and those behind it
        // not checked yet.
        let obstacle = ends.dir.path().join("cam/000000000001");
        fs::write(&obstacle, "of another program").unwrap();
        ends.send(0x22);
        (1..DAMAGED).for_each(|_| ends.send(DAMAGED_BYTE));
        let Ends { dir, collector, source, input } = ends;
        damage(&collector, DAMAGED_BYTE, DAMAGED - 1, IN_PAYLOAD);
        damage(&collector, 0x22, 1, IN_PAYLOAD);
        drop(input);
        fs::remove_file(obstacle).unwrap();
        let sent = source.finish().expect(0).last_json();
        assert!(sent["reconnects"].as_u64() >= Some(1), "{words:?}: {sent:#}");
        for (field, value) in [("sent", 8), ("delivered", 8), ("lost", 0), ("undelivered", 0)] {
            assert_eq!(sent[format!("frames_{field}")], value, "{words:?}: {sent:#}");
        }
        let summary = collector.end();
        for (field, value) in [("numbered", 8), ("received", 8), ("verified", 8), ("lost", 0)] {
            assert_eq!(summary[format!("frames_{field}")], value, "{words:?}: {summary:#}");
        }
        assert!(summary["checksum_errors"].as_u64() >= Some(1), "{words:?}: {summary:#}");
        let mut expected = [[0x11; FRAME_BYTES], [0x22; FRAME_BYTES]].concat();
        expected.resize(8 * FRAME_BYTES, DAMAGED_BYTE);
        assert_same(&stream(dir.path(), "cam"), &expected);
    }
}

/// Who is asked for them is gone.
#[test]
fn damaged_frames_of_a_source_that_died_and_those_behind_them_are_given_up_and_counted() {
    let words = ["--require", "shm", "--no-in-place"];
    let mut ends = Ends::start(&["--lease", "60"], &words, 0x11);
    stop(&ends.collector);
    ends.send(0x22);
    (0..DAMAGED).for_each(|_| ends.send(DAMAGED_BYTE));
    let Ends { dir: _dir, collector, source, input: _input } = ends;
    damage(&collector, 0x22, 1, IN_PAYLOAD);
    // Not damaged; it only waits until they are there.
    damage(&collector, DAMAGED_BYTE, DAMAGED, IN_PAYLOAD);
    source.kill();
    signal(collector.id(), Signal::CONT);
    let summary = collector.end_with(1);
    for (field, value) in [("received", 1), ("given_up", DAMAGED + 1)] {
        assert_eq!(summary[format!("frames_{field}")], value, "{summary:#}");
    }
}

/// The source fills them in the collector's memory: nobody has the right bytes any more.
#[test]
fn a_damaged_frame_is_lost_at_both_ends_and_delivered_at_none() {
    let mut ends = Ends::start(&["--lease", "60"], &["--require", "shm"], 0x11);
    // The frames that come now wait in the ring.
    stop(&ends.collector);
    (0..DAMAGED).for_each(|_| ends.send(DAMAGED_BYTE));
    let Ends { dir, collector, source, input } = ends;
    damage(&collector, DAMAGED_BYTE, DAMAGED, IN_PAYLOAD);
    drop(input);
    signal(collector.id(), Signal::CONT);
    let sent = source.finish().expect(1);
    assert!(sent.stderr.contains("7 frames are lost"), "{sent:#?}");
    assert!(!sent.stdout.contains("all delivered"), "{sent:#?}");
    for (field, value) in [("undelivered", DAMAGED), ("lost", DAMAGED), ("delivered", 1)] {
        assert_eq!(sent.last_json()[format!("frames_{field}")], value, "{sent:#?}");
    }
    let summary = collector.end_with(1);
    for (field, value) in
        [("numbered", 8), ("received", 1), ("lost", DAMAGED), ("lost_damaged", DAMAGED)]
    {
        assert_eq!(summary[format!("frames_{field}")], value, "{summary:#}");
    }
    assert_eq!(summary["checksum_errors"], DAMAGED, "{summary:#}");
    assert_eq!(frames(&dir.path().join("cam")), ["000000000000"]);
}

/// Neither end can read what they were: in the middle of the stream, and at its end.
#[test]
fn frames_damaged_beyond_recognition_are_lost_and_stop_nobody() {
    for (frames_sent, damaged, arrive) in
        [(4, [2, 4].as_slice(), [0, 1, 3].as_slice()), (2, &[2], &[0, 1])]
    {
        let mut ends = Ends::start(&["--lease", "5"], &["--require", "shm"], 0xa0);
        stop(&ends.collector);
        (1..=frames_sent).for_each(|number| ends.send(0xa0 + number));
        let Ends { dir, collector, source, input } = ends;
        for number in damaged {
            damage(&collector, 0xa0 + number, 1, IN_COMMIT_WORD);
        }
        drop(input);
        signal(collector.id(), Signal::CONT);
        let sent = source.finish().expect(1).last_json();
        let lost = damaged.len();
        assert_eq!(sent["frames_lost"], lost, "{sent:#}");
        let summary = collector.end_with(1);
        for (field, value) in [("received", arrive.len()), ("lost", lost)] {
            assert_eq!(summary[format!("frames_{field}")], value, "{summary:#}");
        }
        let expected: Vec<_> = arrive.iter().map(|number| format!("{number:012}")).collect();
        assert_eq!(frames(&dir.path().join("cam")), expected);
    }
}
