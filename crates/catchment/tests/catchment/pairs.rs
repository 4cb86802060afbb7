//! Sessions whose sides use different providers, and ways that do not work. Software RoCE stands in
//! for RNICs; each test has a network namespace of its own, where UDP port 4791 is free.
use super::stand_in::{Broken, StandIn};
use catchment::collector::{Collector, CollectorBuilder};
use catchment::observe::{CollectorSnapshot, RoceSnapshot, SessionSnapshot, prometheus};
use catchment::session::path::PathRules;
use catchment::source::{DeviceSpec, Source, SourceBuilder, SourceError};
use catchment_netns::{Namespace, with_privilege};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const FRAME_BYTES: usize = 10_000;

/// What arrived: packet numbers and bytes.
type Log = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

fn only(providers: &[&str]) -> PathRules {
    PathRules {
        require: providers.iter().map(|&name| name.to_owned()).collect(),
        ..PathRules::default()
    }
}

/// A collector with an RNIC and a log, in the namespace of the calling thread.
fn collector(rnic: Broken, rules: PathRules) -> (CollectorBuilder, Log) {
    let log = Log::default();
    let record = log.clone();
    let builder = Collector::builder("127.0.0.1:0")
        .provider(StandIn::at(2, rnic))
        .path_rules(rules)
        .on_frame(move |frame| {
            let entry = (frame.packet_number(), frame.to_vec());
            record.lock().unwrap().push(entry);
        });
    (builder, log)
}

/// A source with an RNIC.
fn source(collector: &Collector, rnic: Broken, rules: PathRules) -> SourceBuilder {
    Source::builder(collector.local_addr().to_string())
        .provider(StandIn::at(3, rnic))
        .device(DeviceSpec::new("cam").frame_bytes(FRAME_BYTES))
        .path_rules(rules)
        .patience(PATIENCE)
}

fn picture(number: u64) -> Vec<u8> {
    let bytes = 1 + (number as usize * 977) % FRAME_BYTES;
    (0..bytes).map(|i| (i as u64 * 31 + number) as u8).collect()
}

/// Sends frames; what source and collector say of the session in between, and what came.
fn stream(source: SourceBuilder, collector: Collector) -> (SessionSnapshot, CollectorSnapshot) {
    let source = source.connect().unwrap();
    let mut device = source.device("cam").unwrap();
    for number in 0..50 {
        let bytes = picture(number);
        device.frame(bytes.len()).unwrap().send_bytes(&bytes).unwrap();
    }
    let session = source.metrics().snapshot().session.unwrap();
    let seen = collector.metrics().snapshot();
    drop(device);
    let metrics = Arc::clone(source.metrics());
    source.close(PATIENCE).unwrap();
    let ended = metrics.snapshot().roce;
    let counted = ended.iter().any(|device| device.packets_sent > 0);
    assert_eq!(counted, session.source_provider == "roce", "{ended:?}");
    let metrics = Arc::clone(collector.metrics());
    let stopped = collector.stop().roce;
    let received = |network: &[RoceSnapshot]| network.iter().map(|one| one.packets_received).sum();
    let (received, after): (u64, u64) = (received(&stopped), received(&metrics.snapshot().roce));
    assert_eq!(received, after, "also when the collector and its devices are gone");
    (session, seen)
}

/// All frames, once, in order.
#[track_caller]
fn check(log: &Log) {
    let log = log.lock().unwrap();
    let wanted: Vec<_> = (0..50).map(|number| (number, picture(number))).collect();
    assert!(*log == wanted, "{} frames of {}", log.len(), wanted.len());
}

/// Runs a test in a namespace of its own.
fn alone(test: &str, body: impl FnOnce() + Send) {
    let name = format!("pairs::{test}");
    with_privilege(&name, || Namespace::new().unwrap().run(body).unwrap());
}

/// A session between these; what it says of itself.
#[track_caller]
fn session(
    (source_rnic, source_rules): (Broken, PathRules),
    (collector_rnic, collector_rules): (Broken, PathRules),
) -> SessionSnapshot {
    let (builder, log) = collector(collector_rnic, collector_rules);
    let collector = builder.start().unwrap();
    let (session, seen) = stream(source(&collector, source_rnic, source_rules), collector);
    check(&log);
    let at_collector = &seen.sessions[0];
    let text = prometheus::collector_text(&seen);
    let gid = format!("source_gid=\"{}\"", session.source_gid);
    assert!(text.contains(&gid), "{text}");
    if session.provider == "roce" {
        assert!(seen.roce.iter().any(|device| device.packets_received > 0));
        let counted = "catchment_roce_packets_received_total{roce_device=\"127.0.0.1:";
        assert!(text.contains(counted), "{text}");
    }
    assert_eq!(
        (&at_collector.reason, at_collector.source_qpn),
        (&session.reason, session.source_qpn),
        "both sides say the same"
    );
    session
}

fn pair(session: &SessionSnapshot) -> (&str, &str) {
    (&session.source_provider, &session.provider)
}

#[test]
fn a_source_without_rnic_writes_into_a_collector_that_has_one_and_the_other_way_round() {
    alone(
        "a_source_without_rnic_writes_into_a_collector_that_has_one_and_the_other_way_round",
        || {
            let (soft, rnic) = (only(&["roce"]), only(&["ibverbs"]));
            let ok = Broken::Nothing;
            let seen = session((ok, soft.clone()), (ok, rnic.clone()));
            assert_eq!(pair(&seen), ("roce", "ibverbs"));
            assert_eq!(seen.recovery.as_deref(), Some("go-back-N"));
            assert_eq!(seen.path_mtu, Some(4096));
            let what = "RoCEv2 from 127.0.0.1 (roce) to 127.0.0.2 (ibverbs standin0), \
                        path MTU 4096, go-back-N";
            assert!(seen.reason.starts_with(what), "{}", seen.reason);
            let seen = session((ok, rnic.clone()), (ok, soft));
            assert_eq!(pair(&seen), ("ibverbs", "roce"));
            let seen = session((ok, rnic.clone()), (ok, rnic));
            assert_eq!(pair(&seen), ("ibverbs", "ibverbs"));
        },
    );
}

#[test]
fn a_path_that_does_not_carry_packets_gives_way_to_the_next_and_says_why() {
    alone("a_path_that_does_not_carry_packets_gives_way_to_the_next_and_says_why", || {
        let network = || only(&["ibverbs", "roce"]);
        // Nothing that the collector's RNIC sends arrives.
        let seen = session((Broken::Nothing, network()), (Broken::Cable, network()));
        assert_eq!(seen.provider, "roce", "{}", seen.reason);
        // Two ways to the same RNIC: their reason is told once if both waited as long, to the tenth of a millisecond.
        let ways = ["not ibverbs: ", "not ibverbs, not roce to ibverbs: "];
        let why = |way| format!("{way}no answer from 127.0.0.2 UDP port 4791 within");
        assert!(ways.into_iter().any(|way| seen.reason.contains(&why(way))), "{}", seen.reason);
        assert!(seen.reason.contains("open UDP port 4791 in both directions"));
    });
}

#[test]
fn a_way_that_takes_less_than_the_interfaces_say_gets_smaller_packets() {
    alone("a_way_that_takes_less_than_the_interfaces_say_gets_smaller_packets", || {
        let rnic = || only(&["ibverbs"]);
        let narrow = (Broken::LargePackets, rnic());
        let seen = session(narrow, (Broken::Nothing, rnic()));
        assert_eq!(seen.path_mtu, Some(1024), "{}", seen.reason);
    });
}

#[test]
fn an_rnic_that_cannot_register_memory_is_no_end() {
    alone("an_rnic_that_cannot_register_memory_is_no_end", || {
        let network = || only(&["ibverbs", "roce"]);
        // The source does without roce: it would have the UDP port that the collector's needs.
        let rnic = (Broken::Nothing, only(&["ibverbs"]));
        let seen = session(rnic, (Broken::Memory, network()));
        assert_eq!(pair(&seen), ("ibverbs", "roce"), "{}", seen.reason);
        let why = "not ibverbs: cannot allocate a ring of";
        assert!(seen.reason.contains(why), "{}", seen.reason);
        let seen = session((Broken::Memory, network()), (Broken::Nothing, network()));
        assert_eq!(pair(&seen), ("roce", "ibverbs"), "{}", seen.reason);
        assert!(seen.reason.contains("registering"), "{}", seen.reason);
    });
}

#[test]
fn where_no_way_is_left_the_source_says_so_and_comes_back() {
    alone("where_no_way_is_left_the_source_says_so_and_comes_back", || {
        let rnic = || only(&["ibverbs"]);
        let (builder, _) = collector(Broken::Cable, rnic());
        let collector = builder.start().unwrap();
        let source = source(&collector, Broken::Nothing, rnic());
        let error = source.patience(Duration::from_secs(4)).connect().err();
        let Some(SourceError::Unreachable { reason, .. }) = error else {
            panic!("{error:?}");
        };
        assert!(reason.contains("no answer from 127.0.0.2"), "{reason}");
        let refused = collector.stop().sessions_refused;
        assert!(refused["path_failed"] > 0, "{refused:?}");
        assert!(refused["no_path"] > 0, "{refused:?}");
    });
}
