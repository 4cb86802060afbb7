//! The live page, fed by devices that exist only here: shows what a collector has to call.
//!
//! ```text
//! cargo run -p catchment-observe --example dashboard -- [DEVICES] [ADDRESS] [SECONDS]
//! ```

use catchment_observe::{
    CollectorMetrics, Dashboard, DashboardConfig, DeviceMetrics, FrameObservation, SessionSnapshot,
};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const FRAMES_PER_S: u64 = 25;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let devices: u64 = arguments.next().map_or(Ok(12), |n| n.parse())?;
    let listen = arguments.next().map_or(Ok(DashboardConfig::default().listen), |a| a.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(u64::MAX), |n| n.parse())?;

    let metrics = CollectorMetrics::new();
    let page = Dashboard::start(DashboardConfig { listen, ..Default::default() }, metrics.clone())?;
    println!("{}", page.url());

    let _session =
        metrics.session_opened(SessionSnapshot::new("memory", "memory", "invented for this page"));
    let cameras: Vec<_> = (0..devices).map(|i| Camera::new(&metrics, i)).collect();
    let start = Instant::now();
    for number in 0..seconds.saturating_mul(FRAMES_PER_S) {
        let due = Duration::from_millis(number * 1000 / FRAMES_PER_S);
        // The frames of a camera come at their times.
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        cameras.iter().for_each(|camera| camera.deliver(number));
    }
    page.stop();
    Ok(())
}

/// A device and its way of drawing.
struct Camera {
    index: u64,
    metrics: Arc<DeviceMetrics>,
    frame_bytes: usize,
    /// The colour of a pixel as the format wants it, and where pixel (x, y) of 640 begins.
    pixel: fn(usize, Rgb) -> u8,
}

type Rgb = [u8; 3];

impl Camera {
    fn new(metrics: &CollectorMetrics, index: u64) -> Self {
        let (format, bytes_per_pixel, pixel): (_, _, fn(usize, Rgb) -> u8) = match index % 4 {
            0 | 1 => ("640x480:rgb24", 3, |byte, colour| colour[byte]),
            2 => ("640x480:bgr24", 3, |byte, colour| colour[2 - byte]),
            _ => ("640x480:gray8", 1, |_, [r, g, b]| r / 4 + g / 2 + b / 4),
        };
        let metrics = metrics.add_device(&format!("cam{index}"), format);
        Self { index, metrics, frame_bytes: 640 * 480 * bytes_per_pixel, pixel }
    }

    /// What the collector does for each frame. Three cameras are troubled, to show how it looks.
    fn deliver(&self, number: u64) {
        match (self.index, number) {
            (5, n) if n % 180 == 90 => return self.metrics.frames_lost(1),
            (7, n) if n % 60 < 10 => return self.metrics.frames_skipped(1),
            (10, n) if n > 100 => return,
            _ => {}
        }
        self.metrics.preview().offer(self.frame_bytes, &|offset: usize, out: &mut [u8]| {
            self.draw(number, offset, out);
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
        let jitter = (number * 2_654_435_761 + self.index * 40_503) % 97;
        self.metrics.frame_received(&FrameObservation {
            bytes: self.frame_bytes as u64,
            verified: true,
            captured_unix_ns: now - 90_000 - jitter * jitter * 30,
            delivered_unix_ns: now,
        });
    }

    /// The bytes of frame `number` from `offset` on, drawn when somebody wants to see them.
    fn draw(&self, number: u64, offset: usize, out: &mut [u8]) {
        let bytes = self.frame_bytes / (640 * 480);
        for (i, out) in out.iter_mut().enumerate() {
            let (pixel, byte) = ((offset + i) / bytes, (offset + i) % bytes);
            let (x, y) = ((pixel % 640) as f32, (pixel / 640) as f32);
            *out = (self.pixel)(byte, scene(self.index, number as f32 / FRAMES_PER_S as f32, x, y));
        }
    }
}

/// A sun that moves over hills.
fn scene(index: u64, seconds: f32, x: f32, y: f32) -> Rgb {
    let phase = index as f32 * 0.7;
    let sun_x = 320.0 + 250.0 * (seconds * 0.6 + phase).sin();
    let sun_y = 150.0 - 80.0 * (seconds * 0.6 + phase).cos().abs();
    let near =
        330.0 + 40.0 * ((x + seconds * 90.0) * 0.012 + phase).sin() + 10.0 * (x * 0.05).sin();
    let far = 260.0 + 50.0 * ((x + seconds * 30.0) * 0.008 + phase * 2.0).sin();
    let distance = (x - sun_x).hypot(y - sun_y);
    let tint = (phase.sin() + 1.0) / 2.0;
    if y > near {
        return [30, 70 + (tint * 50.0) as u8, 60];
    }
    if y > far {
        return [60 + (tint * 40.0) as u8, 100, 110];
    }
    if distance < 38.0 {
        return [255, 226, 140];
    }
    let glow = (160.0 - distance).max(0.0) / 160.0;
    let sky = y / 400.0;
    [
        (50.0 + sky * 130.0 + glow * 90.0 + tint * 40.0).min(255.0) as u8,
        (110.0 + sky * 80.0 + glow * 50.0).min(255.0) as u8,
        (190.0 + sky * 20.0 - glow * 60.0 - tint * 60.0) as u8,
    ]
}
