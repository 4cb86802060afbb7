//! Disks that are small, full or gone, and ends while nothing can be stored.
use crate::common::{
    Collector, INPUT, Running, catchment, check_synthetic, collecting, finish, frames, run, send,
    signal, wait_for_frames,
};
use catchment_netns::{running, wait_until, with_privilege};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// 900 KiB a frame.
const LARGE: &str = "synthetic:640x480:rgb24";

fn number(name: Option<&String>) -> usize {
    name.map_or(0, |name| name.parse().unwrap())
}

/// A collector whose `--out` is a file system of 20 MB in a mount namespace of its own.
fn small_disk(dir: &Path, words: &[&str]) -> Command {
    let mount = "mount -t tmpfs -o size=20m tmpfs \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mount]).arg(dir).arg(env!("CARGO_BIN_EXE_catchment"));
    command.args(["collect", "--json", "--no-dashboard", "--listen", "127.0.0.1:0", "--out"]);
    command.arg(dir).args(words).env_remove("RUST_LOG");
    command
}

/// Starts it; its directory, as others see it.
fn start(command: &mut Command, dir: &Path) -> (Collector, PathBuf) {
    let collector = Collector::start_command(command);
    let inside = dir.strip_prefix("/").unwrap();
    let disk = Path::new("/proc").join(collector.id().to_string()).join("root").join(inside);
    (collector, disk)
}

#[test]
fn a_small_disk_holds_frames_and_the_oldest_give_way() {
    with_privilege("disk::a_small_disk_holds_frames_and_the_oldest_give_way", || {
        let dir = tempfile::tempdir().unwrap();
        let (all, disk) = start(&mut small_disk(dir.path(), &[]), dir.path());
        let few = ["--frames", "10", "--rate", "max"];
        finish(&mut send(LARGE, "cam", &all.address, &few)).expect(0);
        check_synthetic(&disk, "cam", 0, LARGE, 10);
        let (newest, disk) =
            start(&mut small_disk(dir.path(), &["--keep-frames", "1000"]), dir.path());
        let many = ["--frames", "100", "--rate", "max"];
        finish(&mut send(LARGE, "cam", &newest.address, &many)).expect(0);
        let kept = frames(&disk.join("cam"));
        assert_eq!(number(kept.last()), 99);
        assert!((5..22).contains(&kept.len()), "{kept:?}");
        assert_eq!(newest.end()["frames_received"], 100);
    });
}

#[test]
fn a_full_disk_holds_a_stream_up_until_there_is_room() {
    with_privilege("disk::a_full_disk_holds_a_stream_up_until_there_is_room", || {
        let (dir, said) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let mut command = small_disk(dir.path(), &[]);
        let (collector, disk) = start(command.stderr(said.reopen().unwrap()), dir.path());
        let words = ["--frames", "30", "--rate", "max"];
        let source = Running::start(&mut send(LARGE, "cam", &collector.address, &words));
        let says = |text: &str| fs::read_to_string(said.path()).unwrap().contains(text);
        wait_until("it says what helps", || says("--keep-frames"));
        let cam = disk.join("cam");
        for name in frames(&cam) {
            fs::remove_file(cam.join(name)).unwrap();
        }
        source.finish().expect(0);
        assert!(says("the sink takes frames again"));
        assert_eq!(number(frames(&cam).last()), 29);
        assert_eq!(collector.end()["frames_received"], 30);
    });
}

#[test]
fn a_stream_goes_on_when_another_program_fills_the_disk() {
    with_privilege("disk::a_stream_goes_on_when_another_program_fills_the_disk", || {
        let dir = tempfile::tempdir().unwrap();
        let (collector, disk) =
            start(&mut small_disk(dir.path(), &["--keep-frames", "1000"]), dir.path());
        let words = ["--rate", "50"];
        let source = Running::start(&mut send(INPUT, "cam", &collector.address, &words));
        wait_for_frames(&disk, "cam", 10);
        let mut fill = File::create(disk.join("fill")).unwrap();
        while fill.write_all(&[1; 4096]).is_ok() {}
        let newest = || number(frames(&disk.join("cam")).last());
        let then = newest();
        wait_until("a hundred more frames", || newest() >= then + 100);
        signal(source.id(), Signal::TERM);
        source.finish().expect(0);
    });
}

#[test]
fn a_directory_that_is_removed_in_mid_stream_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let collector = Collector::start(&out);
    let words = ["--rate", "200", "--frames", "400"];
    let source = Running::start(&mut send(INPUT, "cam", &collector.address, &words));
    wait_for_frames(&out, "cam", 20);
    fs::rename(&out, dir.path().join("gone")).unwrap();
    source.finish().expect(0);
    let before = frames(&dir.path().join("gone/cam"));
    let after = frames(&out.join("cam"));
    assert_eq!(number(after.last()), 399);
    assert_eq!(before.len() + after.len(), 400);
    assert!(out.join("cam/.format-1.json").exists(), "the new directory says what it holds");
    assert_eq!(collector.end()["frames_lost"], 0);
}

#[test]
fn the_second_collector_of_a_directory_is_refused_by_name() {
    let (dir, collector) = collecting();
    let out = dir.path().to_str().unwrap();
    let words = ["collect", "--listen", "127.0.0.1:0", "--no-dashboard", "--out", out];
    let second = run(words).expect(5);
    for text in [out.to_owned(), format!("process {}", collector.id())] {
        assert!(second.stderr.contains(&text), "{second:#?}");
    }
    let words = ["--rate", "max", "--frames", "10"];
    finish(&mut send(INPUT, "cam", &collector.address, &words)).expect(0);
    check_synthetic(dir.path(), "cam", 0, INPUT, 10);
    // A killed one keeps nobody out.
    collector.kill();
    Collector::start(dir.path()).end();
}

/// A collector that cannot store the frames of a source any more; what it says goes to the file.
fn refusing(dir: &Path) -> (Collector, Running, PathBuf) {
    let (out, said) = (dir.join("out"), dir.join("said"));
    let mut command = catchment();
    command.args(["collect", "--json", "--no-dashboard", "--listen", "127.0.0.1:0", "--out"]);
    let collector =
        Collector::start_command(command.arg(&out).stderr(File::create(&said).unwrap()));
    let source = Running::start(&mut send(INPUT, "cam", &collector.address, &["--rate", "100"]));
    wait_for_frames(&out, "cam", 5);
    let mut tries = 0..;
    wait_until("a file is where the directory was", || {
        let gone = format!("gone{}", tries.next().unwrap());
        let _ = fs::rename(out.join("cam"), dir.join(gone));
        // The collector makes the directory again.
        File::create(out.join("cam")).is_ok()
    });
    wait_until("it refuses", || fs::read_to_string(&said).unwrap().contains("refused a frame"));
    (collector, source, said)
}

#[test]
fn a_collector_that_ends_while_it_cannot_store_says_what_it_waits_for_and_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (collector, _source, said) = refusing(dir.path());
    // As timeout(1) does: its child, then the child's group.
    signal(collector.id(), Signal::TERM);
    let summary = collector.end_with(1);
    let said = fs::read_to_string(said).unwrap();
    for text in ["waiting up to 10 s", "1 device", "cam: cannot create", "given up"] {
        assert!(said.contains(text), "lacks {text}: {said}");
    }
    assert!(summary["frames_given_up"].as_u64() > Some(0), "{summary:#}");
    let refusals = said.lines().filter(|line| line.contains("refused a frame")).count();
    assert!(refusals < 10, "ten a second: {said}");
}

#[test]
fn a_later_second_signal_ends_it_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (collector, _source, said) = refusing(dir.path());
    let id = collector.id();
    // Those of the first second are one.
    wait_until("it ends", || {
        let alive = running(id).is_some();
        if alive {
            signal(id, Signal::TERM);
        }
        !alive
    });
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("ended without waiting"), "{said}");
}

#[test]
fn a_device_that_changes_its_format_gets_another_description() {
    let (dir, collector) = collecting();
    let words = ["--frames", "10", "--rate", "max"];
    for input in [INPUT, INPUT, "synthetic:32x24:gray"] {
        finish(&mut send(input, "cam", &collector.address, &words)).expect(0);
    }
    let read = |name: &str| -> serde_json::Value {
        let text = fs::read_to_string(dir.path().join("cam").join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let [first, second] = [".format-1.json", ".format-2.json"].map(read);
    assert_eq!((&first["first_packet"], &first["format"]), (&0.into(), &"64x48:rgb24".into()));
    assert_eq!((&second["first_packet"], &second["format"]), (&20.into(), &"32x24:gray".into()));
    assert!(!dir.path().join("cam/.format-3.json").exists());
}
