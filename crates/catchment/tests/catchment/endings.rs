//! How sources and collectors end, and what happens around ends: sinks that are stuck, refuse or
//! panic, takeovers, certificates.
use crate::{Full, PATIENCE, collector};
use catchment::Frame;
use catchment::collector::Collector;
use catchment::session::cert::{Authority, LEAF_VALIDITY};
use catchment::sink::{DirectorySink, SinkError};
use catchment::source::{DeviceSpec, Source, SourceBuilder, SourceError};
use catchment_netns::wait_until;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// A source of these devices, of frames of 100 bytes.
fn cameras(at: impl ToString, devices: &[impl AsRef<str>]) -> SourceBuilder {
    let builder = Source::builder(at.to_string()).patience(PATIENCE);
    devices.iter().fold(builder, |builder, name| {
        builder.device(DeviceSpec::new(name.as_ref()).frame_bytes(100))
    })
}

fn source(collector: &Collector, device: &str) -> Source {
    cameras(collector.local_addr(), &[device]).connect().unwrap()
}

/// A collector whose frames stay in the list, and so do their blocks.
fn keeping() -> (Collector, Arc<Mutex<Vec<Frame>>>) {
    let held: Arc<Mutex<Vec<Frame>>> = Arc::default();
    let keep = held.clone();
    let builder = collector().on_frame(move |frame| keep.lock().unwrap().push(frame));
    (builder.start().unwrap(), held)
}

fn send(source: &Source, device: &str, frames: u8) {
    let mut device = source.device(device).unwrap();
    for n in 0..frames {
        device.frame(3).unwrap().send_bytes(&[n; 3]).unwrap();
    }
}

/// A door that every frame goes through.
#[derive(Clone, Default)]
struct Door(Arc<Mutex<()>>);

impl Door {
    fn pass(&self) {
        drop(self.0.lock().unwrap());
    }
}

/// A collector all of whose frames go through the door.
fn behind_a_door() -> (Door, Collector) {
    let door = Door::default();
    let sink = door.clone();
    (door, collector().on_frame(move |_| sink.pass()).start().unwrap())
}

#[test]
fn close_says_so_when_frames_did_not_arrive_in_time() {
    let (door, collector) = behind_a_door();
    let source = source(&collector, "cam");
    let closed = door.0.lock().unwrap();
    send(&source, "cam", 5);
    let result = source.close(Duration::from_millis(300));
    assert!(
        matches!(result, Err(SourceError::Undelivered { frames: 1..=5, .. })),
        "{:?}",
        result.map(|report| report.totals)
    );
    drop(closed);
}

#[test]
fn a_collector_ends_although_its_sink_is_stuck_and_the_next_one_gets_the_frames() {
    let out = tempfile::tempdir().unwrap();
    let (door, first) = behind_a_door();
    let at = first.local_addr().to_string();
    let source = source(&first, "cam");
    let closed = door.0.lock().unwrap();
    send(&source, "cam", 5);
    // The door is closed: to wait for the sink would be to wait for ever.
    first.stop_within(Duration::from_millis(500));
    let second = Collector::builder(at).sink(DirectorySink::new(out.path())).start().unwrap();
    source.close(PATIENCE).unwrap();
    assert_eq!(second.stop().totals.frames_lost, 0);
    let files = std::fs::read_dir(out.path().join("cam")).unwrap().count();
    assert_eq!(files, 5, "what a sink did not take is sent to the next collector");
    drop(closed);
}

#[test]
fn frames_that_a_sink_refused_to_the_end_go_to_the_next_collector() {
    let out = tempfile::tempdir().unwrap();
    let full = Full(|| SinkError::DiskFull {
        path: PathBuf::from("/full"),
        available_bytes: 0,
        reserve_bytes: 1,
        advice: "wait",
    });
    let first = collector().sink(full).start().unwrap();
    let at = first.local_addr().to_string();
    let source = source(&first, "cam");
    send(&source, "cam", 6);
    wait_until("a refusal", || first.metrics().snapshot().totals.sink_errors > 0);
    first.stop_within(Duration::from_millis(300));
    let second = Collector::builder(at).sink(DirectorySink::new(out.path())).start().unwrap();
    source.close(PATIENCE).unwrap();
    let report = second.stop();
    assert_eq!((report.totals.frames_received, report.totals.frames_lost), (6, 0));
}

#[test]
fn a_sink_that_panics_costs_one_frame_and_no_thread() {
    let collector = collector()
        .workers(1)
        .on_frame(|frame: Frame| assert_ne!(frame.packet_number(), 3, "on purpose"))
        .start()
        .unwrap();
    let source = source(&collector, "cam");
    send(&source, "cam", 10);
    let error = source.close(PATIENCE).err().unwrap();
    assert!(matches!(error, SourceError::Lost { frames: 1 }), "{error}");
    let totals = collector.stop().totals;
    assert_eq!((totals.frames_received, totals.sink_errors, totals.lost_sink), (9, 1, 1));
    assert_eq!(totals.ledger().check("cam", "collector"), Ok(()));
}

/// Operators watch reconnects: a source that goes away on purpose has none.
#[test]
fn a_source_that_is_dropped_has_not_reconnected() {
    let collector = collector().on_frame(|_: Frame| ()).start().unwrap();
    let source = source(&collector, "cam");
    send(&source, "cam", 3);
    wait_until("the frames", || collector.metrics().snapshot().totals.frames_received == 3);
    let metrics = Arc::clone(source.metrics());
    drop(source);
    assert_eq!(metrics.snapshot().reconnects, 0);
    collector.stop();
}

/// The source comes back while its old session still delivers: nothing comes twice.
#[test]
fn a_source_that_comes_back_waits_until_its_old_frames_are_delivered() {
    let (door, seen) = (Door::default(), Arc::new(Mutex::new(Vec::new())));
    let (sink, log) = (door.clone(), seen.clone());
    let collector = collector()
        .lease(Duration::from_millis(1500))
        .on_frame(move |frame: Frame| {
            sink.pass();
            log.lock().unwrap().push(frame.packet_number());
        })
        .start()
        .unwrap();
    let proxy = Proxy::start(collector.local_addr().to_string());
    let source = cameras(&proxy.at, &["cam"]).connect().unwrap();
    let closed = door.0.lock().unwrap();
    send(&source, "cam", 5);
    // The connection breaks again and again, for longer than a takeover may last.
    for _ in 0..8 {
        proxy.cut();
        // The time between two breaks is what is tested.
        std::thread::sleep(Duration::from_millis(500));
    }
    drop(closed);
    let report = source.close(PATIENCE).unwrap();
    assert!(report.reconnects > 0);
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3, 4]);
    let totals = collector.stop().totals;
    assert_eq!((totals.frames_received, totals.frames_lost), (5, 0));
}

/// Carries control connections, and can cut them.
struct Proxy {
    at: String,
    open: Arc<Mutex<Vec<std::net::TcpStream>>>,
}

impl Proxy {
    fn start(to: String) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let open: Arc<Mutex<Vec<std::net::TcpStream>>> = Arc::default();
        let all = open.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = std::net::TcpStream::connect(&to) else { return };
                let pairs = [(&near, &far), (&far, &near)];
                for (from, to) in pairs {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
                all.lock().unwrap().extend([near, far]);
            }
        });
        Self { at, open }
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

#[test]
fn a_source_of_many_devices_survives_cut_connections() {
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    let collector = collector()
        .on_frame(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .start()
        .unwrap();
    let proxy = Proxy::start(collector.local_addr().to_string());
    let names: Vec<_> = (0..6).map(|i| format!("cam{i}")).collect();
    let source = cameras(&proxy.at, &names).connect().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = names
            .iter()
            .map(|name| {
                let mut device = source.device(name).unwrap();
                scope.spawn(move || {
                    for n in 0..400u64 {
                        device.frame(80).unwrap().send_bytes(&[n as u8; 80]).unwrap();
                        // The rate of the device.
                        std::thread::sleep(Duration::from_micros(500));
                    }
                })
            })
            .collect();
        let done = &done;
        let proxy = &proxy;
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                // The time between two breaks is what is tested.
                std::thread::sleep(Duration::from_millis(80));
                proxy.cut();
            }
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let report = source.close(PATIENCE).unwrap();
    assert!(report.reconnects > 0);
    assert_eq!(report.totals.frames_sent, 2400, "each is counted once");
    let totals = collector.stop().totals;
    assert_eq!((totals.frames_received, totals.frames_lost), (2400, 0));
    assert_eq!(seen.load(Ordering::Relaxed), 2400);
}

/// Threads that wait for room share one doorbell. None of them may sleep through its release.
/// A thread that no release woke would sleep beyond the patience of the test.
#[test]
fn every_thread_that_waits_for_room_wakes_at_once() {
    const DEVICES: usize = 16;
    const ROUNDS: u64 = 20;
    let (collector, held) = keeping();
    let names: Vec<_> = (0..DEVICES).map(|i| format!("cam{i}")).collect();
    let source = cameras(collector.local_addr(), &names).blocks(DEVICES as u32).connect().unwrap();
    let waiting = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for name in &names {
            let mut device = source.device(name).unwrap();
            let waiting = &waiting;
            scope.spawn(move || {
                for n in 0..ROUNDS {
                    waiting.fetch_add(1, Ordering::Relaxed);
                    while device.try_frame(8).unwrap().is_none() {
                        device.wait_for_room(PATIENCE * 2);
                    }
                    waiting.fetch_sub(1, Ordering::Relaxed);
                    device.frame(8).unwrap().send_bytes(&n.to_le_bytes()).unwrap();
                }
                waiting.fetch_add(1, Ordering::Relaxed);
            });
        }
        for _ in 0..ROUNDS {
            wait_until("a frame of each", || held.lock().unwrap().len() == DEVICES);
            // No block is left: every thread waits, or is done.
            wait_until("all threads", || waiting.load(Ordering::Relaxed) == DEVICES as u64);
            let frames = std::mem::take(&mut *held.lock().unwrap());
            drop(frames);
        }
    });
    source.close(PATIENCE).unwrap();
}

#[test]
fn blocks_in_flight_and_looks_at_status_bytes_are_counted() {
    let (collector, held) = keeping();
    let source = source(&collector, "cam");
    send(&source, "cam", 5);
    wait_until("five frames", || held.lock().unwrap().len() == 5);
    let at_collector = || collector.metrics().snapshot().devices[0].blocks_in_flight;
    assert_eq!(at_collector(), 5);
    let at_source = || source.metrics().snapshot().devices[0].blocks_in_flight;
    wait_until("the source's report", || at_source() == 5);
    held.lock().unwrap().clear();
    assert_eq!(at_collector(), 0);
    let report = source.close(PATIENCE).unwrap();
    assert_eq!(report.devices[0].blocks_in_flight, 0);
    collector.stop();
}

#[test]
fn a_directory_with_a_number_that_no_source_can_continue_is_refused() {
    let out = tempfile::tempdir().unwrap();
    std::fs::create_dir(out.path().join("cam")).unwrap();
    std::fs::write(out.path().join("cam").join(u64::MAX.to_string()), b"x").unwrap();
    let collector = collector().sink(DirectorySink::new(out.path())).start().unwrap();
    let builder = cameras(collector.local_addr(), &["cam"]);
    let error = builder.patience(Duration::from_millis(500)).connect().err().unwrap().to_string();
    assert!(error.contains(&u64::MAX.to_string()), "{error}");
}

#[test]
fn certificates_decide_who_may_send() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let now = SystemTime::now();
    let [ours, theirs] = dirs.each_ref().map(|dir| Authority::create(dir.path(), now).unwrap());
    let issue = |authority: &Authority, name: &str, from| {
        authority.issue(name, &["localhost", "127.0.0.1"], from, LEAF_VALIDITY).unwrap().files
    };
    let collector = collector().tls(issue(&ours, "collector", now)).start().unwrap();
    let at = collector.local_addr().to_string();
    let source = || cameras(&at, &["cam"]).patience(Duration::from_secs(3));
    let old = now - LEAF_VALIDITY - Duration::from_secs(86_400);
    let refused = || collector.metrics().snapshot().sessions_refused.values().sum::<u64>();
    for (case, source, wanted) in [
        ("another authority", source().tls(issue(&theirs, "source", now)), "certificate authority"),
        ("expired", source().tls(issue(&ours, "old", old)), "expired"),
        ("none", source(), "TLS"),
    ] {
        let text = source.connect().err().unwrap().to_string();
        assert!(text.contains(wanted), "{case}: {text}");
        wait_until(case, || refused() > 0);
    }
    let good = source().tls(issue(&ours, "source", now)).connect().unwrap();
    send(&good, "cam", 4);
    good.close(PATIENCE).unwrap();
    assert_eq!(collector.stop().totals.frames_received, 4);
}

#[test]
fn listening_to_everybody_without_certificates_is_refused_with_the_remedy() {
    let error = Collector::builder("0.0.0.0:0").start().err().unwrap().to_string();
    assert!(error.contains("--insecure") || error.contains("certificate"), "{error}");
}
