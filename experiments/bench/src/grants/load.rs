//! Sources that always have frames to send under a controller, and their collector: all as shipped, in this process.
use anyhow::{Result, anyhow, ensure};
use catchment::collector::Collector;
use catchment::session::path::PathRules;
use catchment::source::{DeviceSpec, Fallback, Source};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Sources of one device each, and the frames of each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cameras {
    pub(super) provider: &'static str,
    pub(super) count: usize,
    pub(super) frame_bytes: usize,
    /// Slots of a source.
    pub(super) blocks: u32,
}

/// When a frame was handed out, since the beginning, and the number of its source.
pub(super) type Arrival = (Duration, usize);

/// See the module.
pub(super) struct Load {
    collector: Collector,
    sources: Vec<Source>,
    threads: Vec<JoinHandle<Result<u64>>>,
    stop: Arc<AtomicBool>,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl Load {
    pub(super) fn start(cameras: Cameras, controller: &str) -> Result<Self> {
        let (began, arrivals) = (Instant::now(), Arc::<Mutex<Vec<Arrival>>>::default());
        let noted = arrivals.clone();
        let require = vec![cameras.provider.to_owned()];
        let rules = PathRules { require, ..PathRules::default() };
        let collector = Collector::builder("127.0.0.1:0")
            .path_rules(rules.clone())
            .on_frame(move |frame| {
                // Others may send to it too.
                let source = frame.device().strip_prefix("cam").and_then(|it| it.parse().ok());
                if let Some(source) = source {
                    let arrival = (began.elapsed(), source);
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
                }
            })
            .start()?;
        let (sources, threads, stop) = (Vec::new(), Vec::new(), Arc::default());
        let mut load = Self { collector, sources, threads, stop, arrivals };
        (0..cameras.count).try_for_each(|number| load.add(cameras, number, &rules, controller))?;
        Ok(load)
    }

    fn add(
        &mut self,
        cameras: Cameras,
        number: usize,
        rules: &PathRules,
        controller: &str,
    ) -> Result<()> {
        let (name, bytes) = (format!("cam{number}"), cameras.frame_bytes);
        let source = Source::builder(self.address())
            .path_rules(rules.clone())
            .controller(controller, Fallback::Stop)
            .device(DeviceSpec::new(&name).frame_bytes(bytes))
            .blocks(cameras.blocks)
            .patience(PATIENCE)
            .connect()?;
        let (mut device, stop) = (source.device(&name)?, self.stop.clone());
        self.threads.push(std::thread::spawn(move || {
            let (frame, mut sent) = (vec![7; bytes], 0);
            while !stop.load(Ordering::Relaxed) {
                // Waits for a slot: there is always a frame.
                device.frame(bytes)?.send_bytes(&frame)?;
                sent += 1;
            }
            Ok(sent)
        }));
        self.sources.push(source);
        Ok(())
    }

    /// Returns where the collector listens.
    pub(super) fn address(&self) -> String {
        self.collector.local_addr().to_string()
    }

    /// Returns how many frames were sent, and when each arrived, in order.
    pub(super) fn end(self) -> Result<(u64, Vec<Arrival>)> {
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
        Ok((sent, arrivals))
    }
}
