//! The processes of a measurement: an agent, applications, and the targets of their requests.
pub(crate) use super::seat::Work;
use super::seat::{Found, Seat, Served, Used};
use crate::hop::Hop;
use crate::{host, rate, sys};
use anyhow::{Context as _, Result, ensure};
use catchment_perf::ChildProcess;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of those that others write to, in the policy.
pub(crate) const TARGET: &str = "target";
pub(super) const READY: &str = "ready";
/// Bytes a second that bind nobody.
const UNBOUND: u64 = 1 << 40;
/// What JUSTITIA's probes shall not take longer than.
const TARGET_US: u32 = 100;

/// What one of the processes does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Runs an agent with this policy on this core until its input ends.
    Agent { policy: String, core: usize },
    /// Owns memory that one application writes to.
    Target(Seat),
    /// The same, in a network namespace.
    In { netns: String, role: Box<Self> },
    /// Measures, and says what it found.
    Application { seat: Seat, target: SocketAddr, work: Vec<Work> },
    /// Many applications, and their targets, as it is told.
    Crowd { here: Seat, there: Seat },
    /// So many applications with a connection each, which exchange so many requests and say what went astray.
    Exchange { here: Seat, there: Seat, apps: usize, requests: u64 },
}

/// One of the two ends of a network, where there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct End {
    netns: Option<String>,
    address: Option<IpAddr>,
    /// Of its agent; none: the second.
    agent_core: Option<usize>,
}

impl End {
    /// Returns its device, as a policy names it.
    fn device(&self) -> serde_json::Value {
        self.address.map_or(serde_json::json!("shm"), |at| serde_json::json!({ "roce": at }))
    }

    /// Returns what its agent does.
    fn agent(&self, policy: &serde_json::Value) -> Role {
        let core = self.agent_core.unwrap_or_else(host::collector_core);
        Role::Agent { policy: policy.to_string(), core }
    }
}

/// What applications and targets are joined by: nothing is shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Network<'a>(pub(crate) Option<Hop<'a>>);

impl Network<'_> {
    /// Returns the end of applications, or that of targets.
    pub(super) fn end(self, of_targets: bool) -> End {
        let Some(hop) = self.0 else { return End::default() };
        let (namespace, address) = if of_targets { hop.right } else { hop.left };
        let agent_core = Some(core_of_agent(of_targets, host::cores()));
        End { netns: Some(namespace.path()), address: Some(address), agent_core }
    }

    /// Returns the name of the provider.
    pub(crate) fn provider(self) -> &'static str {
        if self.0.is_some() { "roce" } else { "shm" }
    }
}

/// Returns the core of the agent at an end of a network. Each end stands for a host: while there are too few for the
/// agents to have cores of their own, all of a host are on one, as RAW's program and its device are.
fn core_of_agent(of_targets: bool, cores: usize) -> usize {
    match (of_targets, cores >= 4) {
        (false, true) => 1,
        (true, true) => 3,
        (false, false) => host::SOURCE_CORE,
        (true, false) => host::collector_core(),
    }
}

pub(super) fn start(name: &'static str, role: Role, end: &End) -> Result<ChildProcess> {
    let role = match &end.netns {
        Some(netns) => Role::In { netns: netns.clone(), role: Box::new(role) },
        None => role,
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["agent-role", &serde_json::to_string(&role)?]).stdin(Stdio::piped());
    Ok(ChildProcess::start(name, &mut command)?)
}

/// The agents of a measurement, each in a process of its own: one for all over shared memory, one at each end of
/// a network.
pub(crate) struct AgentProcess {
    served: Served,
    of_targets: Option<Served>,
    _processes: Vec<ChildProcess>,
}

impl AgentProcess {
    /// Starts them in a mode of the policy, for applications of these weights.
    pub(crate) fn start(mode: &str, weights: &[f64], network: Network<'_>) -> Result<Self> {
        let agent = |of_targets| start_one(mode, weights, &network.end(of_targets));
        let (served, first) = agent(false)?;
        let second = network.0.map(|_| agent(true)).transpose()?;
        let (of_targets, second) = second.unzip();
        let processes = std::iter::once(first).chain(second).collect();
        Ok(Self { served, of_targets, _processes: processes })
    }

    /// Starts one for one application, over RoCEv2 at an address of this namespace, or over shared memory.
    pub(super) fn start_at(address: Option<IpAddr>) -> Result<Self> {
        let (served, process) = start_one("drum", &[1.0], &End { address, ..End::default() })?;
        Ok(Self { served, of_targets: None, _processes: vec![process] })
    }

    /// Starts one over shared memory by a policy that says what its device does: so many bytes a second.
    pub(super) fn start_on_line(
        mode: &str,
        weights: &[f64],
        line_bytes_per_s: u64,
    ) -> Result<Self> {
        let name = unused_name();
        let policy = serde_json::json!({
            "name": name, "mode": mode, "applications": rules(weights),
            "between": {
                "listen": "127.0.0.1:0", "send_bytes_per_s": line_bytes_per_s,
                "completion_bytes_per_s": UNBOUND
            },
            "justitia": { "line_bytes_per_s": line_bytes_per_s, "target_us": TARGET_US }
        });
        let mut process = start("the agent", End::default().agent(&policy), &End::default())?;
        process.wait_for(|line| line.starts_with(READY))?;
        let served = Served { name, process: process.id() };
        Ok(Self { served, of_targets: None, _processes: vec![process] })
    }

    /// Seats of an application at both ends, over shared memory.
    pub(super) fn seats(&self, application: &str) -> [Seat; 2] {
        let seat = |agent: &Served| Seat {
            agent: Some(agent.clone()),
            application: application.to_owned(),
            address: None,
        };
        [seat(&self.served), seat(self.of_targets.as_ref().unwrap_or(&self.served))]
    }

    /// What that of applications uses.
    pub(super) fn used(&self) -> Used {
        self.served.used()
    }

    /// The agent of applications.
    pub(crate) fn name(&self) -> &str {
        &self.served.name
    }

    /// That of their targets.
    pub(crate) fn name_of_targets(&self) -> &str {
        &self.of_targets.as_ref().unwrap_or(&self.served).name
    }

    /// Starts one for each end, which have a session, in a mode of the policy, with rates that bind nobody.
    pub(crate) fn start_two(mode: &str, weights: &[f64], network: Network<'_>) -> Result<Self> {
        Hosts::start_connected(mode, weights, network, UNBOUND)
    }

    /// The same, over a line that takes so many bytes a second.
    pub(crate) fn start_two_at(
        mode: &str,
        weights: &[f64],
        network: Network<'_>,
        line_bytes_per_s: u64,
    ) -> Result<Self> {
        Hosts::start_connected(mode, weights, network, line_bytes_per_s)
    }
}

fn start_one(mode: &str, weights: &[f64], end: &End) -> Result<(Served, ChildProcess)> {
    let (name, device) = (unused_name(), end.device());
    let policy = serde_json::json!({ "name": name, "device": device, "mode": mode, "applications": rules(weights) });
    let mut process = start("the agent", end.agent(&policy), end)?;
    process.wait_for(|line| line == READY)?;
    Ok((Served { name, process: process.id() }, process))
}

/// Returns the rules of applications of these weights, and of their targets.
fn rules(weights: &[f64]) -> Vec<serde_json::Value> {
    let rule = |(at, weight): (usize, &f64)| serde_json::json!({ "name": application(at), "weight": weight });
    let targets = std::iter::once(serde_json::json!({ "name": TARGET }));
    weights.iter().enumerate().map(rule).chain(targets).collect()
}

fn unused_name() -> String {
    static AGENTS: AtomicU64 = AtomicU64::new(0);
    format!("bench-{}-{}", std::process::id(), AGENTS.fetch_add(1, Ordering::Relaxed))
}

/// The agents of two hosts, which agree on rates.
pub(crate) struct Hosts {
    /// Applications of the first, and their targets at the second.
    pub(crate) across: AgentProcess,
    /// Both at the second.
    pub(crate) there: AgentProcess,
}

/// Waits until something holds, which is looked at so often.
pub(super) fn wait(
    what: &str,
    every: Duration,
    mut holds: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begun = Instant::now();
    while !holds()? {
        ensure!(begun.elapsed() < PATIENCE, "{what} does not come");
        // An agent tells of its accounts and sessions only when asked.
        std::thread::sleep(every);
    }
    Ok(())
}

impl Hosts {
    /// Starts both, in a mode of the policy, and waits until they have a session.
    fn start_connected(
        mode: &str,
        weights: &[f64],
        network: Network<'_>,
        line_bytes_per_s: u64,
    ) -> Result<AgentProcess> {
        let line = (line_bytes_per_s, line_bytes_per_s);
        let hosts = Self::start_in(mode, weights, network, line, true)?;
        // Where it can be asked.
        let ask = || catchment_agent::peers(hosts.first());
        let peers = || match network.0 {
            Some(hop) => anyhow::Ok(hop.left.0.run(ask)??),
            None => Ok(ask()?),
        };
        wait("a session of two agents", Duration::from_millis(1), || {
            Ok(peers()?.iter().any(|peer| peer.connected))
        })?;
        Ok(hosts.across)
    }

    /// Starts both, for applications of these weights: what both send, in bytes a second, and the second takes in; with
    /// rounds by WRITEs into slots, or by their session.
    pub(crate) fn start(
        weights: &[f64],
        (sends, takes_in): (u64, u64),
        has_slots: bool,
    ) -> Result<Self> {
        Self::start_in("drum", weights, Network(None), (sends, takes_in), has_slots)
    }

    fn start_in(
        mode: &str,
        weights: &[f64],
        network: Network<'_>,
        (sends, takes_in): (u64, u64),
        has_slots: bool,
    ) -> Result<Self> {
        let agent = |host: u32, peers: &[String], takes_in: u64| {
            let name = unused_name();
            let end = network.end(host == 2);
            let at = end.address.unwrap_or(Ipv4Addr::LOCALHOST.into());
            let between = serde_json::json!({
                "listen": format!("{at}:0"), "peers": peers, "host": host,
                "send_bytes_per_s": sends, "completion_bytes_per_s": takes_in,
                "slots": has_slots
            });
            let device = end.device();
            let policy = serde_json::json!({
                "name": name, "device": device, "mode": mode, "applications": rules(weights),
                "between": between,
                // One application alone has nobody to be held back for.
                "justitia": { "line_bytes_per_s": sends, "target_us": TARGET_US }
            });
            let mut process = start("an agent", end.agent(&policy), &end)?;
            let ready = process.wait_for(|line| line.starts_with(READY))?;
            let address = ready.trim().rsplit(' ').next().unwrap_or_default().to_owned();
            anyhow::Ok((Served { name, process: process.id() }, process, address))
        };
        let (second, second_process, address) = agent(2, &[], takes_in)?;
        let (first, first_process, _) = agent(1, &[address], sends)?;
        Ok(Self {
            across: AgentProcess {
                served: first,
                of_targets: Some(second.clone()),
                _processes: vec![first_process, second_process],
            },
            there: AgentProcess { served: second, of_targets: None, _processes: Vec::new() },
        })
    }

    /// The name of the first one's agent.
    pub(crate) fn first(&self) -> &str {
        self.across.name()
    }

    /// The name of the second one's agent.
    pub(crate) fn second(&self) -> &str {
        self.there.name()
    }
}

/// Returns the name of an application in the policy.
pub(crate) fn application(at: usize) -> String {
    format!("application-{at}")
}

/// An application at work, and its target.
pub(crate) struct Pair {
    application: ChildProcess,
    target: ChildProcess,
}

impl Pair {
    /// Starts the application of this number, through the agents if there are any.
    pub(crate) fn start(
        agents: Option<&AgentProcess>,
        network: Network<'_>,
        at: usize,
        work: &[Work],
    ) -> Result<Self> {
        let (ours, theirs) = (network.end(false), network.end(true));
        let agent = agents.map(|agents| agents.of_targets.clone().unwrap_or(agents.served.clone()));
        let seat = Seat { agent, application: TARGET.to_owned(), address: theirs.address };
        let mut target = start("the target", Role::Target(seat), &theirs)?;
        let agent = agents.map(|agents| agents.served.clone());
        let seat = Seat { agent, application: application(at), address: ours.address };
        let target_at = rate::address(&mut target)?;
        let role = Role::Application { seat, target: target_at, work: work.to_vec() };
        Ok(Self { application: start("the application", role, &ours)?, target })
    }

    /// Kills the application. Returns when that ended ([`sys::monotonic_ns`]), and its target, which is killed when it is
    /// dropped.
    ///
    /// The kernel closes what the process held, its output first, its connection to the agent microseconds later. Who
    /// waits for that on busy cores is woken at once only with real-time priority, where that is allowed.
    pub(crate) fn kill(mut self) -> Result<(u64, ChildProcess)> {
        let number = i32::try_from(self.application.id()).context("the number of a process")?;
        let number = Pid::from_raw(number).context("no process has number 0")?;
        let is_allowed = sys::set_realtime(true).is_ok();
        kill_process(number, Signal::KILL)?;
        // It says nothing more.
        let _ = self.application.wait_for(|_| false);
        let ended_ns = sys::monotonic_ns();
        if is_allowed {
            sys::set_realtime(false)?;
        }
        Ok((ended_ns, self.target))
    }

    /// Waits until its work is done; what it found, of each piece.
    pub(crate) fn finish(self) -> Result<Vec<Found>> {
        serde_json::from_str(self.application.finish()?.trim()).context("the application")
    }
}
