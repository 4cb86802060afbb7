//! Frames of several blocks that are damaged in shared memory, and devices beside theirs.
use crate::{Log, PATIENCE, collector, logging};
use catchment::source::{DeviceSpec, Source};
use catchment_netns::wait_until;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};

const FRAME_BYTES: usize = 20_000;

fn bytes_of(device: u64, number: u64) -> Vec<u8> {
    let seed = device * 1_000_003 + number;
    let byte = |i: u64| ((seed + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..FRAME_BYTES as u64).map(byte).collect()
}

/// Overwrites the middle of these bytes wherever this process shares them with others. Returns how often.
fn damage(bytes: &[u8]) -> usize {
    let memory = File::options().read(true).write(true).open("/proc/self/mem").unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains(" rw-s ") && line.contains("catchment"));
    let mut damaged = 0;
    for line in shared {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let mut copy = vec![0; (to - from) as usize];
        if memory.read_exact_at(&mut copy, from).is_err() {
            // It was another test's, and is gone.
            continue;
        }
        for at in (0..copy.len().saturating_sub(bytes.len())).step_by(64) {
            if copy[at..at + bytes.len()] == *bytes {
                memory.write_all_at(&[0x5a; 4], from + (at + bytes.len() / 2) as u64).unwrap();
                damaged += 1;
            }
        }
    }
    damaged
}

/// Frames of several blocks stay with their source, so they can be had again also where blocks are
/// filled in place.
#[test]
fn a_large_frame_with_a_damaged_block_arrives_and_disturbs_no_other_device() {
    for in_place in [true, false] {
        let log = Log::default();
        let door: Arc<Mutex<()>> = Arc::default();
        let (record, wait) = (logging(&log), door.clone());
        let sink = move |frame: catchment::Frame| {
            if frame.device() == "large" {
                drop(wait.lock().unwrap());
            }
            record(frame);
        };
        let collector = collector().on_frame(sink).start().unwrap();
        let source = Source::builder(collector.local_addr().to_string())
            .device(DeviceSpec::new("large"))
            .device(DeviceSpec::new("other"))
            .block_bytes(4096)
            .blocks(32)
            .in_place(in_place)
            .patience(PATIENCE)
            .connect()
            .unwrap();
        let mut devices = ["large", "other"].map(|name| source.device(name).unwrap());
        let mut send = |which: usize, number| {
            let bytes = bytes_of(which as u64, number);
            let mut frame = devices[which].frame(bytes.len()).unwrap();
            frame.write_all(&bytes).unwrap();
            frame.send().unwrap();
        };
        let closed = door.lock().unwrap();
        // The first is with the sink, so the second waits in the ring.
        (0..2).for_each(|number| send(0, number));
        // From then on their checksums are known.
        let sent = || source.metrics().snapshot().totals.frames_sent;
        wait_until("both are in the ring", || sent() == 2);
        let piece = &bytes_of(0, 1)[2 * 4032..3 * 4032];
        assert!(damage(piece) > 0, "it waits in the ring");
        for number in 0..20 {
            send(1, number);
        }
        drop(closed);
        send(0, 2);
        let report = source.close(PATIENCE).unwrap();
        assert!(report.reconnects >= 1, "the frame was had again");
        assert_eq!((report.totals.frames_delivered, report.totals.frames_lost), (23, 0));
        let report = collector.stop();
        assert_eq!((report.totals.frames_received, report.totals.frames_lost), (23, 0));
        assert!(report.totals.checksum_errors >= 1);
        for device in &report.devices {
            assert_eq!(device.counters.ledger().check(&device.name, "collector"), Ok(()));
        }
        let log = log.lock().unwrap();
        for (which, name, count) in [(0, "large", 3), (1, "other", 20)] {
            let mut numbers = 0..;
            for frame in log.iter().filter(|frame| frame.device == name) {
                let number = numbers.next().unwrap();
                assert_eq!(frame.packet_number, number, "{name}, in place: {in_place}");
                assert!(frame.bytes == bytes_of(which, number), "{name} {number}");
            }
            assert_eq!(numbers.next(), Some(count), "{name}");
        }
    }
}
