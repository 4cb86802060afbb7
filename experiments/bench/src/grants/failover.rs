//! What is felt of the end of a controller: controllers as processes of the command, an etcd as packaged, and in this
//! process two sources with large frames, one with urgent ones and a collector, over software RoCE and a router.
use super::load::{Arrival, Camera, Load};
use super::place::{Drops, Place, QUEUE_KIB};
use super::row::Row;
use crate::long::COMMAND;
use crate::stats::decimals;
use anyhow::{Context as _, Result, anyhow, ensure};
use catchment::source::Fallback;
use catchment_perf::ChildProcess;
use catchment_session::io::{Address, ClientSecurity};
use catchment_session::registration::{Answer, Request, ask};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

pub(super) const PROVIDER: &str = "roce";
pub(super) const CAPACITY_BPS: u64 = 400_000_000;
/// What is granted then is all of it.
pub(super) const FULL_BPS: u64 = CAPACITY_BPS / 100 * 97;
/// Two sources with these make a load of 0.78, the urgent frames the rest to 0.8.
const BULK_BYTES: usize = 1 << 20;
const BULK_EVERY: Duration = Duration::from_millis(54);
const URGENT_BYTES: usize = 16 << 10;
const URGENT_EVERY: Duration = Duration::from_millis(20);
const URGENT_DEADLINE: Duration = Duration::from_millis(100);
/// Between two rounds: all goes as usual again.
pub(super) const STEADY: Duration = Duration::from_secs(1);
/// How often a controller is asked what it grants.
pub(super) const LOOK: Duration = Duration::from_millis(1);
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// With which an etcd keeps a lease of a second.
const ETCD_TUNED: [&str; 4] = ["--heartbeat-interval", "50", "--election-timeout", "250"];

const CONFIG: &str = "control.toml";

/// How a controller ends and another one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// Killed; started again two leases later.
    Restart,
    /// Killed; a standby takes over.
    Standby,
    /// The same with an etcd that has been set to notice sooner.
    Tuned,
    /// Ended by its user; a standby takes over.
    Planned,
}

impl Case {
    pub(super) const ALL: [Self; 4] = [Self::Restart, Self::Standby, Self::Tuned, Self::Planned];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Standby => "standby-etcd",
            Self::Tuned => "standby-etcd-tuned",
            Self::Planned => "standby-planned",
        }
    }
}

/// Measures a case, so many times; the row has the worst of each.
pub(super) fn measure(case: Case, rounds: usize) -> Result<Row> {
    Place::behind_router(|place| measure_at(place, case, rounds))
}

/// What controllers read, and where they listen.
pub(super) struct Scene {
    dir: tempfile::TempDir,
    /// Ends with the scene.
    _store: Option<Etcd>,
    ports: [u16; 2],
}

impl Scene {
    pub(super) fn new(case: Case) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let store = match case {
            Case::Restart => None,
            Case::Standby | Case::Planned => Some(Etcd::start(dir.path(), &[])?),
            Case::Tuned => Some(Etcd::start(dir.path(), &ETCD_TUNED)?),
        };
        std::fs::write(dir.path().join(CONFIG), settings(store.as_ref(), case))?;
        Ok(Self { dir, _store: store, ports: [free_port()?, free_port()?] })
    }

    /// Starts a controller at one of the two places, and waits until it listens.
    pub(super) fn start(&self, place: Place<'_>, which: usize) -> Result<Controller> {
        let mut controller = self.begin(place, which)?;
        controller.wait_for("listening")?;
        Ok(controller)
    }

    fn begin(&self, place: Place<'_>, which: usize) -> Result<Controller> {
        Controller::start(place, self.ports[which], &self.dir.path().join(CONFIG))
    }
}

fn measure_at(place: Place<'_>, case: Case, rounds: usize) -> Result<Row> {
    let scene = Scene::new(case)?;
    let mut leading = scene.start(place, 0)?;
    let controllers = scene.ports.map(|port| at(place.host(), port)).join(",");
    let load = Load::start(place, PROVIDER, &cameras(), (&controllers, Fallback::SafeRate))?;
    let mut drops = Drops::new(place)?;
    let mut worst = (0.0_f64, 0.0_f64);
    let mut gaps = Vec::new();
    for round in 0..rounds {
        let mut next = match case {
            Case::Restart => None,
            Case::Standby | Case::Tuned | Case::Planned => {
                let mut standby = scene.begin(place, (round + 1) % 2)?;
                standby.wait_for("standing_by")?;
                Some(standby)
            }
        };
        // The usual state between two rounds, which nobody announces.
        std::thread::sleep(STEADY);
        drops.between()?;
        let began = SystemTime::now();
        let mut start = Instant::now();
        let mut ending = None;
        match case {
            // It may take a while to end after another one leads.
            Case::Planned => ending = Some(std::thread::spawn(|| leading.process.finish())),
            Case::Standby | Case::Tuned => drop(leading),
            Case::Restart => {
                drop(leading);
                // Two leases: the case is a controller that somebody starts again.
                std::thread::sleep(Duration::from_millis(400));
                start = Instant::now();
                next = Some(scene.begin(place, 0)?);
            }
        }
        leading = next.take().context("a controller")?;
        let first_ms = leading.wait_until_grants(place, start, 1)?;
        let full_ms = leading.wait_until_grants(place, start, FULL_BPS)?;
        drops.in_gap()?;
        worst = (worst.0.max(first_ms), worst.1.max(full_ms));
        if let Some(ending) = ending {
            ending.join().map_err(|_| anyhow!("waiting for a controller panicked"))??;
        }
        gaps.push((began, SystemTime::now()));
    }
    // Those of the last gap are there by then, or late.
    std::thread::sleep(STEADY);
    let ended = load.end()?;
    drops.between()?;
    Ok(Row {
        what: "failover",
        case: Some(case.name()),
        provider: Some(PROVIDER),
        sources: Some(3),
        devices: Some(3),
        transfers: Some(ended.sent),
        first_grant_ms: Some(decimals(worst.0, 1)),
        full_capacity_ms: Some(decimals(worst.1, 1)),
        urgent_on_time: Some(decimals(on_time(&ended.arrivals, &gaps), 4)),
        frames_lost: Some(ended.lost()),
        packets_dropped: drops.in_gaps,
        packets_dropped_between: drops.between,
        ..Row::default()
    })
}

fn settings(store: Option<&Etcd>, case: Case) -> String {
    let link = format!(
        "[[link]]\nname = \"narrow\"\ncapacity = \"{}Mbit\"\nqueue = \"{QUEUE_KIB}KiB\"\n",
        CAPACITY_BPS / 1_000_000
    );
    let leader = store.map_or(String::new(), |store| {
        let lease = if case == Case::Tuned { "lease = \"1s\"\n" } else { "" };
        format!("\n[leader]\netcd = [\"http://127.0.0.1:{}\"]\n{lease}", store.port)
    });
    // Urgent frames are small, and leave without asking: two percent of the link are theirs.
    let allow = "\n[[allow]]\ncertificate = \"*\"\ndevices = [\"urgent\"]\nsmall = \"8Mbit\"\n\n[[allow]]\ncertificate = \"*\"\n";
    format!("safe_sources = 3\n\n{link}{allow}{leader}")
}

fn at(host: IpAddr, port: u16) -> String {
    format!("{host}:{port}")
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

pub(super) struct Controller {
    process: ChildProcess,
    pub(super) address: Address,
}

impl Controller {
    fn start(place: Place<'_>, port: u16, config: &Path) -> Result<Self> {
        let address = at(place.host(), port);
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg0(COMMAND)
            .args(["control", "--json", "--until-stdin-closes", "--listen", &address]);
        command.args(place.is_open().then_some("--insecure"));
        command.arg("--config").arg(config).stdin(Stdio::piped());
        let process = ChildProcess::start("a controller", &mut command)?;
        Ok(Self {
            process,
            address: address.parse().map_err(|error| anyhow!("{address}: {error}"))?,
        })
    }

    fn wait_for(&mut self, event: &str) -> Result<()> {
        let wanted = format!("\"event\":\"{event}\"");
        self.process.wait_for(|line| line.contains(&wanted))?;
        Ok(())
    }

    /// Waits until it grants so much; returns the milliseconds since `start`.
    fn wait_until_grants(&self, place: Place<'_>, start: Instant, least_bps: u64) -> Result<f64> {
        let inquirer = Inquirer::new(place, self.address.clone())?;
        while start.elapsed() < PATIENCE {
            // Without windows of the one before, which a link counts too.
            let granted = inquirer.status().map_or(0, |status| granted_bps(&status));
            if granted >= least_bps {
                return Ok(start.elapsed().as_secs_f64() * 1e3);
            }
            // A controller answers questions only.
            std::thread::sleep(LOOK);
        }
        Err(anyhow!(
            "the controller at {} grants less than {least_bps} bit/s after {PATIENCE:?}",
            self.address
        ))
    }
}

/// Asks a controller how it stands.
pub(super) struct Inquirer {
    address: Address,
    security: ClientSecurity,
    runtime: tokio::runtime::Runtime,
}

impl Inquirer {
    pub(super) fn new(place: Place<'_>, address: Address) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let security = ClientSecurity { insecure: place.is_open(), ..ClientSecurity::default() };
        Ok(Self { address, security, runtime })
    }

    /// Returns its answer; `None` while it does not listen.
    pub(super) fn status(&self) -> Option<Value> {
        let asked = ask(&self.address, &self.security, &Request::Status {}, Duration::from_secs(1));
        match self.runtime.block_on(asked) {
            Ok((Answer::Status { status }, ..)) => Some(status),
            Ok(_) | Err(_) => None,
        }
    }
}

/// Returns the rates of all windows that this controller has granted.
fn granted_bps(status: &Value) -> u64 {
    let sources = status["sources"].as_array().into_iter().flatten();
    sources.filter_map(|source| source["granted_bps"].as_u64()).sum()
}

/// An etcd as packaged. Dropping it kills it.
struct Etcd {
    child: Child,
    port: u16,
}

impl Etcd {
    fn start(dir: &Path, options: &[&str]) -> Result<Self> {
        let (port, peers) = (free_port()?, free_port()?);
        let url = |port| format!("http://{}", at(Ipv4Addr::LOCALHOST.into(), port));
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(dir.join("etcd"))
            .args(["--listen-client-urls", &url(port), "--advertise-client-urls", &url(port)])
            .args(["--listen-peer-urls", &url(peers), "--initial-advertise-peer-urls", &url(peers)])
            .args(["--initial-cluster", &format!("default={}", url(peers))])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("etcd (Debian: apt-get install etcd-server)")?;
        let etcd = Self { child, port };
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            ensure!(start.elapsed() < PATIENCE, "etcd does not listen at port {port}");
            // etcd tells its log only.
            std::thread::sleep(LOOK);
        }
        Ok(etcd)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two with large frames, and one with urgent ones.
pub(super) fn cameras() -> [Camera; 3] {
    let bulk = |name| Camera { every: Some(BULK_EVERY), ..Camera::new(name, BULK_BYTES) };
    let urgent = Camera {
        every: Some(URGENT_EVERY),
        priority: Some("urgent"),
        deadline: Some(URGENT_DEADLINE),
        ..Camera::new("urgent", URGENT_BYTES)
    };
    [bulk("bulk0"), bulk("bulk1"), urgent]
}

const URGENT: usize = 2;

/// Returns the part of the urgent frames captured in these spans that were in time.
fn on_time(arrivals: &[Arrival], spans: &[(SystemTime, SystemTime)]) -> f64 {
    let within = |arrival: &&Arrival| {
        let captured = arrival.captured;
        spans.iter().any(|(from, to)| *from <= captured && captured <= *to)
    };
    let all: Vec<_> =
        arrivals.iter().filter(|arrival| arrival.camera == URGENT).filter(within).collect();
    let on_time = all.iter().filter(|arrival| arrival.took <= URGENT_DEADLINE).count();
    on_time as f64 / all.len().max(1) as f64
}
