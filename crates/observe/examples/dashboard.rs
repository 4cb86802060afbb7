//! The live page, fed by devices that exist only here: shows what a collector has to call.
//!
//! ```text
//! cargo run -p catchment-observe --example dashboard -- [DEVICES] [ADDRESS] [SECONDS]
//! ```
use catchment_observe::{
    CollectorMetrics, Dashboard, DashboardConfig, DeviceMetrics, FrameObservation, LossCause,
    SessionSnapshot,
};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const FRAMES_PER_S: u64 = 25;
const WIDTH: usize = 640;
const HEIGHT: usize = 480;

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
    let format = format!("{WIDTH}x{HEIGHT}:rgb24");
    let cameras: Vec<_> =
        (0..devices).map(|i| metrics.add_device(&format!("cam{i}"), &format)).collect();
    let start = Instant::now();
    for number in 0..seconds.saturating_mul(FRAMES_PER_S) {
        let due = Duration::from_millis(number * 1000 / FRAMES_PER_S);
        // The frames of a camera come at their times.
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        for (index, camera) in cameras.iter().enumerate() {
            deliver(camera, index as u64, number);
        }
    }
    page.stop();
    Ok(())
}

/// Does what a collector does for each frame. Two cameras are in trouble, to show how that looks.
fn deliver(camera: &DeviceMetrics, index: u64, number: u64) {
    match (index, number) {
        (5, n) if n % 180 == 90 => return camera.frames_lost(LossCause::Missing, 1),
        (7, n) if n % 60 < 10 => return camera.frames_skipped(1),
        _ => {}
    }
    let frame_bytes = WIDTH * HEIGHT * 3;
    camera.preview().offer(frame_bytes, &|offset: usize, out: &mut [u8]| {
        out.iter_mut().zip(offset..).for_each(|(out, at)| *out = colour(index, number, at));
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
    let jitter = (number * 2_654_435_761 + index * 40_503) % 97;
    camera.frame_received(&FrameObservation {
        bytes: frame_bytes as u64,
        verified: true,
        captured_unix_ns: now - 90_000 - jitter * jitter * 30,
        delivered_unix_ns: now,
    });
}

/// Byte `at` of a frame: stripes that move, in a colour for each camera.
fn colour(index: u64, number: u64, at: usize) -> u8 {
    let (pixel, channel) = (at / 3, at as u64 % 3);
    let (x, y) = ((pixel % WIDTH) as u64, (pixel / WIDTH) as u64);
    let stripe = (x + y + number * 4) % 128;
    (stripe * (1 + (index + channel) % 3) / 2) as u8
}
