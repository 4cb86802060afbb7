//! What is felt of the end of a source: one that is killed in its window, as a process of the command, and another one in
//! this process that waits for what it had, over software RoCE and a router. The controller is a process of its own.
use super::failover::{CAPACITY_BPS, FULL_BPS, Inquirer, LOOK, PATIENCE, PROVIDER, STEADY};
use super::load::{Camera, Load};
use super::place::{Drops, Place, QUEUE_KIB};
use super::row::Row;
use super::service::Controller;
use crate::long::COMMAND;
use crate::stats::decimals;
use anyhow::{Result, anyhow};
use catchment::source::Fallback;
use catchment_perf::ChildProcess;
use serde_json::Value;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

pub(super) const CASE: &str = "source";
/// The frames of both take 332 ms at the capacity: longer than a lease, so a window is as long as one can be.
const FORMAT: &str = "synthetic:3840x1440:rgb24";
const OTHER_BYTES: usize = 3840 * 1440 * 3;
const VICTIM: &str = "victim";

/// Measures it, so many times; the row has the worst of each.
pub(super) fn measure(rounds: usize) -> Result<Row> {
    Place::behind_router(|place| measure_at(place, rounds))
}

fn measure_at(place: Place<'_>, rounds: usize) -> Result<Row> {
    let controller = Controller::start_at(place.host(), CAPACITY_BPS, Some(QUEUE_KIB << 10))?;
    let mut grants =
        Grants { inquirer: Inquirer::new(place, controller.address.clone())?, over_bps: 0 };
    let other = Camera { blocks: Some(2), ..Camera::new("other", OTHER_BYTES) };
    let controllers = controller.address.to_string();
    let load = Load::start(place, PROVIDER, &[other], (&controllers, Fallback::Stop))?;
    let mut drops = Drops::new(place)?;
    let (mut first_ms, mut full_ms) = (0.0_f64, 0.0_f64);
    for _ in 0..rounds {
        let victim = start_victim(place, &load, &controllers)?;
        // Both are served in turn by then, which nobody announces.
        std::thread::sleep(STEADY);
        grants.wait(Instant::now(), |of| of.victim_bps >= FULL_BPS && of.other_waits)?;
        drops.between()?;
        drop(victim);
        let killed = Instant::now();
        first_ms = first_ms.max(grants.wait(killed, |of| of.other_bps > 0)?);
        full_ms = full_ms.max(grants.wait(killed, |of| of.other_bps >= FULL_BPS)?);
        drops.in_gap()?;
    }
    let ended = load.end()?;
    drops.between()?;
    Ok(Row {
        what: "failover",
        case: Some(CASE),
        provider: Some(PROVIDER),
        sources: Some(2),
        devices: Some(2),
        transfers: Some(ended.sent),
        first_grant_ms: Some(decimals(first_ms, 1)),
        full_capacity_ms: Some(decimals(full_ms, 1)),
        granted_over_bps: Some(grants.over_bps),
        frames_lost: Some(ended.lost()),
        packets_dropped: drops.in_gaps,
        packets_dropped_between: drops.between,
        ..Row::default()
    })
}

/// Starts the source that is killed when the value is dropped.
fn start_victim(place: Place<'_>, load: &Load, controllers: &str) -> Result<ChildProcess> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(COMMAND).args(["send", "--input", FORMAT, "--rate", "max", "--device", VICTIM]);
    command.args(["--require", PROVIDER, "--controller", controllers, &load.address()]);
    command.args(place.is_open().then_some("--insecure"));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    Ok(place.at_sources(|| ChildProcess::start("the source that is killed", &mut command))??)
}

/// What a controller grants now.
struct Granted {
    victim_bps: u64,
    other_bps: u64,
    other_waits: bool,
}

/// Looks what is granted.
struct Grants {
    inquirer: Inquirer,
    /// The most by which all windows in force together were beyond the link at any look.
    over_bps: u64,
}

impl Grants {
    /// Waits until it is so; returns the milliseconds since `start`.
    fn wait(&mut self, start: Instant, is_so: impl Fn(&Granted) -> bool) -> Result<f64> {
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.inquirer.status() {
                let granted = self.read(&status);
                if is_so(&granted) {
                    return Ok(start.elapsed().as_secs_f64() * 1e3);
                }
            }
            // A controller answers questions only.
            std::thread::sleep(LOOK);
        }
        Err(anyhow!("what is granted has not become as it should within {PATIENCE:?}"))
    }

    fn read(&mut self, status: &Value) -> Granted {
        let mut granted = Granted { victim_bps: 0, other_bps: 0, other_waits: false };
        let sources = status["sources"].as_array().into_iter().flatten();
        for source in sources {
            let bps = source["granted_bps"].as_u64().unwrap_or(0);
            let devices = source["devices"].as_array().into_iter().flatten();
            if devices.into_iter().any(|device| device == VICTIM) {
                granted.victim_bps += bps;
            } else {
                granted.other_bps += bps;
                granted.other_waits |= source["waiting"].as_u64() > Some(0);
            }
        }
        // A source's windows that begin soon count above; those of a link are in force.
        let links = status["links"].as_array().into_iter().flatten();
        let in_force_bps = links.filter_map(|link| link["granted_bps"].as_u64()).max();
        let over_bps = in_force_bps.unwrap_or(0).saturating_sub(CAPACITY_BPS);
        self.over_bps = self.over_bps.max(over_bps);
        granted
    }
}
