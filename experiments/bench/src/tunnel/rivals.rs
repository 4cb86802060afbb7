//! Redis, its benchmark, and what carries the connections between them.
use super::row::{Found, What};
use crate::long::{event, start};
use crate::sys;
use anyhow::{Context as _, Result};
use catchment_netns::{Namespace, VethPair, wait_until};
use catchment_perf::ChildProcess;
use serde_json::json;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};

const PORT: u16 = 6379;
const AGENT_PORT: u16 = 7200;
/// What agents that share queue pairs are told of their device; they decide no rates by it.
const LINE_BYTES_PER_S: u64 = 5_000_000_000;

/// The service, in the right namespace.
pub(super) struct Redis(ChildProcess);

impl Redis {
    pub(super) fn start(veth: &VethPair) -> Result<Self> {
        let process = veth.right.run(|| {
            let mut command = Command::new("redis-server");
            command.args([
                "--port",
                &PORT.to_string(),
                "--save",
                "",
                "--protected-mode",
                "no",
                "--loglevel",
                "warning",
            ]);
            command.args(["--dir", "/tmp"]).stdin(Stdio::null());
            ChildProcess::start("redis-server", &mut command)
        })??;
        let address = SocketAddr::new(VethPair::RIGHT_V4, PORT);
        veth.left
            .run(|| wait_until("redis-server listens", || TcpStream::connect(address).is_ok()))?;
        Ok(Self(process))
    }
}

/// One of those that are compared.
pub(super) struct Rival {
    pub(super) what: What,
    pub(super) provider: Option<&'static str>,
    /// Where clients connect, in the left namespace.
    at: SocketAddr,
    /// Ends and agents.
    processes: Vec<ChildProcess>,
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Rival {
    pub(super) fn tcp() -> Self {
        let at = SocketAddr::new(VethPair::RIGHT_V4, PORT);
        Self { what: What::Tcp, provider: None, at, processes: Vec::new() }
    }

    pub(super) fn raw(veth: &VethPair) -> Result<Self> {
        let words = ["--provider", "roce"];
        Self::tunnel(veth, What::TunnelRaw, "roce", [&words, &words], Vec::new())
    }

    pub(super) fn drum(veth: &VethPair) -> Result<Self> {
        Self::over_agents(veth, What::TunnelDrum, |_| json!({}))
    }

    /// Agents with a session, whose connections share queue pairs, first come first served.
    pub(super) fn share(veth: &VethPair) -> Result<Self> {
        let address = SocketAddr::new(VethPair::RIGHT_V4, AGENT_PORT);
        Self::over_agents(veth, What::TunnelShare, |is_right| {
            let mut between = json!({ "host": 1 + u32::from(is_right) });
            let (key, value) =
                if is_right { ("listen", json!(address)) } else { ("peers", json!([address])) };
            between[key] = value;
            for what in ["send_bytes_per_s", "completion_bytes_per_s"] {
                between[what] = json!(LINE_BYTES_PER_S);
            }
            json!({ "mode": "share", "between": between })
        })
    }

    /// An agent on each side; `policy` is what theirs have beside device and applications: of the right one, of the left.
    fn over_agents(
        veth: &VethPair,
        what: What,
        policy: impl Fn(bool) -> serde_json::Value,
    ) -> Result<Self> {
        let mut agents = Vec::new();
        let name = |side: &str| format!("{what:?}-{side}-{}", std::process::id()).to_lowercase();
        for (at, address, side) in
            [(&veth.right, VethPair::RIGHT_V4, "right"), (&veth.left, VethPair::LEFT_V4, "left")]
        {
            agents.push(agent(at, address, &name(side), policy(side == "right"))?);
        }
        let [right, left] = ["right", "left"].map(|side| format!("redis@{}", name(side)));
        let there = ["--provider", "agent", "--agent", &right];
        let here = ["--provider", "agent", "--agent", &left];
        Self::tunnel(veth, what, "agent", [&there, &here], agents)
    }

    fn tunnel(
        veth: &VethPair,
        what: What,
        provider: &'static str,
        [there, here]: [&[&str]; 2],
        mut processes: Vec<ChildProcess>,
    ) -> Result<Self> {
        let listen = format!("{}:0", VethPair::RIGHT_V4);
        let service = format!("redis=127.0.0.1:{PORT}");
        let words =
            ["tunnel", "serve", "--json", "--insecure", "--listen", &listen, "--service", &service];
        let mut serve = start("tunnel serve", &veth.right, &strings(&[&words, there].concat()))?;
        let listening = event(&mut serve, "listening")?;
        let to = listening["address"].as_str().context("an address")?.to_owned();
        let words = [
            "tunnel", "--json", "--insecure", "--listen", "127.0.0.1:0", "--service", "redis",
            "--to", &to,
        ];
        let mut client = start("tunnel", &veth.left, &strings(&[&words, here].concat()))?;
        let listening = event(&mut client, "listening")?;
        let at = listening["address"].as_str().context("an address")?.parse()?;
        event(&mut client, "connected")?;
        processes.extend([serve, client]);
        Ok(Self { what, provider: Some(provider), at, processes })
    }

    /// Lets redis-benchmark run once: command, clients, pipeline, bytes of a value, requests.
    pub(super) fn measure(
        &self,
        veth: &VethPair,
        redis: &Redis,
        (command, clients, pipeline, bytes, requests): (&str, u32, u32, u32, u32),
    ) -> Result<Found> {
        let before = self.cpu_ns(redis)?;
        let (host, port) = (self.at.ip().to_string(), self.at.port().to_string());
        let numbers = [clients, pipeline, bytes, requests].map(|number| number.to_string());
        let [clients, pipeline, bytes, count] = &numbers;
        let words = [
            "-h", &host, "-p", &port, "-t", command, "-c", clients, "-P", pipeline, "-d", bytes,
            "-n", count, "--csv",
        ];
        let mut child = veth.left.run(|| {
            let mut benchmark = Command::new("redis-benchmark");
            benchmark.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
        })??;
        let mut said = String::new();
        child.stdout.take().context("standard output")?.read_to_string(&mut said)?;
        let used = sys::wait_with_usage(&child)?.cpu_ns + self.cpu_ns(redis)? - before;
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
            cpu_s_per_mreq: used as f64 / 1000.0 / f64::from(requests),
        })
    }

    fn cpu_ns(&self, redis: &Redis) -> Result<u64> {
        let processes = self.processes.iter().chain([&redis.0]);
        let threads =
            processes.map(|process| sys::threads(process.id())).collect::<Result<Vec<_>>>()?;
        Ok(threads.iter().flatten().map(|thread| thread.cpu_ns).sum())
    }
}

/// An agent that owns the software RoCE device of a namespace, with one application.
fn agent(
    at: &Namespace,
    address: IpAddr,
    name: &str,
    mut text: serde_json::Value,
) -> Result<ChildProcess> {
    let policy = std::env::temp_dir().join(format!("{name}.json"));
    text["name"] = json!(name);
    text["device"] = json!({ "roce": address });
    text["applications"] = json!([{ "name": "redis" }]);
    std::fs::write(&policy, text.to_string())?;
    let path = policy.to_str().context("a path that is text")?;
    let words = ["agent", "--json", "--insecure", "--policy", path];
    let mut agent = start("agent", at, &strings(&words))?;
    event(&mut agent, "listening")?;
    let _ = std::fs::remove_file(&policy);
    Ok(agent)
}
