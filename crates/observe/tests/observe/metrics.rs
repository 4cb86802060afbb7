//! The recorders: that nothing is lost, that devices may come and go, what recording costs, and
//! that Prometheus can read it all.
use super::SECOND;
use catchment_observe::cpu::{CpuError, CpuMeter};
use catchment_observe::{
    CollectorMetrics, CollectorSnapshot, DeviceCounters, DropCause, FrameObservation, Granting,
    LossCause, Sampler, SessionSnapshot, SourceMetrics, SourceTotals, Standing, prometheus,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

fn frame(latency_ns: u64) -> FrameObservation {
    super::frame(1_000, latency_ns)
}

#[test]
fn nothing_is_lost_between_threads_while_others_look_and_devices_change() {
    let metrics = CollectorMetrics::new();
    let device = metrics.add_device("shared", "raw");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (device, metrics) = (&device, &metrics);
            scope.spawn(move || {
                for i in 0..50_000 {
                    device.frame_received(&frame(i));
                    device.blocks_taken(2);
                    device.blocks_released(2);
                    if i % 5_000 == 0 {
                        let other = metrics.add_device(&format!("other{thread}"), "raw");
                        other.frames_lost(LossCause::Missing, 1);
                        metrics.remove_device(&format!("other{thread}"));
                    }
                }
            });
        }
        let mut last = DeviceCounters::default();
        for _ in 0..200 {
            let now = metrics.snapshot().totals;
            assert!(now.frames_received >= last.frames_received, "a counter went back");
            assert!(now.frames_lost >= last.frames_lost, "a removed device left the totals");
            last = now;
        }
    });
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.devices.len(), 1);
    assert_eq!(snapshot.totals.frames_received, 200_000);
    assert_eq!(snapshot.totals.bytes_received, 200_000_000);
    assert_eq!(snapshot.totals.frames_lost, 40);
    assert_eq!(snapshot.histogram.count(), 200_000);
    assert_eq!(snapshot.devices[0].blocks_in_flight, 0);
}

#[test]
fn what_is_recorded_after_the_removal_still_counts() {
    let metrics = CollectorMetrics::new();
    let device = metrics.add_device("cam0", "raw");
    assert!(metrics.remove_device("cam0"));
    assert!(!metrics.remove_device("cam0"));
    device.frame_received(&frame(1));
    assert_eq!(metrics.snapshot().totals.frames_received, 1);
    drop(device);
    for _ in 0..2 {
        assert_eq!(metrics.snapshot().totals.frames_received, 1);
        assert_eq!(metrics.snapshot().histogram.count(), 1);
    }
}

#[test]
fn a_device_that_comes_back_goes_on_counting() {
    let metrics = CollectorMetrics::new();
    let first = metrics.add_device("cam0", "640x480:rgb24");
    first.frame_received(&frame(1));
    first.set_connected(false);
    assert!(!metrics.snapshot().devices[0].connected);
    metrics.add_device("cam0", "640x480:h264").frame_received(&frame(1));
    let device = &metrics.snapshot().devices[0];
    assert_eq!((device.counters.frames_received, device.connected), (2, true));
    assert_eq!((device.format.as_str(), device.has_preview), ("640x480:h264", false));
}

#[test]
fn reports_of_a_source_add_up_over_restarts_and_repeats() {
    let metrics = CollectorMetrics::new();
    let device = metrics.add_device("cam0", "raw");
    let report = |instance, sent, dropped| {
        let totals =
            SourceTotals { frames_sent: sent, dropped_oldest: dropped, ..SourceTotals::default() };
        device.source_reported(instance, totals);
    };
    report(1, 10, 1);
    report(1, 10, 1);
    report(1, 15, 1);
    report(2, 20, 3);
    let counters = metrics.snapshot().devices[0].counters;
    assert_eq!((counters.source_frames_sent, counters.source_dropped_oldest), (35, 4));
}

#[test]
fn a_capture_time_in_the_future_is_counted_and_kept_out_of_the_latency() {
    let metrics = CollectorMetrics::new();
    let device = metrics.add_device("cam0", "raw");
    device.frame_received(&FrameObservation { captured_unix_ns: 3 * SECOND, ..frame(5) });
    device.frame_received(&FrameObservation { captured_unix_ns: 0, ..frame(5) });
    let device = &metrics.snapshot().devices[0];
    assert_eq!((device.counters.frames_received, device.counters.frames_capture_ahead), (2, 1));
    assert_eq!(device.latency.latency_us_max, None);
}

#[test]
fn sessions_paths_and_refusals() {
    let metrics = CollectorMetrics::new();
    let first = metrics.session_opened(SessionSnapshot::new("shm", "shm", "same host"));
    let second = metrics.session_opened(SessionSnapshot::new("shm", "shm", "same host"));
    metrics.session_refused("name_taken");
    drop(first);
    let snapshot = metrics.snapshot();
    assert_eq!((snapshot.sessions_open, snapshot.sessions_total), (1, 2));
    assert_eq!(snapshot.paths.len(), 1);
    assert_eq!(snapshot.sessions_refused["name_taken"], 1);
    drop(second);
    assert_eq!(metrics.snapshot().sessions_open, 0);
}

#[test]
fn endless_different_reasons_do_not_grow_without_bound() {
    let metrics = CollectorMetrics::new();
    for i in 0..1_000 {
        drop(metrics.session_opened(SessionSnapshot::new("shm", "shm", &format!("reason {i}"))));
    }
    let snapshot = metrics.snapshot();
    assert!(snapshot.paths.len() <= 65, "{} paths", snapshot.paths.len());
    assert_eq!((snapshot.sessions_open, snapshot.sessions_total), (0, 1_000));
}

#[test]
fn rates_are_of_the_last_seconds_and_a_new_device_begins_at_zero() {
    let metrics = CollectorMetrics::new();
    let mut sampler = Sampler::new(metrics.clone());
    assert!(sampler.sample().recent.is_none(), "one look has no rate");
    let device = metrics.add_device("late", "raw");
    let start = Instant::now();
    // A rate needs time between two looks.
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..60 {
        device.frame_received(&frame(7_000));
    }
    let sample = sampler.sample();
    let seconds = start.elapsed().as_secs_f64();
    let recent = sample.devices[0].recent.unwrap();
    // Both looks lie outside the measured time: the rate can only be lower, by little.
    let highest = 60.0 / 0.3;
    assert!(recent.frames_per_s <= highest && recent.frames_per_s > 60.0 / seconds * 0.5);
    assert!((recent.bytes_per_s / recent.frames_per_s - 1_000.0).abs() < 1e-6);
    assert_eq!(recent.latency_us_p50, Some(7.0));
    assert_eq!(sampler.sample().devices[0].recent.unwrap().latency_us_p50, Some(7.0));
}

#[test]
fn cpu_of_this_process_and_of_a_child_is_seen() {
    let mut own = CpuMeter::this_process();
    let mut child =
        std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut other = CpuMeter::process(child.id()).unwrap();
    let mut used_s = [0.0; 2];
    let end = Instant::now() + Duration::from_secs(60);
    // The system counts in hundredths of a second, and how much of a core each gets depends on the machine.
    let both = loop {
        let mut spin = 0u64;
        (0..1_000_000).for_each(|_| spin = std::hint::black_box(spin.wrapping_add(1)));
        let both = [own.sample().unwrap(), other.sample().unwrap()];
        used_s.iter_mut().zip(&both).for_each(|(used_s, sample)| *used_s += sample.cpu_s);
        if used_s.iter().all(|used_s| *used_s > 0.0) || Instant::now() > end {
            break both;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(used_s.iter().all(|used_s| *used_s > 0.0), "{used_s:?}");
    assert!(both.iter().all(|sample| sample.rss_bytes > 100_000), "{both:?}");
    assert!(matches!(other.sample(), Err(CpuError::Gone(pid)) if pid == child.id()));
}

/// A collector with every metric in use and names that want to break out of their quotes.
fn full_collector() -> CollectorSnapshot {
    let metrics = CollectorMetrics::new();
    std::mem::forget(
        metrics.session_opened(SessionSnapshot::new("shm", "shm", "a \"quoted\" reason")),
    );
    metrics.session_refused("name_taken");
    for name in ["plain", "quo\"te", "back\\slash", "new\nline", "bra}ce,x=\"1\""] {
        let device = metrics.add_device(name, "2x2:gray8");
        for ns in [3_000, 4_096, 4_097, 1_000_000, u64::MAX / 2] {
            device.frame_received(&frame(ns));
        }
        device.frames_lost(LossCause::Damaged, 3);
    }
    let mut sampler = Sampler::new(metrics);
    CollectorSnapshot::clone(&sampler.sample())
}

/// A sample line: name, labels, value.
type Line = (String, BTreeMap<String, String>, f64);

/// Reads the text format as its specification says; panics on anything else.
fn parse(text: &str) -> Vec<Line> {
    let mut typed = BTreeMap::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<_> = comment.splitn(3, ' ').collect();
            if words[0] == "TYPE" {
                assert!(
                    typed.insert(words[1].to_owned(), words[2]).is_none(),
                    "type twice: {line}"
                );
            }
            continue;
        }
        let parsed = parse_line(line);
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
            let family = parsed.0.strip_suffix(end)?;
            (typed.get(family) == Some(&"histogram")).then_some(family)
        });
        assert!(typed.contains_key(family.unwrap_or(&parsed.0)), "no type before {line}");
        lines.push(parsed);
    }
    lines
}

fn parse_line(line: &str) -> Line {
    let (name, mut rest) = line.split_at(line.find(['{', ' ']).expect("a name"));
    assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "name {name}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (key, value) = rest.split_once("=\"").expect("a label");
            let (value, after) = unquote(value);
            labels.insert(key.trim_start_matches(',').to_owned(), value);
            rest = after;
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("a space before the value");
    (name.to_owned(), labels, value.parse().expect("a number"))
}

fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return (value, &text[i + 1..]),
            '\\' => match chars.next().expect("an escaped character").1 {
                'n' => value.push('\n'),
                c @ ('"' | '\\') => value.push(c),
                other => panic!("unknown escape {other}"),
            },
            c => value.push(c),
        }
    }
    panic!("no closing quote: {text}")
}

#[test]
fn prometheus_reads_every_line_and_gets_the_names_back() {
    let snapshot = full_collector();
    let lines = parse(&prometheus::collector_text(&snapshot));
    let received: BTreeMap<_, _> = lines
        .iter()
        .filter(|(name, ..)| name == "catchment_frames_received_total")
        .map(|(_, labels, value)| (labels["device"].as_str(), *value))
        .collect();
    let want: BTreeMap<_, _> = snapshot.devices.iter().map(|d| (d.name.as_str(), 5.0)).collect();
    assert_eq!(received, want);
    let path = lines.iter().find(|(name, ..)| name == "catchment_path_info").unwrap();
    assert_eq!(path.1["reason"], "a \"quoted\" reason");
}

#[test]
fn latency_buckets_are_exact_at_their_bounds_and_cumulative() {
    let lines = parse(&prometheus::collector_text(&full_collector()));
    let buckets: Vec<(f64, f64)> = lines
        .iter()
        .filter(|(name, labels, _)| {
            name == "catchment_frame_latency_seconds_bucket" && labels["device"] == "plain"
        })
        .map(|(_, labels, count)| (labels["le"].parse().unwrap(), *count))
        .collect();
    assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
    assert_eq!(buckets[0], (4_096e-9, 2.0), "3,000 and 4,096 ns, but not 4,097");
    assert_eq!(buckets[1], (8_192e-9, 3.0));
    assert_eq!(buckets.last(), Some(&(f64::INFINITY, 5.0)));
    let count = lines.iter().find(|(name, labels, _)| {
        name == "catchment_frame_latency_seconds_count" && labels["device"] == "plain"
    });
    assert_eq!(count.unwrap().2, 5.0);
}

/// The first words of the rows of the tables in the reference, but for those of an agent and of a controller: the
/// command compares its own.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../../docs/reference/metrics.md");
    let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let of_others = ["catchment_agent_", "catchment_control_"];
    let is_ours = |name: &String| !of_others.iter().any(|prefix| name.starts_with(prefix));
    page.lines().filter_map(name).filter(is_ours).collect()
}

fn exported() -> BTreeSet<String> {
    let source = SourceMetrics::new();
    let device = source.add_device("cam0", "raw");
    device.frame_sent(5);
    device.frame_dropped(DropCause::Oldest);
    device.frame_dropped(DropCause::Newest);
    device.waited_for_block(Duration::from_millis(5));
    source.status_reads(1);
    source.reconnected();
    let (standing, grants, safe_rate_bps) = (Standing::Waiting, 5, 7_000_000);
    source.granting_is(Granting { standing, blocks_waiting: 3, grants, safe_rate_bps });
    let texts = [
        prometheus::collector_text(&full_collector()),
        prometheus::source_text(&source.snapshot()),
    ];
    texts.iter().for_each(|text| drop(parse(text)));
    let name = |line: &str| Some(line.strip_prefix("# TYPE ")?.split_once(' ')?.0.to_owned());
    texts.iter().flat_map(|text| text.lines().filter_map(name)).collect()
}

#[test]
fn the_reference_lists_exactly_the_metrics_that_are_exported() {
    assert_eq!(documented(), exported());
}

#[test]
fn a_source_counts_drops_by_cause_and_waits() {
    let source = SourceMetrics::new();
    let device = source.add_device("cam0", "raw");
    device.frame_sent(100);
    device.frame_dropped(DropCause::Newest);
    device.waited_for_block(Duration::from_micros(3));
    device.blocks_taken(2);
    source.add_device("cam0", "raw").blocks_released(1);
    let snapshot = source.snapshot();
    let counters = snapshot.devices[0].counters;
    assert_eq!((counters.frames_sent, counters.bytes_sent), (1, 100));
    assert_eq!((counters.dropped_oldest, counters.dropped_newest), (0, 1));
    assert_eq!((counters.block_waits, counters.block_wait_ns), (1, 3_000));
    assert_eq!((snapshot.devices.len(), snapshot.devices[0].blocks_in_flight), (1, 1));
    assert_eq!(snapshot.totals, counters);
}
