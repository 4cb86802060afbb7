//! A collector whose provider rings nobody, as with RNICs: frames arrive all the same, soon, and
//! looking for them costs little. Alone in its process, to find its one receiving thread.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use catchment::collector::Collector;
use catchment::roce::RoceOptions;
use catchment::session::path::PathRules;
use catchment::source::{DeviceSpec, Source};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const FRAMES: u64 = 300;
const FRAME_BYTES: usize = 20_000;

/// Clock ticks in a second, as /proc counts processor time.
const TICKS: f64 = 100.0;

fn rules() -> PathRules {
    PathRules { require: vec!["roce".to_owned()], ..PathRules::default() }
}

fn collector(doorbell: bool, look_every: Duration) -> Collector {
    let roce = RoceOptions { doorbell, ..RoceOptions::default() };
    let builder = Collector::builder("127.0.0.1:0").look_every(look_every);
    builder.path_rules(rules()).provider(roce).start().unwrap()
}

fn source(collector: &Collector) -> Source {
    Source::builder(collector.local_addr().to_string())
        .device(DeviceSpec::new("cam").frame_bytes(FRAME_BYTES))
        .path_rules(rules())
        .patience(PATIENCE)
        .connect()
        .unwrap()
}

/// The directory under /proc of the thread that receives.
fn receiving_thread() -> PathBuf {
    let mut threads =
        std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    let receives =
        |dir: &PathBuf| std::fs::read_to_string(dir.join("comm")).unwrap() == "catchment-recv0\n";
    threads.find(receives).expect("a thread that receives")
}

/// Seconds of processor time of a thread so far: fields 14 and 15, after the name in brackets.
fn cpu_s(thread: &std::path::Path) -> f64 {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let field = |n: usize| -> f64 { after_name.split(' ').nth(n).unwrap().parse().unwrap() };
    (field(11) + field(12)) / TICKS
}

/// Sends frames at this pace; the share of a processor that receiving took.
fn stream(source: &Source, pace: Duration) -> f64 {
    let thread = receiving_thread();
    let mut device = source.device("cam").unwrap();
    let (start, before) = (Instant::now(), cpu_s(&thread));
    let bytes = vec![7; FRAME_BYTES];
    for _ in 0..FRAMES {
        device.frame(FRAME_BYTES).unwrap().send_bytes(&bytes).unwrap();
        // The pace of the camera.
        std::thread::sleep(pace);
    }
    (cpu_s(&thread) - before) / start.elapsed().as_secs_f64()
}

fn check(collector: Collector, source: Source) -> String {
    source.close(PATIENCE).unwrap();
    let report = collector.stop();
    let seen = &report.devices[0].counters;
    assert_eq!((seen.frames_received, seen.frames_lost), (FRAMES, 0));
    assert_eq!(seen.frames_verified, FRAMES);
    format!(
        "p50 {:.0?} us, p99 {:.0?} us",
        report.latency.latency_us_p50, report.latency.latency_us_p99
    )
}

#[test]
fn frames_arrive_without_a_doorbell_and_waiting_costs_little() {
    const MS: Duration = Duration::from_millis(1);
    let cases = [(true, MS), (false, MS), (false, MS / 10), (false, Duration::ZERO)];
    for (doorbell, look_every) in cases {
        let collector = collector(doorbell, look_every);
        let source = source(&collector);
        let busy = stream(&source, Duration::from_millis(3));
        let thread = receiving_thread();
        let before = cpu_s(&thread);
        // Time in which nothing is sent.
        std::thread::sleep(Duration::from_millis(1_000));
        let idle = cpu_s(&thread) - before;
        let latency = check(collector, source);
        println!(
            "doorbell {doorbell}, looks every {look_every:?}: receiving takes {:.1} % of a \
             processor, idle {:.1} %, {latency}",
            100.0 * busy,
            100.0 * idle
        );
        // A thread that looks all the time takes all of it.
        let spins = look_every.is_zero();
        assert!(spins || idle < 0.5, "{idle} s of processor time in a second of nothing");
    }
}
