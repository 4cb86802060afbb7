//! Two hosts: agents, and applications of each. All are processes.
use super::application::now_ns;
use catchment_agent::protocol::Account;
use catchment_agent::{peers, status};
use catchment_conformance::eventually;
use catchment_probe::child::Child;
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Applications of the first host, with their weights; the one of the second, beside the target.
pub(crate) const NAMES: [(&str, f64); 3] = [("one", 1.0), ("two", 2.0), ("four", 4.0)];
const NEAR: &str = "near";
pub(crate) const LEASE_MS: u64 = 500;
/// What the second host takes in: less than applications would send.
const TAKES_IN: u64 = 100_000_000;

/// Returns the rates together at which a share counts as given to others, from those before. Two agents are asked one after
/// the other: while rates move, their sum may seem more than there ever is.
pub(crate) fn enough(before: f64) -> f64 {
    0.9 * before.min(TAKES_IN as f64)
}

/// An agent, of the program that is tested or of this one.
pub(crate) struct AgentProcess {
    process: std::process::Child,
    pub(crate) name: String,
    policy: PathBuf,
}

impl AgentProcess {
    fn launch(policy: &Path) -> std::process::Child {
        let mut command = match std::env::var_os("CATCHMENT_SOAK_BINARY") {
            Some(binary) => {
                let mut command = Command::new(binary);
                command.args(["agent", "--until-stdin-closes", "--json", "--policy"]).arg(policy);
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["second_process", "--nocapture", "--test-threads=1"]);
                command.env("CATCHMENT_TEST_ROLE", format!("agent {}", policy.display()));
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn start(policy: PathBuf, name: String) -> Self {
        let agent = Self { process: Self::launch(&policy), name, policy };
        eventually("the agent", || status(&agent.name).is_ok());
        agent
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.process = Self::launch(&self.policy);
        eventually("the next agent", || status(&self.name).is_ok());
    }

    /// Whether another one of the name starts.
    pub(crate) fn has_a_double(&self) -> bool {
        let mut second = Self::launch(&self.policy);
        second.wait().unwrap().success()
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What an application tells.
#[derive(Debug, Clone)]
pub(crate) struct Count {
    pub(crate) batches: u64,
    pub(crate) lost: u64,
    pub(crate) at_ns: u64,
    pub(crate) why: String,
}

pub(crate) struct Application {
    pub(crate) process: Child,
    pub(crate) name: &'static str,
}

impl Application {
    pub(crate) fn count(&mut self) -> Count {
        let said = self.process.ask("count");
        let mut words = said.splitn(4, ' ');
        let mut number = || words.next().unwrap().parse().unwrap();
        let (batches, lost, at_ns) = (number(), number(), number());
        Count { batches, lost, at_ns, why: words.next().unwrap().to_owned() }
    }

    /// Waits until it has done more.
    pub(crate) fn goes_on(&mut self) {
        let before = self.count().batches;
        eventually(&format!("{} goes on", self.name), || self.count().batches > before + 1);
    }
}

/// A process stands still while `during` runs.
pub(crate) fn stop(process: u32, during: impl FnOnce()) {
    let process = Pid::from_raw(process.cast_signed()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    during();
    kill_process(process, Signal::CONT).unwrap();
}

/// Applications first: they end before their agents.
pub(crate) struct World {
    pub(crate) applications: Vec<Application>,
    pub(crate) near: Application,
    _target: Child,
    target_at: String,
    pub(crate) here: AgentProcess,
    pub(crate) there: AgentProcess,
    seed: u64,
    _folder: tempfile::TempDir,
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ports = [free_port(), free_port()];
        let agent = |host: usize| {
            let name = format!("soak-{}-{host}", std::process::id());
            let rule =
                |(name, weight): (&str, f64)| serde_json::json!({ "name": name, "weight": weight });
            let all = NAMES.into_iter().chain([(NEAR, 1.0), ("target", 1.0)]);
            let dials: &[String] = if host == 0 { &ports[1..] } else { &[] };
            let takes_in = if host == 0 { 10 * TAKES_IN } else { TAKES_IN };
            let policy = serde_json::json!({
                "name": name,
                "applications": all.map(rule).collect::<Vec<_>>(),
                "between": { "listen": ports[host], "peers": dials, "host": host + 1, "lease_ms": LEASE_MS,
                    "send_bytes_per_s": 10 * TAKES_IN, "completion_bytes_per_s": takes_in }
            });
            let file = folder.path().join(format!("{host}.json"));
            std::fs::write(&file, policy.to_string()).unwrap();
            AgentProcess::start(file, name)
        };
        let (there, here) = (agent(1), agent(0));
        let mut target = Child::start("second_process", &format!("target {}", there.name));
        let target_at = target.hear();
        let near = start(NEAR, &there.name, &target_at, seed);
        let mut world = Self {
            applications: Vec::new(),
            near,
            _target: target,
            target_at,
            here,
            there,
            seed,
            _folder: folder,
        };
        world.fill();
        world.settle();
        world
    }

    /// Starts the applications of the first host that are missing.
    pub(crate) fn fill(&mut self) {
        for (name, _) in NAMES {
            if !self.applications.iter().any(|one| one.name == name) {
                self.seed = self.seed.wrapping_add(1);
                let started = start(name, &self.here.name, &self.target_at, self.seed);
                self.applications.push(started);
            }
        }
    }

    /// Waits until all work, with a session between the hosts, and share queue pairs.
    pub(crate) fn settle(&mut self) {
        eventually("a session", || self.is_joined());
        self.near.goes_on();
        self.applications.iter_mut().for_each(Application::goes_on);
        let shared = self.applications.len() as u32;
        eventually("shared queue pairs", || self.connections() == shared);
    }

    fn is_joined(&self) -> bool {
        [&self.here, &self.there]
            .iter()
            .all(|agent| peers(&agent.name).is_ok_and(|all| all.iter().any(|peer| peer.connected)))
    }

    /// Connections of the first host that the second one knows of.
    pub(crate) fn connections(&self) -> u32 {
        peers(&self.there.name).unwrap().iter().map(|peer| peer.connections).sum()
    }

    /// The rates of all applications that compete for what the second host takes in.
    pub(crate) fn rates(&self) -> f64 {
        let here: f64 = self.accounts().iter().map(|one| one.rate_bytes_per_s).sum();
        here + self.near_rate()
    }

    /// Whether all have what they were found to ask for, so that more would be of no use to them.
    pub(crate) fn asks_for_no_more(&self) -> bool {
        let there = status(&self.there.name).unwrap();
        let near = there.iter().filter(|one| one.application == NEAR);
        self.accounts()
            .iter()
            .chain(near)
            .all(|one| one.asks_bytes_per_s.is_some_and(|asks| one.rate_bytes_per_s >= 0.9 * asks))
    }

    pub(crate) fn accounts(&self) -> Vec<Account> {
        status(&self.here.name).unwrap()
    }

    /// The rate of the second host's application.
    pub(crate) fn near_rate(&self) -> f64 {
        let accounts = status(&self.there.name).unwrap();
        let near = accounts.iter().find(|account| account.application == NEAR);
        near.map_or(0.0, |account| account.rate_bytes_per_s)
    }

    pub(crate) fn counts(&mut self) -> Vec<Count> {
        let all = self.applications.iter_mut().chain([&mut self.near]);
        all.map(Application::count).collect()
    }
}

fn start(name: &'static str, agent: &str, target: &str, seed: u64) -> Application {
    let role = format!("application {name} {agent} {target} {seed}");
    Application { process: Child::start("second_process", &role), name }
}

/// What an agent holds: descriptors, and mappings of shared memory.
pub(crate) fn held(agent: u32) -> (usize, usize) {
    let of = |what| format!("/proc/{agent}/{what}");
    let maps = std::fs::read_to_string(of("maps")).unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:")).count();
    (std::fs::read_dir(of("fd")).unwrap().count(), shared)
}

/// Waits until something holds, looking all the time; returns the milliseconds since `since_ns`.
pub(crate) fn ms_until(what: &str, since_ns: u64, mut holds: impl FnMut() -> bool) -> f64 {
    loop {
        if holds() {
            return (now_ns() - since_ns) as f64 / 1e6;
        }
        assert!(now_ns() - since_ns < 60_000_000_000, "{what} did not come");
        // An agent tells of itself only when asked.
        std::thread::sleep(Duration::from_micros(100));
    }
}
