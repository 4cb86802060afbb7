//! Frames from a source to a collector: what a program that uses the library relies on.
use crate::{Log, PATIENCE, collector, logged, logging};
use catchment::Frame;
use catchment::collector::Collector;
use catchment::sink::DirectorySink;
use catchment::source::{
    Decision, DeviceSpec, FrameWriter, Permit, PermitRequest, Policy, Sent, Source, SourceBuilder,
};
use catchment_netns::wait_until;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn source(collector: &Collector) -> SourceBuilder {
    Source::builder(collector.local_addr().to_string()).patience(PATIENCE)
}

/// Bytes that tell device and frame apart.
fn bytes_of(device: usize, number: u64, bytes: usize) -> Vec<u8> {
    let seed = device as u64 * 1_000_003 + number;
    (0..bytes as u64)
        .map(|i| ((seed + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn numbers(log: &Log, device: &str) -> Vec<u64> {
    let log = log.lock().unwrap();
    log.iter().filter(|f| f.device == device).map(|f| f.packet_number).collect()
}

fn send(frame: FrameWriter<'_>, bytes: &[u8]) -> Sent {
    frame.send_bytes(bytes).unwrap()
}

/// Opens and closes; counts how often it was asked while closed.
#[derive(Debug, Default)]
struct Barrier {
    open: AtomicBool,
    refused: AtomicU32,
}

impl Permit for Barrier {
    fn decide(&self, _: PermitRequest) -> Decision {
        if self.open.load(Ordering::SeqCst) {
            return Decision::Go;
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        Decision::Wait
    }
}

#[test]
fn a_permit_holds_frames_back_until_the_source_is_woken() {
    for in_place in [true, false] {
        let (log, collector) = logged();
        let barrier = Arc::new(Barrier::default());
        let source = source(&collector)
            .device(DeviceSpec::new("cam0").frame_bytes(5000))
            .in_place(in_place)
            .permit(Arc::clone(&barrier) as Arc<dyn Permit>)
            .connect()
            .unwrap();
        let mut device = source.device("cam0").unwrap();
        let sender = std::thread::spawn(move || {
            for n in 0..20 {
                send(device.frame(5000).unwrap(), &bytes_of(0, n, 5000));
            }
        });
        wait_until("a question", || barrier.refused.load(Ordering::SeqCst) > 0);
        assert!(numbers(&log, "cam0").is_empty());
        barrier.open.store(true, Ordering::SeqCst);
        source.wake();
        sender.join().unwrap();
        let report = source.close(PATIENCE).unwrap();
        assert_eq!(report.totals.frames_sent, 20);
        assert_eq!(collector.stop().totals.frames_lost, 0);
        assert_eq!(numbers(&log, "cam0"), (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn many_devices_over_one_queue_pair_arrive_whole_and_in_order() {
    for in_place in [true, false] {
        let (log, collector) = logged();
        let builder = (0..12).fold(source(&collector), |builder, i| {
            builder.device(DeviceSpec::new(format!("cam{i}")).frame_bytes(5000))
        });
        let source = builder.in_place(in_place).connect().unwrap();
        std::thread::scope(|scope| {
            for i in 0..12 {
                let mut device = source.device(&format!("cam{i}")).unwrap();
                scope.spawn(move || {
                    for n in 0..100 {
                        let bytes = bytes_of(i, n, 1 + (n as usize * 37) % 5000);
                        send(device.frame(bytes.len()).unwrap(), &bytes);
                    }
                });
            }
        });
        let report = source.close(PATIENCE).unwrap();
        assert_eq!(report.totals.frames_sent, 1200);
        let report = collector.stop();
        assert_eq!(report.totals.frames_received, 1200);
        assert_eq!(report.totals.frames_verified, 1200);
        assert_eq!(report.totals.frames_lost, 0);
        for i in 0..12 {
            assert_eq!(numbers(&log, &format!("cam{i}")), (0..100).collect::<Vec<_>>());
        }
        for frame in log.lock().unwrap().iter() {
            let (i, n) = (frame.device[3..].parse().unwrap(), frame.packet_number);
            assert_eq!(frame.bytes, bytes_of(i, n, 1 + (n as usize * 37) % 5000));
        }
    }
}

#[test]
fn a_frame_larger_than_a_block_goes_over_several() {
    let (log, collector) = logged();
    let source = source(&collector)
        .device(DeviceSpec::new("big"))
        .block_bytes(4096)
        .blocks(8)
        .connect()
        .unwrap();
    let mut device = source.device("big").unwrap();
    let frames: Vec<_> = (0..20).map(|n| bytes_of(0, n, 100_000 + n as usize)).collect();
    for bytes in &frames {
        let mut frame = device.frame(bytes.len()).unwrap();
        frame.write_all(bytes).unwrap();
        frame.send().unwrap();
    }
    source.close(PATIENCE).unwrap();
    collector.stop();
    let seen: Vec<_> = log.lock().unwrap().iter().map(|f| f.bytes.clone()).collect();
    assert!(seen == frames, "{} frames of {}", seen.len(), frames.len());
}

#[test]
fn large_frames_take_turns_when_there_is_memory_for_one() {
    const FRAME_BYTES: usize = 400_000;
    let log = Log::default();
    let collector = collector()
        .ring_bytes_total(FRAME_BYTES as u64 + 100_000)
        .on_frame(logging(&log))
        .start()
        .unwrap();
    let names: Vec<String> = (0..4).map(|i| format!("big{i}")).collect();
    let builder = source(&collector).block_bytes(4096).blocks(16);
    let builder = names.iter().fold(builder, |b, name| b.device(DeviceSpec::new(name)));
    let source = builder.connect().unwrap();
    std::thread::scope(|scope| {
        for (i, name) in names.iter().enumerate() {
            let mut device = source.device(name).unwrap();
            scope.spawn(move || {
                for number in 0..5 {
                    let mut frame = device.frame(FRAME_BYTES).unwrap();
                    frame.write_all(&bytes_of(i, number, FRAME_BYTES)).unwrap();
                    frame.send().unwrap();
                }
            });
        }
    });
    source.close(PATIENCE).unwrap();
    collector.stop();
    for (i, name) in names.iter().enumerate() {
        assert_eq!(numbers(&log, name), (0..5).collect::<Vec<_>>());
        let log = log.lock().unwrap();
        for frame in log.iter().filter(|frame| frame.device == *name) {
            let number = frame.packet_number;
            assert!(frame.bytes == bytes_of(i, number, FRAME_BYTES), "{name} {number}");
        }
    }
}

#[test]
fn a_collector_that_comes_back_gets_every_frame_once() {
    let out = tempfile::tempdir().unwrap();
    let start =
        |at: &str| Collector::builder(at).sink(DirectorySink::new(out.path())).start().unwrap();
    let first = start("127.0.0.1:0");
    let at = first.local_addr().to_string();
    let source =
        source(&first).device(DeviceSpec::new("cam0").frame_bytes(3000)).connect().unwrap();
    let mut device = source.device("cam0").unwrap();
    let mut collector = Some(first);
    for n in 0..300 {
        if n % 100 == 50 {
            drop(collector.take());
            let at = at.clone();
            let start = &start;
            std::thread::scope(|scope| {
                let restarted = scope.spawn(move || start(&at));
                // These are sent while no collector is there, as far as its blocks reach.
                send(device.frame(3000).unwrap(), &bytes_of(0, n, 3000));
                collector = Some(restarted.join().unwrap());
            });
        } else {
            send(device.frame(3000).unwrap(), &bytes_of(0, n, 3000));
        }
    }
    source.close(PATIENCE).unwrap();
    drop(collector);
    let mut files: Vec<_> = std::fs::read_dir(out.path().join("cam0"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 300);
    for (n, file) in files.iter().enumerate() {
        assert_eq!(file.file_name().unwrap().to_str().unwrap(), format!("{n:012}"));
        assert!(std::fs::read(file).unwrap() == bytes_of(0, n as u64, 3000), "frame {n}");
    }
}

#[test]
fn a_source_that_starts_first_waits_for_its_collector() {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = probe.local_addr().unwrap().to_string();
    drop(probe);
    let builder = Source::builder(&at).device(DeviceSpec::new("cam0").frame_bytes(100));
    let early = builder.clone().patience(Duration::from_millis(200)).connect();
    let Err(error) = early else { panic!("connected to nobody") };
    assert!(error.to_string().contains(&at), "{error}");
    let waiting = std::thread::spawn(move || builder.patience(PATIENCE).connect());
    let collector = Collector::builder(&at).start().unwrap();
    let source = waiting.join().unwrap().unwrap();
    send(source.device("cam0").unwrap().frame(3).unwrap(), b"now");
    source.close(PATIENCE).unwrap();
    assert_eq!(collector.stop().totals.frames_received, 1);
}

#[test]
fn a_second_source_cannot_take_a_device_and_the_first_goes_on() {
    let collector = collector().start().unwrap();
    let spec = || DeviceSpec::new("cam0").frame_bytes(100);
    let first = source(&collector).device(spec()).connect().unwrap();
    let second = source(&collector).device(spec()).patience(Duration::from_secs(4)).connect();
    let Err(error) = second else { panic!("two sources for one device") };
    assert!(error.to_string().contains("cam0"), "{error}");
    send(first.device("cam0").unwrap().frame(1).unwrap(), b"x");
    first.close(PATIENCE).unwrap();
    assert_eq!(collector.stop().totals.frames_received, 1);
}

/// S1.17 and E1.18 as an application meets them.
#[test]
fn a_consumer_that_keeps_frames_of_one_device_does_not_stop_the_others() {
    let kept: Arc<Mutex<Vec<Frame>>> = Arc::default();
    let keep = kept.clone();
    let collector = collector()
        .on_frame(move |frame: Frame| {
            if frame.device() == "slow" {
                keep.lock().unwrap().push(frame);
            }
        })
        .start()
        .unwrap();
    let source = source(&collector)
        .device(DeviceSpec::new("slow").frame_bytes(1000).policy(Policy::DropNewest))
        .device(DeviceSpec::new("fast").frame_bytes(1000))
        .blocks(8)
        .connect()
        .unwrap();
    let (mut slow, mut fast) = (source.device("slow").unwrap(), source.device("fast").unwrap());
    let mut dropped = 0;
    for n in 0..500 {
        let bytes = bytes_of(0, n, 1000);
        dropped += u64::from(send(slow.frame(1000).unwrap(), &bytes) == Sent::Dropped);
        send(fast.frame(1000).unwrap(), &bytes);
    }
    wait_until("the fast device", || {
        let snapshot = collector.metrics().snapshot();
        snapshot.devices.iter().any(|d| d.name == "fast" && d.counters.frames_received == 500)
    });
    assert!(dropped > 400, "{dropped} dropped");
    kept.lock().unwrap().clear();
    let report = source.close(PATIENCE).unwrap();
    assert_eq!(report.totals.dropped_newest, dropped);
    let report = collector.stop();
    assert_eq!(report.totals.frames_lost, 0);
    assert_eq!(report.totals.frames_received, 1000 - dropped);
}

#[test]
fn drop_oldest_delivers_the_newest_and_counts_the_rest() {
    let log = Log::default();
    let gate: Arc<Mutex<()>> = Arc::default();
    let (record, wait) = (logging(&log), gate.clone());
    let collector = collector()
        .on_frame(move |frame| {
            drop(wait.lock().unwrap());
            record(frame);
        })
        .start()
        .unwrap();
    let source = source(&collector)
        .device(
            DeviceSpec::new("cam0").frame_bytes(100).policy(Policy::DropOldest).backlog_frames(3),
        )
        .blocks(4)
        .connect()
        .unwrap();
    let mut device = source.device("cam0").unwrap();
    let closed = gate.lock().unwrap();
    for n in 0..100 {
        send(device.frame(100).unwrap(), &bytes_of(0, n, 100));
    }
    drop(closed);
    let report = source.close(PATIENCE).unwrap();
    let seen = numbers(&log, "cam0");
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    assert_eq!(seen.last(), Some(&99));
    assert_eq!(seen.len() as u64 + report.totals.dropped_oldest, 100);
    let report = collector.stop();
    assert_eq!(report.totals.frames_lost, 0);
    assert_eq!(report.totals.frames_skipped, 100 - seen.len() as u64);
    assert_eq!(report.totals.ledger().check("cam0", "collector"), Ok(()));
}
