//! A collector with a good source that streams all the while.
use catchment::collector::{Collector, CollectorBuilder};
use catchment::source::{DeviceSpec, Source};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const GOOD: &str = "good";

/// The tests count the descriptors and mappings of the process, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

type Log = Arc<Mutex<HashMap<String, Vec<(u64, Vec<u8>)>>>>;

/// The collector under attack and its good source.
pub(crate) struct World {
    pub(crate) collector: Collector,
    log: Log,
    good: JoinHandle<u64>,
    stop: Arc<AtomicBool>,
    good_sent: Arc<AtomicU64>,
    baseline: (usize, usize),
    _turn: MutexGuard<'static, ()>,
}

pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        // Counters tell nobody that they changed: look again.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Descriptors of this process, and its mappings of shared memory.
fn held() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().filter(|l| l.contains("memfd:")).count())
}

fn good_bytes(number: u64) -> Vec<u8> {
    let bytes = 1 + (number as usize * 37) % 900;
    (0..bytes).map(|i| (number as usize * 31 + i) as u8).collect()
}

impl World {
    /// Starts both; `change` may set up the collector.
    pub(crate) fn start(change: impl FnOnce(CollectorBuilder) -> CollectorBuilder) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let log = Log::default();
        let record = log.clone();
        let builder = Collector::builder("127.0.0.1:0").workers(2).on_frame(move |frame| {
            let mut log = record.lock().unwrap_or_else(PoisonError::into_inner);
            let device = log.entry(frame.device().to_owned()).or_default();
            device.push((frame.packet_number(), frame.to_vec()));
        });
        let collector = change(builder).start().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let good_sent = Arc::new(AtomicU64::new(0));
        let good = {
            let at = collector.local_addr().to_string();
            let (stop, sent) = (stop.clone(), good_sent.clone());
            std::thread::spawn(move || stream(&at, &stop, &sent))
        };
        eventually("the good source", || good_sent.load(Ordering::Relaxed) > 10);
        Self { collector, log, good, stop, good_sent, baseline: held(), _turn: turn }
    }

    pub(crate) fn at(&self) -> String {
        self.collector.local_addr().to_string()
    }

    /// Sends bytes over a new connection and gives all that comes back until it is closed.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.at()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The collector may refuse before all is sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(n) => answer.extend(&chunk[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer"),
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Frames of a device that reached the sink.
    pub(crate) fn frames(&self, device: &str) -> Vec<(u64, Vec<u8>)> {
        frames_of(&self.log, device)
    }

    pub(crate) fn refused(&self, label: &str) -> u64 {
        let refused = self.collector.metrics().snapshot().sessions_refused;
        refused.iter().filter(|(code, _)| code.as_str() == label).map(|(_, n)| *n).sum()
    }

    /// The bad `peer` goes, and it is as if it had never been there.
    pub(crate) fn outlives<T>(&self, peer: T, case: &str) {
        drop(peer);
        self.settle(case);
    }

    /// The last bad `peer` goes, and then the good ones do.
    pub(crate) fn finish_after<T>(self, peer: T, case: &str) {
        self.outlives(peer, case);
        self.finish();
    }

    /// The bad peers are gone: nothing of them stays, and the good source goes on.
    pub(crate) fn settle(&self, case: &str) {
        let before = self.good_sent.load(Ordering::Relaxed);
        eventually(&format!("{case}: the good stream"), || {
            self.good_sent.load(Ordering::Relaxed) > before + 3
        });
        let deadline = Instant::now() + PATIENCE;
        while held() != self.baseline {
            let (fds, maps) = held();
            assert!(
                Instant::now() < deadline,
                "{case}: {fds} descriptors and {maps} mappings, {:?} before",
                self.baseline
            );
            // Descriptors tell nobody when they are closed: look again.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends both, where the test has a sink of its own; how many frames the good source sent.
    pub(crate) fn finish_uncounted(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.good.join().unwrap();
        let report = self.collector.stop();
        let good = report.devices.iter().find(|d| d.name == GOOD).unwrap().counters;
        assert_eq!((good.frames_received, good.frames_lost), (sent, 0));
        assert_eq!((good.frames_duplicate, good.checksum_errors), (0, 0));
        assert_eq!(good.ledger().check(GOOD, "collector"), Ok(()));
        sent
    }

    /// Ends both: the good stream arrived whole and in order, over one session.
    pub(crate) fn finish(self) {
        let log = self.log.clone();
        let sent = self.finish_uncounted();
        let seen = frames_of(&log, GOOD);
        let wanted: Vec<_> = (0..sent).map(|n| (n, good_bytes(n))).collect();
        assert!(seen == wanted, "{} good frames of {sent}", seen.len());
    }
}

fn frames_of(log: &Log, device: &str) -> Vec<(u64, Vec<u8>)> {
    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    log.get(device).cloned().unwrap_or_default()
}

/// The good source.
fn stream(at: &str, stop: &AtomicBool, sent: &AtomicU64) -> u64 {
    let spec = DeviceSpec::new(GOOD).frame_bytes(1000);
    let source = Source::builder(at).device(spec).patience(PATIENCE).connect().unwrap();
    let mut device = source.device(GOOD).unwrap();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let bytes = good_bytes(number);
        device.frame(bytes.len()).unwrap().send_bytes(&bytes).unwrap();
        number += 1;
        sent.store(number, Ordering::Relaxed);
        // The rate of the good source.
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(device);
    assert_eq!(source.close(PATIENCE).unwrap().reconnects, 0, "the good source was disturbed");
    number
}
