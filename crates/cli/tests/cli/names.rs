//! Device names: how many a source may have, whose they are, and what a bad source leaves behind.
use crate::common::{
    Collector, Finished, INPUT, Running, check_synthetic, collecting, finish, run, send,
    wait_for_frames,
};
use crate::raw::{Raw, names};
use catchment_netns::wait_until;
use std::fs;
use std::path::Path;

fn resident_bytes(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Directories of devices.
fn directories(out: &Path) -> Vec<String> {
    crate::common::frames(out)
}

fn twenty(device: &str, collector: &Collector, words: &[String]) -> Finished {
    let usual = ["--wait", "20", "--frames", "20", "--rate", "max"];
    finish(send(INPUT, device, &collector.address, &usual).args(words))
}

#[test]
fn a_hello_of_65536_devices_is_refused_and_leaves_nothing() {
    let (dir, collector) = collecting();
    let words = ["--rate", "100", "--frames", "100"];
    let other = Running::start(&mut send(INPUT, "other", &collector.address, &words));
    wait_for_frames(dir.path(), "other", 5);
    let before = resident_bytes(collector.id());
    for instance in 1..=3 {
        let devices = names("flood", 65_536);
        let (_raw, answer) = Raw::hello(&collector.address, instance, &devices);
        assert_eq!((&answer["type"], &answer["code"]), (&"refused".into(), &"not_allowed".into()));
        let reason = answer["reason"].as_str().unwrap();
        assert!(reason.contains("65536") && reason.contains("4096"), "{reason}");
    }
    let grown = resident_bytes(collector.id()).saturating_sub(before) >> 20;
    assert!(grown < 200, "{grown} MiB more");
    assert_eq!(directories(dir.path()), ["other"]);
    other.finish().expect(0);
    twenty("cam", &collector, &[]).expect(0);
    check_synthetic(dir.path(), "cam", 0, INPUT, 20);
    check_synthetic(dir.path(), "other", 0, INPUT, 100);
    assert_eq!(directories(dir.path()), ["cam", "other"]);
}

#[test]
fn sources_that_never_send_a_frame_take_little_and_give_their_names_back() {
    let (dir, collector) = collecting();
    let before = resident_bytes(collector.id());
    let mut silent = Vec::new();
    for instance in 0..8 {
        let devices = names(&format!("idle{instance}"), 4096);
        let (raw, welcome) = Raw::hello(&collector.address, instance, &devices);
        assert_eq!(welcome["type"], "welcome", "{welcome}");
        silent.push(raw);
    }
    let grown = resident_bytes(collector.id()).saturating_sub(before) >> 20;
    assert!(grown < 200, "{grown} MiB more");
    assert_eq!(directories(dir.path()), [""; 0]);
    drop(silent);
    let device = "idle3-000007";
    twenty(device, &collector, &[]).expect(0);
    check_synthetic(dir.path(), device, 0, INPUT, 20);
    assert_eq!(directories(dir.path()), [device]);
    let summary = collector.end();
    assert_eq!(summary["devices"].as_array().unwrap().len(), 1, "{summary:#}");
}

#[test]
fn more_devices_than_allowed_are_refused_with_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["--out", dir.path().to_str().unwrap(), "--devices-max", "2"];
    let collector = Collector::start_with("127.0.0.1:0", &words);
    let words = ["--input", INPUT, "--device", "b", "--input", INPUT, "--device", "c"];
    let finished = finish(&mut send(INPUT, "a", &collector.address, &words)).expect(3);
    assert!(finished.stderr.contains("--devices-max"), "{finished:#?}");
    assert_eq!(directories(dir.path()), [""; 0]);
}

#[test]
fn a_jump_to_the_last_packet_number_is_refused_and_the_name_stays_usable() {
    let (dir, collector) = collecting();
    let mut reason = String::new();
    wait_until("it connects in time, and is refused", || {
        let (mut raw, welcome) = Raw::hello(&collector.address, 7, &["cam".to_owned()]);
        let answer = raw.connect_at(&welcome, (1 << 53) - 2);
        reason = answer["reason"].as_str().unwrap_or_default().to_owned();
        answer["code"] == "bad_resume"
    });
    assert!(reason.contains("9007199254740990"), "{reason}");
    for frames in [20, 40] {
        twenty("cam", &collector, &[]).expect(0);
        check_synthetic(dir.path(), "cam", 0, INPUT, frames);
    }
}

/// Certificates of a collector and two sources.
fn certificates(dir: &Path) {
    let names = ["--name", "127.0.0.1,localhost", "--name", "line1", "--name", "line2"];
    run(["cert", "--out", dir.to_str().unwrap()].iter().chain(&names)).expect(0);
}

fn of(dir: &Path, name: &str) -> Vec<String> {
    let file = |option, file: String| format!("--{option}={}", dir.join(file).display());
    let own = [file("cert", format!("{name}.pem")), file("key", format!("{name}.key"))];
    own.into_iter().chain([file("ca", "ca.pem".to_owned())]).collect()
}

fn with_certificates(dir: &Path, out: &Path, words: &[&str]) -> Collector {
    let own = of(dir, "127.0.0.1");
    let words = ["--out", out.to_str().unwrap()].into_iter().chain(words.iter().copied());
    let words: Vec<&str> = words.chain(own.iter().map(String::as_str)).collect();
    Collector::start_with("127.0.0.1:0", &words)
}

#[test]
fn a_device_name_stays_with_the_first_certificate_until_it_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    certificates(dir.path());
    let [line1, line2] = ["line1", "line2"].map(|name| of(dir.path(), name));
    let collector = with_certificates(dir.path(), &out, &[]);
    twenty("cam", &collector, &line1).expect(0);
    let refused = twenty("cam", &collector, &line2).expect(3).stderr;
    assert!(refused.contains("line1") && refused.contains("--forget"), "{refused}");
    twenty("other", &collector, &line2).expect(0);
    collector.kill();
    let collector = with_certificates(dir.path(), &out, &[]);
    let refused = twenty("cam", &collector, &line2).expect(3).stderr;
    assert!(refused.contains("line1"), "{refused}");
    twenty("cam", &collector, &line1).expect(0);
    let freed = run(["collect", "--out", out.to_str().unwrap(), "--forget", "cam"]).expect(0);
    assert!(freed.stderr.contains("line1"), "{freed:#?}");
    twenty("cam", &collector, &line2).expect(0);
    let refused = twenty("cam", &collector, &line1).expect(3).stderr;
    assert!(refused.contains("line2"), "{refused}");
    check_synthetic(&out, "cam", 0, INPUT, 60);
}

#[test]
fn rules_say_which_certificate_sends_which_device() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    certificates(dir.path());
    let [line1, line2] = ["line1", "line2"].map(|name| of(dir.path(), name));
    let words = ["--allow", "line1=cam*,mic", "--allow", "*=test-*"];
    let collector = with_certificates(dir.path(), &out, &words);
    twenty("cam7", &collector, &line1).expect(0);
    twenty("test-1", &collector, &line2).expect(0);
    for (device, certificate) in [("cam7", &line2), ("door", &line1)] {
        let refused = twenty(device, &collector, certificate).expect(3).stderr;
        assert!(refused.contains(device) && refused.contains("--allow"), "{refused}");
    }
    let words = ["collect", "--listen", "127.0.0.1:0", "--sink", "null", "--allow", "a=b"];
    let refused = run(words).expect(2).stderr;
    assert!(refused.contains("--cert"), "{refused}");
}

/// Fifty sources that say Hello and go.
#[test]
fn what_goes_wrong_again_and_again_is_one_line_with_a_count() {
    let dir = tempfile::tempdir().unwrap();
    let said = dir.path().join("said");
    let mut command = crate::common::catchment();
    command.args(["collect", "--json", "--no-dashboard", "--listen", "127.0.0.1:0"]);
    command.args(["--sink", "null"]).stderr(fs::File::create(&said).unwrap());
    let collector = Collector::start_command(&mut command);
    for instance in 0..50 {
        let (_raw, welcome) = Raw::hello(&collector.address, instance, &names("cam", 1));
        assert_eq!(welcome["type"], "welcome", "{welcome}");
    }
    // Its Hello is heard after the devices of all others are free.
    Raw::hello(&collector.address, 99, &names("cam", 1));
    collector.end();
    let said = fs::read_to_string(&said).unwrap();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("session ended")).collect();
    assert!((1..10).contains(&lines.len()), "{said}");
    assert!(said.contains("times more in"), "{said}");
}
