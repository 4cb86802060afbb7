//! What carries the connections of Redis' benchmark to the services.
use super::row::{Found, What};
use super::service::Service;
use crate::hop::{Hop, Line};
use crate::long::{event, start};
use crate::sys;
use anyhow::{Context as _, Result};
use catchment_channel::Mode;
use catchment_netns::Namespace;
use catchment_perf::ChildProcess;
use serde_json::{Value, json};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

/// Where the agents of the right namespace listen for the others: in mode `share`, in mode `drum`.
const SHARE_PORT: u16 = 7200;
const DRUM_PORT: u16 = 7201;
/// A row that takes longer has stopped.
const ROW_LIMIT_S: u32 = 300;
/// What agents that share queue pairs are told of their device where no line binds them.
const UNBOUND_BYTES_PER_S: u64 = 5_000_000_000;

/// A request of Redis' benchmark, and how often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) command: &'static str,
    pub(super) clients: u32,
    pub(super) pipeline: u32,
    pub(super) value_bytes: u32,
    pub(super) requests: u32,
}

/// One of those that are compared.
pub(super) struct Rival {
    pub(super) what: What,
    pub(super) provider: Option<&'static str>,
    /// How messages of its tunnels travel.
    pub(super) mode: Option<Mode>,
    /// Where clients of each service connect, in the left namespace.
    pub(super) at: Vec<SocketAddr>,
    /// Ends and agents.
    processes: Vec<ChildProcess>,
}

/// The two namespaces, and the services that all carry connections to.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) hop: Hop<'a>,
    pub(super) services: &'a [Service],
    /// Between the namespaces, towards the services.
    pub(super) line: Option<Line>,
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The words that name the device of an end: for a service, of the right end or the left one.
type Device<'a> = dyn Fn(&Service, bool) -> Vec<String> + 'a;

impl Rival {
    pub(super) fn tcp(setting: Setting<'_>) -> Self {
        let at = |service: &Service| SocketAddr::new(setting.hop.right.1, service.port);
        let at = setting.services.iter().map(at).collect();
        Self { what: What::Tcp, provider: None, mode: None, at, processes: Vec::new() }
    }

    pub(super) fn raw(setting: Setting<'_>, mode: Mode) -> Result<Self> {
        let device = |_: &Service, _| strings(&["--provider", "roce"]);
        Self::tunnel(setting, (What::TunnelRaw, "roce", mode), &device, Vec::new())
    }

    /// Agents of a device each, without a session where no line binds them.
    pub(super) fn drum(setting: Setting<'_>, mode: Mode) -> Result<Self> {
        Self::over_agents(setting, (What::TunnelDrum, mode), |is_right| match setting.line {
            Some(line) => {
                let at = SocketAddr::new(setting.hop.right.1, DRUM_PORT);
                connected(at, is_right, "drum", line.payload_bytes_per_s())
            }
            None => json!({}),
        })
    }

    /// Agents with a session, whose connections share queue pairs, first come first served.
    pub(super) fn share(setting: Setting<'_>, mode: Mode) -> Result<Self> {
        let line = setting.line.map_or(UNBOUND_BYTES_PER_S, Line::payload_bytes_per_s);
        let at = SocketAddr::new(setting.hop.right.1, SHARE_PORT);
        let policy = |is_right| connected(at, is_right, "share", line);
        Self::over_agents(setting, (What::TunnelShare, mode), policy)
    }

    /// An agent on each side; `policy` is what theirs have beside device and applications: of the right one, of the left.
    fn over_agents(
        setting: Setting<'_>,
        (what, mode): (What, Mode),
        policy: impl Fn(bool) -> Value,
    ) -> Result<Self> {
        let Hop { left, right } = setting.hop;
        let name = |is_right| {
            let side = if is_right { "right" } else { "left" };
            format!("{what:?}-{side}-{}", std::process::id()).to_lowercase()
        };
        let agents = [(right, true), (left, false)].map(|((at, address), is_right)| {
            let mut policy = policy(is_right);
            let application = |service: &Service| json!({ "name": service.name });
            policy["applications"] = setting.services.iter().map(application).collect();
            agent(at, address, &name(is_right), policy)
        });
        let agents = agents.into_iter().collect::<Result<Vec<_>>>()?;
        let device = |service: &Service, is_right| {
            let application = format!("{}@{}", service.name, name(is_right));
            strings(&["--provider", "agent", "--agent", &application])
        };
        Self::tunnel(setting, (what, "agent", mode), &device, agents)
    }

    /// A tunnel for each service, by a device of its own at each end.
    fn tunnel(
        setting: Setting<'_>,
        (what, provider, mode): (What, &'static str, Mode),
        device: &Device<'_>,
        mut processes: Vec<ChildProcess>,
    ) -> Result<Self> {
        let mut at = Vec::new();
        for service in setting.services {
            let devices = [device(service, true), device(service, false)];
            let (end, ends) = tunnel_of(service, setting.hop, mode, devices)?;
            at.push(end);
            processes.extend(ends);
        }
        Ok(Self { what, provider: Some(provider), mode: Some(mode), at, processes })
    }

    /// Lets redis-benchmark run once against the first service.
    pub(super) fn measure(&self, setting: Setting<'_>, load: Load) -> Result<Found> {
        let before = self.cpu_ns(setting)?;
        let at = self.at.first().context("no service")?;
        let (host, port) = (at.ip().to_string(), at.port().to_string());
        let numbers = [load.clients, load.pipeline, load.value_bytes, load.requests];
        let [clients, pipeline, bytes, count] = &numbers.map(|number| number.to_string());
        let words = [
            "-h", &host, "-p", &port, "-t", load.command, "-c", clients, "-P", pipeline, "-d",
            bytes, "-n", count, "--csv",
        ];
        let mut child = setting.hop.left.0.run(|| {
            let mut benchmark = Command::new("timeout");
            benchmark
                .arg(ROW_LIMIT_S.to_string())
                .arg("redis-benchmark")
                .args(words)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
        })??;
        let mut said = String::new();
        child.stdout.take().context("standard output")?.read_to_string(&mut said)?;
        let used = sys::wait_with_usage(&child).with_context(|| {
            let (what, mode) = (self.what, self.mode.map_or("", Mode::name));
            format!("{what:?} {mode}, {}: failed, or took {ROW_LIMIT_S} s", words.join(" "))
        })?;
        let used = used.cpu_ns + self.cpu_ns(setting)? - before;
        let line = said.lines().last().context("a line of redis-benchmark")?;
        let value = |at: usize| -> Result<f64> {
            let field =
                line.split(',').nth(at).with_context(|| format!("field {at} of {line:?}"))?;
            Ok(field.trim_matches('"').parse()?)
        };
        Ok(Found {
            requests_per_s: value(1)?,
            latency_us_p50: 1000.0 * value(4)?,
            latency_us_p99: 1000.0 * value(6)?,
            cpu_s_per_mreq: Some(used as f64 / 1000.0 / f64::from(load.requests)),
            background_bytes_per_s: None,
        })
    }

    fn cpu_ns(&self, setting: Setting<'_>) -> Result<u64> {
        let services = setting.services.iter().map(Service::id);
        let processes = self.processes.iter().map(ChildProcess::id).chain(services);
        processes.map(sys::cpu_ns_of).sum()
    }
}

/// Starts both ends of a tunnel for a service; returns where clients connect, and the ends.
fn tunnel_of(
    service: &Service,
    hop: Hop<'_>,
    mode: Mode,
    [there, here]: [Vec<String>; 2],
) -> Result<(SocketAddr, [ChildProcess; 2])> {
    let listen = format!("{}:0", hop.right.1);
    let from = format!("{}={}", service.name, service.local());
    let words =
        ["tunnel", "serve", "--json", "--insecure", "--listen", &listen, "--service", &from];
    let words = [strings(&words), there].concat();
    let mut serve = start("tunnel serve", hop.right.0, &words)?;
    let listening = event(&mut serve, "listening")?;
    let to = listening["address"].as_str().context("an address")?;
    let words = ["tunnel", "--json", "--insecure", "--listen", "127.0.0.1:0", "--to", to];
    let more = ["--service", service.name, "--mode", mode.name()];
    let words = [strings(&words), strings(&more), here].concat();
    let mut client = start("tunnel", hop.left.0, &words)?;
    let listening = event(&mut client, "listening")?;
    let at = listening["address"].as_str().context("an address")?.parse()?;
    event(&mut client, "connected")?;
    Ok((at, [serve, client]))
}

/// Returns what the policy of an agent says of its session with the other one; the right one listens.
fn connected(address: SocketAddr, is_right: bool, mode: &str, bytes_per_s: u64) -> Value {
    let mut between = json!({ "host": 1 + u32::from(is_right) });
    let (key, value) =
        if is_right { ("listen", json!(address)) } else { ("peers", json!([address])) };
    between[key] = value;
    for what in ["send_bytes_per_s", "completion_bytes_per_s"] {
        between[what] = json!(bytes_per_s);
    }
    json!({ "mode": mode, "between": between })
}

/// An agent that owns the software RoCE device of a namespace.
fn agent(at: &Namespace, address: IpAddr, name: &str, mut policy: Value) -> Result<ChildProcess> {
    let file = std::env::temp_dir().join(format!("{name}.json"));
    policy["name"] = json!(name);
    policy["device"] = json!({ "roce": address });
    std::fs::write(&file, policy.to_string())?;
    let path = file.to_str().context("a path that is text")?;
    let words = ["agent", "--json", "--insecure", "--policy", path];
    let mut agent = start("agent", at, &strings(&words))?;
    event(&mut agent, "listening")?;
    let _ = std::fs::remove_file(&file);
    Ok(agent)
}
