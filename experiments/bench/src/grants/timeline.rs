//! A controller is killed and started again, as a line of time: what is granted, and what goes through the router.
use super::failover::{Case, Inquirer, PROVIDER, STEADY, Scene, cameras};
use super::load::Load;
use super::place::Place;
use anyhow::{Context as _, Result};
use catchment::source::Fallback;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Between two points: the counters of the router are read by a program of their own.
const EVERY: Duration = Duration::from_millis(20);
/// What is shown before the end of the controller, how long there is none, and how long is shown in all.
const BEFORE: Duration = Duration::from_millis(300);
const WITHOUT: Duration = Duration::from_millis(600);
const ALL: Duration = Duration::from_millis(1800);

/// A point of a line.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    what: &'static str,
    /// `granted`: the rates of windows in force, as the controller that runs knows, 0 while none does; `sent`: through the router, headers included.
    line: &'static str,
    /// Since the controller was killed.
    at_ms: f64,
    mbit_per_s: f64,
}

impl Point {
    pub(super) fn line(&self) -> String {
        format!("{:>8} {:8.1} ms {:8.1} Mbit/s", self.line, self.at_ms, self.mbit_per_s)
    }
}

/// Measures it once, behind a router.
pub(super) fn measure() -> Result<Vec<Point>> {
    Place::behind_router(measure_at)
}

fn measure_at(place: Place<'_>) -> Result<Vec<Point>> {
    let scene = Scene::new(Case::Restart)?;
    let mut controller = Some(scene.start(place, 0)?);
    let address = controller.as_ref().context("a controller")?.address.clone();
    let load =
        Load::start(place, PROVIDER, &cameras(), (&address.to_string(), Fallback::SafeRate))?;
    // The usual state, which nobody announces.
    std::thread::sleep(STEADY);
    let inquirer = Inquirer::new(place, address)?;
    let start = Instant::now();
    let (mut points, mut seen) = (Vec::new(), (start, passed(place)?));
    for tick in 1.. {
        let at = EVERY * tick;
        // Points are taken at times, and not when something happens.
        std::thread::sleep((start + at).saturating_duration_since(Instant::now()));
        if at > ALL {
            break;
        }
        if at >= BEFORE + WITHOUT && controller.is_none() {
            controller = Some(scene.start(place, 0)?);
        } else if at >= BEFORE && at < BEFORE + WITHOUT {
            controller = None;
        }
        let granted = controller.as_ref().and_then(|_| inquirer.status());
        let (now, bytes) = (Instant::now(), passed(place)?);
        let span = now - seen.0;
        let sent_bps = (bytes - seen.1) as f64 * 8.0 / span.as_secs_f64();
        seen = (now, bytes);
        let granted_bps = granted.and_then(|status| status["links"][0]["granted_bps"].as_u64());
        let at_ms = (now - start).as_secs_f64() * 1e3 - BEFORE.as_secs_f64() * 1e3;
        for (line, bps) in [("granted", granted_bps.unwrap_or(0) as f64), ("sent", sent_bps)] {
            let (at_ms, mbit_per_s) = ((at_ms * 10.0).round() / 10.0, (bps / 1e5).round() / 10.0);
            points.push(Point { what: "timeline", line, at_ms, mbit_per_s });
        }
    }
    load.end()?;
    Ok(points)
}

fn passed(place: Place<'_>) -> Result<u64> {
    place.passed_bytes()?.context("no router: network namespaces are not allowed here")
}
