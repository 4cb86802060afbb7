//! Sources with frames to send under a controller, and their collector: all as shipped, in this process.
use super::place::Place;
use anyhow::{Result, anyhow, ensure};
use catchment::collector::Collector;
use catchment::session::path::PathRules;
use catchment::source::{Device, DeviceSpec, Fallback, Source};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

const PATIENCE: Duration = Duration::from_secs(60);

/// The only device of a source.
#[derive(Debug, Clone)]
pub(super) struct Camera {
    pub(super) name: String,
    pub(super) frame_bytes: usize,
    /// From one frame to the next; `None`: there always is one.
    pub(super) every: Option<Duration>,
    /// So many frames are granted as one.
    pub(super) event_frames: u32,
    /// `None`: that of the usual class.
    pub(super) priority: Option<&'static str>,
    /// Its frames are to be there so long after they were captured; `None`: as its class has it.
    pub(super) deadline: Option<Duration>,
    /// Slots of the source; `None`: as many as it chooses.
    pub(super) blocks: Option<u32>,
}

impl Camera {
    /// Returns one that always has a frame.
    pub(super) fn new(name: &str, frame_bytes: usize) -> Self {
        let (every, event_frames, priority, deadline, blocks) = (None, 1, None, None, None);
        let name = name.to_owned();
        Self { name, frame_bytes, every, event_frames, priority, deadline, blocks }
    }

    fn spec(&self) -> DeviceSpec {
        let spec = DeviceSpec::new(&self.name).frame_bytes(self.frame_bytes);
        let spec = self.priority.into_iter().fold(spec, DeviceSpec::priority);
        self.deadline.into_iter().fold(spec, DeviceSpec::deadline)
    }

    /// Sends frames until it is stopped; returns how many.
    fn run(&self, mut device: Device, stop: &AtomicBool) -> Result<u64> {
        let (frame, mut sent) = (vec![7; self.frame_bytes], 0);
        let (mut due, mut captured) = (Instant::now(), SystemTime::now());
        while !stop.load(Ordering::Relaxed) {
            if self.every.is_some() {
                // Until the next frame is due.
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            if self.event_frames > 1 && sent % u64::from(self.event_frames) == 0 {
                device.event(self.event_frames);
            }
            // Waits for a slot.
            let mut writer = device.frame(self.frame_bytes)?;
            if let Some(every) = self.every {
                // When it was due, also where it had to wait for room.
                writer.set_capture_time(captured);
                (due, captured) = (due + every, captured + every);
            }
            writer.send_bytes(&frame)?;
            sent += 1;
        }
        Ok(sent)
    }
}

/// A frame that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrival {
    /// Since the beginning.
    pub(super) at: Duration,
    /// Its camera, by the order in which they were given.
    pub(super) camera: usize,
    pub(super) captured: SystemTime,
    /// Since it was captured.
    pub(super) took: Duration,
}

/// What was sent, and what arrived, in order.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) sent: u64,
    pub(super) arrivals: Vec<Arrival>,
}

impl Ended {
    pub(super) fn lost(&self) -> u64 {
        self.sent - self.arrivals.len() as u64
    }
}

/// See the module.
pub(super) struct Load {
    collector: Collector,
    sources: Vec<Source>,
    threads: Vec<JoinHandle<Result<u64>>>,
    stop: Arc<AtomicBool>,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl Load {
    /// Starts a collector, then a source for each camera. The caller is where the collector is to be.
    pub(super) fn start(
        place: Place<'_>,
        provider: &str,
        cameras: &[Camera],
        (controllers, fallback): (&str, Fallback),
    ) -> Result<Self> {
        let (began, arrivals) = (Instant::now(), Arc::<Mutex<Vec<Arrival>>>::default());
        let noted = arrivals.clone();
        let rules = PathRules { require: vec![provider.to_owned()], ..PathRules::default() };
        let names: Vec<String> = cameras.iter().map(|camera| camera.name.clone()).collect();
        let collector = Collector::builder(format!("{}:0", place.host()))
            .insecure(place.is_open())
            .path_rules(rules.clone())
            .on_frame(move |frame| {
                // Others may send to it too.
                if let Some(camera) = names.iter().position(|name| name == frame.device()) {
                    let (at, captured) = (began.elapsed(), frame.capture_time());
                    let took = captured.elapsed().unwrap_or_default();
                    let arrival = Arrival { at, camera, captured, took };
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
                }
            })
            .start()?;
        let (sources, threads, stop) = (Vec::new(), Vec::new(), Arc::default());
        let mut load = Self { collector, sources, threads, stop, arrivals };
        for camera in cameras {
            let mut builder = Source::builder(load.address())
                .insecure(place.is_open())
                .path_rules(rules.clone())
                .controller(controllers, fallback)
                .device(camera.spec())
                .patience(PATIENCE);
            if let Some(blocks) = camera.blocks {
                builder = builder.blocks(blocks);
            }
            let source = place.at_sources(|| builder.connect())??;
            let (device, camera) = (source.device(&camera.name)?, camera.clone());
            let stop = load.stop.clone();
            load.threads.push(std::thread::spawn(move || camera.run(device, &stop)));
            load.sources.push(source);
        }
        Ok(load)
    }

    /// Returns where the collector listens.
    pub(super) fn address(&self) -> String {
        self.collector.local_addr().to_string()
    }

    pub(super) fn end(self) -> Result<Ended> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sent = 0;
        for thread in self.threads {
            sent += thread.join().map_err(|_| anyhow!("a device panicked"))??;
        }
        for source in self.sources {
            source.close(PATIENCE)?;
        }
        self.collector.stop();
        let mut arrivals =
            std::mem::take(&mut *self.arrivals.lock().unwrap_or_else(PoisonError::into_inner));
        // Streams have workers of their own.
        arrivals.sort_unstable();
        ensure!(arrivals.len() as u64 <= sent, "{} frames came of {sent}", arrivals.len());
        Ok(Ended { sent, arrivals })
    }
}
