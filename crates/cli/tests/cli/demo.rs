//! `catchment demo`: what a stranger runs first.
use crate::common::{Finished, Running, demo, finish, frames, signal};
use catchment_netns::{children_of, running, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

#[track_caller]
fn number(summary: &Value, key: &str) -> f64 {
    summary[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {summary:#}"))
}

#[test]
fn twelve_cameras_arrive_through_one_queue_pair() {
    let tmp = tempfile::tempdir().unwrap();
    let finished = finish(&mut demo(tmp.path(), &["--json", "--seconds", "2"])).expect(0);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(lines.len(), 1, "stdout is one JSON object: {finished:#?}");
    let summary = finished.last_json();
    let sent = number(&summary, "frames_sent");
    // 12 x 25 x 2 = 600 where the machine has time; never more.
    assert!(sent > 0.0 && sent <= 600.0, "{summary:#}");
    for (key, expected) in [
        ("devices", 12.0),
        ("queue_pairs", 1.0),
        ("frames_received", sent),
        ("frames_verified", sent),
        ("frames_lost", 0.0),
        ("frames_dropped", 0.0),
    ] {
        assert_eq!(number(&summary, key), expected, "{key} in {summary:#}");
    }
    for key in [
        "throughput_bytes_per_s", "latency_us_p50", "latency_us_p99", "latency_us_p999",
        "cpu_percent_source", "cpu_percent_collector", "seconds", "rate_asked", "rate_achieved",
    ] {
        assert!(number(&summary, key) >= 0.0, "{key} in {summary:#}");
    }
    assert_eq!(summary["provider"], "shm");
    let out = Path::new(summary["out_dir"].as_str().unwrap());
    assert!(out.starts_with(tmp.path()), "{}", out.display());
    for i in 0..12 {
        let kept = frames(&out.join(format!("cam{i:02}")));
        assert!((1..=25).contains(&kept.len()), "cam{i:02} has {} frames", kept.len());
    }
    let again = finish(&mut demo(tmp.path(), &["--json", "--seconds", "0.2"])).expect(0);
    assert_ne!(again.last_json()["out_dir"], summary["out_dir"]);
    assert!(!out.exists(), "the next demo removes the frames of the one before");
}

#[test]
fn a_narrow_link_is_shared_without_a_controller_and_with_one() {
    share_a_narrow_link("netns", &["--controller", "--json", "--seconds", "2"]);
}

#[test]
fn a_relay_is_the_narrow_link_where_there_may_be_no_namespaces() {
    share_a_narrow_link("relay", &["--controller", "--relay", "--json", "--seconds", "2"]);
}

fn share_a_narrow_link(place: &str, words: &[&str]) {
    let tmp = tempfile::tempdir().unwrap();
    let finished = finish(&mut demo(tmp.path(), words)).expect(0);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(lines.len(), 1, "stdout is one JSON object: {finished:#?}");
    let summary = finished.last_json();
    assert_eq!((&summary["place"], &summary["cameras"]), (&place.into(), &12.into()));
    for phase in ["without_controller", "with_controller"] {
        let phase = &summary[phase];
        let frames = |class: &str| number(&phase[class], "frames");
        assert!(frames("urgent") > 0.0 && frames("others") > 0.0, "{summary:#}");
        assert_eq!(number(phase, "frames_sent"), frames("urgent") + frames("others"));
        assert_eq!(number(phase, "frames_lost"), 0.0);
        for class in ["urgent", "others"] {
            assert!(number(&phase[class], "on_time") <= frames(class), "{summary:#}");
            assert!(number(&phase[class], "latency_ms_p95") > 0.0, "{summary:#}");
        }
    }
    // None, where the processors are free: a source that stands still at the end of its window is late.
    let dropped = |phase: &str| number(&summary[phase], "packets_dropped");
    assert!(dropped("with_controller") <= dropped("without_controller") / 10.0, "{summary:#}");
    assert!(number(&summary, "urgent_p95_ratio") > 0.0);
    assert!(finished.stderr.contains("cam00 is urgent"), "{finished:#?}");
}

#[test]
fn many_devices_share_few_threads() {
    let tmp = tempfile::tempdir().unwrap();
    let words = ["--json", "--seconds", "1", "--devices", "255", "--format", "64x48:gray"];
    let finished = finish(demo(tmp.path(), &words).env("RUST_LOG", "info")).expect(0);
    let summary = finished.last_json();
    let sent = number(&summary, "frames_sent");
    assert!(sent >= 255.0, "every device sends: {summary:#}");
    assert_eq!(number(&summary, "frames_verified"), sent, "{summary:#}");
    assert_eq!(number(&summary, "queue_pairs"), 1.0, "{finished:#?}");
}

#[test]
fn the_smallest_queues_are_told_and_suffice() {
    let tmp = tempfile::tempdir().unwrap();
    let words =
        ["--json", "--no-dashboard", "--rate", "max", "--frames", "10", "--send-queue", "2"];
    let summary = finish(&mut demo(tmp.path(), &words)).expect(0).last_json();
    for (end, queues) in [("source", [2, 0, 1]), ("collector", [1, 0, 1])] {
        let told = &summary[format!("queues_{end}")];
        let seen = ["send", "receive", "completions"].map(|name| told[name].as_u64());
        assert_eq!(seen, queues.map(Some), "{end} in {summary:#}");
    }
    assert_eq!(number(&summary, "frames_verified"), 120.0, "{summary:#}");
    let refused = finish(&mut demo(tmp.path(), &["--send-queue", "1"])).expect(2);
    assert!(refused.stderr.contains("--send-queue"), "{refused:#?}");
}

#[test]
fn as_fast_as_possible_stores_nothing_unless_told() {
    let tmp = tempfile::tempdir().unwrap();
    let words = ["--rate", "max", "--seconds", "0.5", "--no-dashboard"];
    let finished = finish(&mut demo(tmp.path(), &words)).expect(0);
    assert!(finished.stderr.contains("not stored"), "{finished:#?}");
    assert!(finished.stdout.contains("frames lost      0"), "{finished:#?}");
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
}

#[test]
fn ctrl_c_ends_it_with_the_table() {
    let tmp = tempfile::tempdir().unwrap();
    let running = Running::start(&mut demo(tmp.path(), &["--seconds", "600"]));
    wait_for_children(running.id(), 2);
    wait_for_any_frame(tmp.path());
    signal(running.id(), Signal::INT);
    let Finished { stdout, .. } = running.finish().expect(0);
    assert!(stdout.contains("frames lost      0"), "{stdout}");
}

#[test]
fn nothing_survives_a_kill() {
    let tmp = tempfile::tempdir().unwrap();
    let demo = Running::start(&mut demo(tmp.path(), &["--seconds", "600"]));
    let children = wait_for_children(demo.id(), 2);
    wait_for_any_frame(tmp.path());
    demo.kill();
    for (child, name) in children {
        let ended = || running(child).as_ref() != Some(&name);
        wait_until(&format!("process {child} ends with the demo"), ended);
    }
}

fn wait_for_any_frame(tmp: &Path) {
    wait_until("there is a frame", || {
        let demos = std::fs::read_dir(tmp).unwrap().flatten();
        demos.map(|demo| demo.path().join("cam00")).any(|dir| !frames(&dir).is_empty())
    });
}

/// The processes that `parent` started, once there are so many.
fn wait_for_children(parent: u32, count: usize) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    wait_until(&format!("there are {count} children"), || {
        found = children_of(parent);
        found.len() == count
    });
    found
}
