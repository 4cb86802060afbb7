//! Frames one by one: who fills them, when they were captured.
use crate::{Full, Log, PATIENCE, collector, logged};
use catchment::collector::Collector;
use catchment::sink::{DirectorySink, SinkError};
use catchment::source::{
    Device, DeviceSpec, OwnedFrameWriter, Sent, Source, SourceBuilder, SourceError,
};
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of the device cam0, of frames of 1000 bytes.
fn source(at: &impl ToString) -> SourceBuilder {
    let device = DeviceSpec::new("cam0").frame_bytes(1000);
    Source::builder(at.to_string()).patience(PATIENCE).device(device)
}

/// A collector that logs, and that source, which `change` may set up.
fn pair(change: impl FnOnce(SourceBuilder) -> SourceBuilder) -> (Log, Collector, Source, Device) {
    let (log, collector) = logged();
    let source = change(source(collector.local_addr())).connect().unwrap();
    let device = source.device("cam0").unwrap();
    (log, collector, source, device)
}

/// Ends a pair when all that was sent has arrived.
fn close(source: Source, collector: Collector) {
    source.close(PATIENCE).unwrap();
    collector.stop();
}

fn fill(mut frame: OwnedFrameWriter, byte: u8) -> OwnedFrameWriter {
    let bytes = vec![byte; frame.bytes()];
    frame.write_all(&bytes).unwrap();
    frame
}

/// A time that no clock gives by chance, exact to the nanosecond.
fn captured(n: u64) -> SystemTime {
    UNIX_EPOCH + Duration::new(1_234_567_890 + n, 123_456_789 + n as u32)
}

/// Two frames with their capture times; the second goes over several blocks of 4096 bytes.
fn send_captured(device: &mut Device) {
    for (n, bytes) in [(0, 1000), (1, 10_000)] {
        let mut frame = device.frame(bytes).unwrap();
        frame.set_capture_time(captured(n));
        frame.send_bytes(&vec![n as u8; bytes]).unwrap();
    }
}

#[test]
fn frames_filled_by_other_threads_arrive_in_the_order_of_sending() {
    let (log, collector, source, mut device) = pair(|source| source);
    for round in 0..10 {
        let frames: Vec<_> = (0..3).map(|_| device.frame_owned(1000).unwrap()).collect();
        let filling: Vec<_> = (0..).zip(frames).collect();
        let filling: Vec<_> = filling
            .into_iter()
            .map(|(i, frame)| std::thread::spawn(move || fill(frame, round * 3 + i)))
            .collect();
        // Not in the order in which they were begun.
        for frame in filling.into_iter().rev() {
            device.send(frame.join().unwrap()).unwrap();
        }
    }
    close(source, collector);
    let seen: Vec<_> = log.lock().unwrap().iter().map(|f| (f.packet_number, f.bytes[0])).collect();
    let sent = (0..10).flat_map(|round| [2, 1, 0].map(|i| round * 3 + i));
    assert_eq!(seen, (0..).zip(sent).collect::<Vec<_>>());
}

#[test]
fn an_owned_frame_that_is_dropped_gives_its_block_back() {
    let (log, collector, source, mut device) = pair(|source| source.blocks(8));
    let mut held = Vec::new();
    while let Some(frame) = device.try_frame_owned(1000).unwrap() {
        held.push(frame);
    }
    assert_eq!(held.len(), 8, "all blocks are out");
    let kept = held.pop().unwrap();
    drop(held);
    let again: Vec<_> = (0..7).map(|_| device.frame_owned(1000).unwrap()).collect();
    assert!(device.try_frame_owned(1000).unwrap().is_none());
    drop(again);
    // Nothing was used up: what is sent now is the first frame.
    let sent = device.send(fill(kept, 7)).unwrap();
    assert_eq!(sent, Sent::Accepted(0));
    close(source, collector);
    assert_eq!(log.lock().unwrap().len(), 1);
}

#[test]
fn an_owned_frame_of_a_source_that_was_closed_meanwhile_is_refused() {
    let (log, collector, source, mut device) = pair(|source| source);
    let frame = device.frame_owned(1000).unwrap();
    device.frame(4).unwrap().send_bytes(b"last").unwrap();
    source.close(PATIENCE).unwrap();
    let error = device.send(fill(frame, 7)).unwrap_err();
    let closed = |error: &SourceError| matches!(error, SourceError::Closed);
    let ended = matches!(&error, SourceError::Ended(why) if closed(why));
    assert!(closed(&error) || ended, "{error}");
    collector.stop();
    assert_eq!(log.lock().unwrap().len(), 1);
}

#[test]
fn an_owned_frame_is_sent_by_its_own_device_and_when_it_is_full() {
    let second = DeviceSpec::new("cam1").frame_bytes(10);
    let (log, collector, source, mut cam0) = pair(|source| source.device(second));
    let mut cam1 = source.device("cam1").unwrap();
    let frame = fill(cam0.frame_owned(10).unwrap(), 1);
    let error = cam1.send(frame).unwrap_err();
    assert!(matches!(error, SourceError::OtherDevice { .. }), "{error}");
    let mut half = cam0.frame_owned(10).unwrap();
    half.write_all(&[1; 5]).unwrap();
    let error = cam0.send(half).unwrap_err();
    let (filled, bytes) = (5, 10);
    let expected = SourceError::Incomplete { filled, bytes };
    assert_eq!(error.to_string(), expected.to_string());
    close(source, collector);
    assert!(log.lock().unwrap().is_empty());
}

#[test]
fn a_capture_time_arrives_exact_to_the_nanosecond() {
    let (log, collector, source, mut device) = pair(|s| s.block_bytes(4096).blocks(8));
    send_captured(&mut device);
    let before = SystemTime::now();
    device.frame(5).unwrap().send_bytes(b"now!!").unwrap();
    let mut owned = device.frame_owned(5).unwrap();
    owned.set_capture_time(captured(3));
    device.send(fill(owned, 3)).unwrap();
    let after = SystemTime::now();
    close(source, collector);
    let times: Vec<_> = log.lock().unwrap().iter().map(|f| f.captured).collect();
    assert_eq!(times.len(), 4);
    assert_eq!([times[0], times[1], times[3]], [0, 1, 3].map(captured));
    assert!(before <= times[2] && times[2] <= after, "{:?}", times[2]);
}

#[test]
fn a_frame_that_is_sent_again_keeps_its_capture_time() {
    let out = tempfile::tempdir().unwrap();
    let full = Full(|| SinkError::Application("full".to_owned()));
    let first = collector().sink(full).start().unwrap();
    let at = first.local_addr().to_string();
    let source = source(&at).block_bytes(4096).blocks(8).connect().unwrap();
    let mut device = source.device("cam0").unwrap();
    send_captured(&mut device);
    first.stop_within(Duration::from_millis(200));
    let second = Collector::builder(&at).sink(DirectorySink::new(out.path())).start().unwrap();
    source.close(PATIENCE).unwrap();
    second.stop();
    for (n, bytes) in [(0, 1000), (1, 10_000)] {
        let file = out.path().join("cam0").join(format!("{n:012}"));
        let file = std::fs::metadata(file).unwrap();
        assert_eq!(file.len(), bytes);
        // What a directory shows of it.
        assert_eq!(file.modified().unwrap(), captured(n));
    }
}
