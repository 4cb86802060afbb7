//! A transmission controller, sources and a collector, over a narrow link.
use crate::common::{
    Collector, Running, Service, catchment, check_synthetic, frames, run, signal, wait_for_frames,
};
use catchment_netns::{LongPath, PathSpec, wait_until, with_privilege};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// 123 ms of the link.
const LARGE: &str = "synthetic:640x480:rgb24";
const SMALL: &str = "synthetic:160x120:rgb24";
const PORT: u16 = 7118;

/// One link of 60 Mbit/s of payload; pieces of 9 ms.
const CONFIG: &str = "chunk = \"64KiB\"\nsafe_sources = 3\n\n[[link]]\nname = \"narrow\"\n\
    capacity = \"60Mbit\"\nguard = \"1ms\"\n";

/// Carries what the controller grants, with headers and acknowledgements.
fn narrow() -> LongPath {
    let spec = PathSpec {
        rate_bps: 80_000_000,
        delay: Duration::from_micros(200),
        queue_bytes: 1 << 20,
        mtu: 1500,
    };
    LongPath::new(spec, [|| false; 2]).unwrap()
}

fn controller(link: &LongPath, config: &Path) -> Service {
    let listen = format!("{}:{PORT}", LongPath::LEFT);
    let start = || {
        let mut command = catchment();
        command.args(["control", "--json", "--insecure", "--listen", &listen, "--config"]);
        Service::start_command(command.arg(config))
    };
    link.left.run(start).unwrap()
}

fn collector(link: &LongPath, out: &Path) -> Collector {
    let listen = format!("{}:0", LongPath::LEFT);
    let words = ["--insecure", "--out", out.to_str().unwrap()];
    link.left.run(|| Collector::start_with(&listen, &words)).unwrap()
}

fn source(link: &LongPath, words: &[&str], collector: &str) -> Running {
    let controller = format!("{}:{PORT}", LongPath::LEFT);
    let start = || {
        let mut command = catchment();
        command.args(["send", "--json", "--insecure", "--controller", &controller]);
        Running::start(command.args(words).arg(collector))
    };
    link.right.run(start).unwrap()
}

fn status(link: &LongPath) -> Value {
    let address = format!("{}:{PORT}", LongPath::LEFT);
    let words = ["control", "status", "--json", "--insecure", &address];
    link.left.run(|| run(words)).unwrap().expect(0).last_json()
}

fn ended(status: &Value, class: usize) -> u64 {
    let class = &status["classes"][class];
    class["on_time"].as_u64().unwrap() + class["late"].as_u64().unwrap()
}

/// Request, grant, WRITE, release between processes (S2.3).
#[test]
fn an_urgent_frame_overtakes_and_the_narrow_link_drops_nothing() {
    let name = "control::an_urgent_frame_overtakes_and_the_narrow_link_drops_nothing";
    with_privilege(name, || {
        let (link, dir) = (narrow(), tempfile::tempdir().unwrap());
        let (out, config) = (dir.path().join("out"), dir.path().join("control.toml"));
        fs::write(&config, CONFIG).unwrap();
        let controller = controller(&link, &config);
        let collector = collector(&link, &out);
        let address = &collector.address;
        let words = ["--input", LARGE, "--device", "bulk", "--rate", "max", "--frames", "30"];
        let bulk = source(&link, &words, address);
        wait_for_frames(&out, "bulk", 2);
        let words = ["--input", SMALL, "--device", "cam0", "--rate", "max", "--frames", "20"];
        let priority = ["--priority", "cam0=urgent", "--deadline", "cam0=500ms"];
        source(&link, &[&words[..], &priority].concat(), address).finish().expect(0);
        let before = frames(&out.join("bulk")).len();
        assert!(before < 30, "{before}: all urgent frames are there before those that had begun");
        bulk.finish().expect(0);
        let summary = collector.end();
        assert_eq!((&summary["frames_lost"], &summary["provider"]), (&0.into(), &"roce".into()));
        check_synthetic(&out, "bulk", 0, LARGE, 30);
        check_synthetic(&out, "cam0", 0, SMALL, 20);
        assert_eq!(link.counts().queue_full, 0, "two sources, as fast as they may");
        // A source that has sent all does not wait until the controller has heard of the last end.
        wait_until("the ends that the controller has heard of", || {
            let status = status(&link);
            (ended(&status, 0), ended(&status, 1)) == (20, 30)
        });
        drop(controller);
    });
}

#[test]
fn frames_that_cannot_be_in_time_are_dropped_and_cost_nothing_where_their_class_says_so() {
    let name = "control::frames_that_cannot_be_in_time_are_dropped_and_cost_nothing_where_their_class_says_so";
    with_privilege(name, || {
        let (link, dir) = (narrow(), tempfile::tempdir().unwrap());
        let (out, config) = (dir.path().join("out"), dir.path().join("control.toml"));
        let class = "\n[[class]]\nname = \"live\"\ndeadline = \"500ms\"\nlate = \"drop\"\n";
        fs::write(&config, format!("{CONFIG}{class}")).unwrap();
        let controller = controller(&link, &config);
        let collector = collector(&link, &out);
        // Each takes 123 ms, and as many are made as there is room for.
        let words = |name| ["--input", LARGE, "--device", name, "--rate", "max", "--frames", "60"];
        let sources = ["cam0", "cam1"].map(|name| source(&link, &words(name), &collector.address));
        let (mut came, mut dropped) = (0, 0);
        for (source, name) in sources.into_iter().zip(["cam0", "cam1"]) {
            let ended = source.finish().expect(0);
            let summary = ended.last_json();
            let count = |what: &str| summary[what].as_u64().unwrap();
            assert_eq!((count("frames_sent"), count("frames_lost")), (60, 0), "{summary}");
            assert_eq!(count("frames_delivered") + count("frames_dropped_late"), 60, "{summary}");
            assert!(count("frames_dropped_late") > 0, "{summary}");
            assert_eq!(frames(&out.join(name)).len() as u64, count("frames_delivered"));
            came += count("frames_delivered");
            dropped += count("frames_dropped_late");
        }
        let summary = collector.end();
        assert_eq!(summary["frames_lost"], 0, "{summary}");
        assert_eq!((&summary["frames_received"], came + dropped), (&came.into(), 120), "{summary}");
        assert_eq!(link.counts().queue_full, 0);
        let status = status(&link);
        assert!(status["classes"][0]["dropped"].as_u64().unwrap() >= dropped, "{status}");
        drop(controller);
    });
}

#[test]
fn a_link_that_carries_half_of_what_it_is_said_to_is_found_out_and_its_capacity_may_be_told() {
    let name = "control::a_link_that_carries_half_of_what_it_is_said_to_is_found_out_and_its_capacity_may_be_told";
    with_privilege(name, || {
        let spec = PathSpec {
            // A source that shares its cores with other tests is faster, too.
            rate_bps: 32_000_000,
            delay: Duration::from_micros(200),
            queue_bytes: 128 << 10,
            mtu: 1500,
        };
        let (link, dir) =
            (LongPath::new(spec, [|| false; 2]).unwrap(), tempfile::tempdir().unwrap());
        let (out, config) = (dir.path().join("out"), dir.path().join("control.toml"));
        let admin = format!("unix:{}", dir.path().join("admin").display());
        let text = "[[link]]\nname = \"narrow\"\ncapacity = \"60Mbit\"\nguard = \"1ms\"\n";
        fs::write(&config, format!("admin = \"{admin}\"\n{text}")).unwrap();
        let controller = controller(&link, &config);
        let collector = collector(&link, &out);
        let words = ["--input", LARGE, "--device", "bulk", "--rate", "max", "--frames", "12"];
        let bulk = source(&link, &words, &collector.address);
        let working = || status(&link)["links"][0]["working_bps"].as_u64().unwrap();
        wait_until("losses lower what is granted", || working() < 56_000_000);
        let words = ["control", "capacity", "narrow", "24Mbit", "--json", "--admin", &admin];
        let changed = run(words).expect(0).last_json();
        assert_eq!(
            (&changed["link"], &changed["capacity_bps"]),
            (&"narrow".into(), &24_000_000.into())
        );
        assert_eq!(working(), 24_000_000, "what is told counts");
        bulk.finish().expect(0);
        assert_eq!(collector.end()["frames_lost"], 0);
        check_synthetic(&out, "bulk", 0, LARGE, 12);
        assert!(link.counts().queue_full > 0);
        drop(controller);
    });
}

#[test]
fn the_death_of_the_controller_stops_no_source() {
    with_privilege("control::the_death_of_the_controller_stops_no_source", || {
        let (link, dir) = (narrow(), tempfile::tempdir().unwrap());
        let (out, config) = (dir.path().join("out"), dir.path().join("control.toml"));
        fs::write(&config, CONFIG).unwrap();
        let first = controller(&link, &config);
        let collector = collector(&link, &out);
        let words = |device, fallback| {
            let words = ["--input", LARGE, "--device", device, "--rate", "4", "--frames", "20"];
            [&words[..], &["--fallback", fallback]].concat()
        };
        let safe = source(&link, &words("safe", "safe-rate"), &collector.address);
        let waits = source(&link, &words("waits", "stop"), &collector.address);
        let free = source(&link, &words("free", "free"), &collector.address);
        wait_for_frames(&out, "safe", 1);
        wait_for_frames(&out, "waits", 1);
        wait_for_frames(&out, "free", 1);
        first.kill();
        wait_until("all say that nobody answers", || {
            safe.said().contains("sending at the safe rate")
                && waits.said().contains("frames wait")
                && free.said().contains("sending without leave")
        });
        let before = frames(&out.join("safe")).len();
        wait_for_frames(&out, "safe", before + 2);
        let second = controller(&link, &config);
        for source in [safe, waits, free] {
            let said = source.finish().expect(0).stderr;
            assert!(said.contains("the controller answers again"), "{said}");
        }
        let summary = collector.end();
        assert_eq!((&summary["frames_lost"], &summary["provider"]), (&0.into(), &"roce".into()));
        check_synthetic(&out, "safe", 0, LARGE, 20);
        check_synthetic(&out, "waits", 0, LARGE, 20);
        check_synthetic(&out, "free", 0, LARGE, 20);
        let devices = status(&link)["sources"].to_string();
        assert!(devices.contains("waits"), "it registered with the second: {devices}");
        drop(second);
    });
}

/// A source that may send freely needs no controller, not even at its start.
#[test]
fn a_free_source_sends_where_no_controller_ever_answers() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let collector = Collector::start_with("127.0.0.1:0", &["--out", out]);
    let words =
        ["send", "--input", LARGE, "--device", "cam", "--frames", "3", "--fallback", "free"];
    let said = run([&words[..], &["--controller", "127.0.0.1:1", &collector.address]].concat())
        .expect(0)
        .stderr;
    assert!(said.contains("sending without leave"), "{said}");
    assert_eq!(collector.end()["frames_lost"], 0);
    check_synthetic(dir.path(), "cam", 0, LARGE, 3);
}

#[test]
fn a_changed_file_is_taken_over_and_a_bad_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("control.toml");
    fs::write(&config, CONFIG).unwrap();
    let mut command = catchment();
    command.args(["control", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
    let controller = Running::start(&mut command);
    let address = &controller.granting_at();
    let capacity = || {
        let status = run(["control", "status", "--json", address]).expect(0).last_json();
        status["links"][0]["capacity_bps"].as_u64().unwrap()
    };
    assert_eq!(capacity(), 60_000_000);
    let reload = |text: String, says: &str| {
        fs::write(&config, text).unwrap();
        signal(controller.id(), Signal::HUP);
        wait_until(says, || controller.said().contains(says));
    };
    reload(CONFIG.replace("60Mbit", "60Mb"), "line 6: \"60Mb\" cannot be used");
    reload(CONFIG.replace("64KiB", "1MiB").replace("60Mbit", "50Mbit"), "chunk cannot change");
    assert_eq!(capacity(), 60_000_000, "nothing has changed");
    reload(CONFIG.replace("60Mbit", "50Mbit"), "link narrow carries 50.0 Mbit/s");
    wait_until("it carries less", || capacity() == 50_000_000);
    let slots = format!("policy = \"priority\"\nslot = \"20Mbit\"\n{CONFIG}");
    reload(slots, "another policy holds");
    reload(CONFIG.replace("narrow", "other"), "links, paths or classes are others");
    let name = || {
        let status = run(["control", "status", "--json", address]).expect(0).last_json();
        status["links"][0]["name"].as_str().unwrap().to_owned()
    };
    wait_until("the other link holds", || name() == "other");
    signal(controller.id(), Signal::INT);
    controller.finish().expect(0);
}

#[test]
fn what_cannot_work_is_refused_with_what_to_do() {
    let refused = |words: &[&str], code: i32, part: &str| {
        let said = run(words).expect(code).stderr;
        assert!(said.contains(part), "{said}");
    };
    refused(&["control"], 2, "--bottleneck");
    refused(&["control", "--bottleneck", "20GB"], 2, "20Gbit");
    refused(&["control", "--config", "/nowhere/control.toml"], 5, "/nowhere/control.toml");
    refused(&["control", "--bottleneck", "1Gbit", "--listen", "0.0.0.0:0"], 5, "--insecure");
    refused(&["control", "status", "127.0.0.1:1"], 3, "catchment control");
    let send = ["send", "--input", "synthetic", "--device", "cam0"];
    let end = ["--controller", "127.0.0.1:1", "127.0.0.1:2"];
    let words = |more: &[&'static str]| [&send[..], more, &end].concat();
    refused(&words(&["--priority", "cam1=urgent"]), 2, "no device cam1");
    refused(&words(&["--priority", "urgent"]), 2, "cam0=urgent");
    refused(&words(&["--deadline", "cam0=100"]), 2, "cam0=100ms");
    refused(
        &["send", "--input", "synthetic", "--priority", "cam0=urgent", "127.0.0.1:2"],
        2,
        "--controller",
    );
}

#[test]
fn frames_that_come_too_late_and_the_standing_are_told_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = catchment();
    command.args(["control", "--bottleneck", "20Mbit", "--listen", "127.0.0.1:0"]);
    let controller = Running::start(&mut command);
    let address = &controller.granting_at();
    let collector = Collector::start_with("127.0.0.1:0", &["--out", dir.path().to_str().unwrap()]);
    let words = ["send", "--json", "--controller", address, "--deadline", "cam0=1ms", "--input"];
    let input = [LARGE, "--device", "cam0", "--rate", "max", "--frames", "6", &collector.address];
    let sent = run([&words[..], &input].concat()).expect(0);
    let summary = sent.last_json();
    assert_eq!(summary["deadlines_missed"], 6, "{summary}");
    assert_eq!(summary["devices"][0]["deadlines_missed"], 6, "{summary}");
    // 369 ms each: it takes longer than a second.
    let mut rows = sent.json_lines().into_iter();
    let progress = rows.find(|row| row["event"] == "progress").unwrap();
    assert!(progress["grant"]["since_unix_ms"].as_u64().is_some_and(|ms| ms > 0), "{progress}");
    let standing = progress["grant"]["standing"].as_str().unwrap();
    assert!(["granted", "waiting"].contains(&standing), "{progress}");
    // The last row says it of nearly all: a frame has two windows, and the others wait for it.
    let last = rows.rfind(|row| row["event"] == "progress").unwrap_or(progress);
    let number = |name: &str| last["grant"][name].as_u64().unwrap();
    assert!(number("grants") > 0 && number("waited_ms") > 0, "{last}");
    let safe_rate_bps = number("safe_rate_bps");
    assert!((1..20_000_000).contains(&safe_rate_bps), "a part of the link: {safe_rate_bps}");
    assert_eq!(collector.end()["frames_lost"], 0);
    signal(controller.id(), Signal::INT);
    controller.finish().expect(0);
}

#[test]
fn a_stream_that_waits_is_told_for_what() {
    let mut command = catchment();
    command.args(["control", "--bottleneck", "20Mbit", "--listen", "127.0.0.1:0"]);
    let controller = Running::start(&mut command);
    let address = &controller.granting_at();
    let explain = |name: &str, words: &[&str]| {
        let all = ["explain", "stream", name, "--controller", address];
        run([&all[..], words].concat())
    };
    assert!(explain("cam0", &[]).expect(1).stderr.contains("no source with a device cam0"));
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(dir.path());
    let [input, rate] = [["--input", LARGE], ["--rate", "max"]];
    let devices =
        [&input[..], &["--device", "cam0"], &input, &["--device", "cam1"], &rate].concat();
    let mut command = catchment();
    command.args(["send", "--controller", address]).args(devices).arg(&collector.address);
    let source = Running::start(&mut command);
    // One sends, which takes 369 ms, the other waits; then the other way round.
    let mut transfer = Value::Null;
    wait_until("cam1 waits for cam0", || {
        let told = explain("cam1", &["--json"]);
        let seen = told.code == Some(0) && told.last_json()[0]["transfer"]["state"] == "waiting";
        if seen {
            transfer = told.last_json()[0]["transfer"].clone();
        }
        seen && transfer["before"][0]["transfers"] == 1
    });
    assert_eq!(transfer["link_capacity_bps"], 20_000_000, "{transfer}");
    assert!(transfer["left_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{transfer}");
    assert!(transfer["starts_in_ms"].as_f64().is_some_and(|ms| ms < 1_000.0), "{transfer}");
    wait_until("it is told in words", || {
        let said = explain("cam1", &[]).expect(0).stdout;
        said.contains("cam1 of source") && said.contains("before it 1 older event of class")
    });
    signal(source.id(), Signal::INT);
    source.finish();
    collector.end();
    signal(controller.id(), Signal::INT);
    controller.finish().expect(0);
    assert!(explain("cam1", &[]).expect(3).stderr.contains("catchment control"));
}
