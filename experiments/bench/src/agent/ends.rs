//! The processes of a measurement: an agent, applications, and the targets of their requests.
use crate::hop::Hop;
use crate::{host, output, rate, sys};
use anyhow::{Context as _, Result, bail};
use catchment_agent::peer::PeerSecurity;
use catchment_agent::policy::Policy;
use catchment_agent::protocol::Peer;
use catchment_agent::{Agent, AgentOptions, AgentProvider};
use catchment_netns::Namespace;
use catchment_perf::{
    Amount, ChildProcess, Control, Figure, LocalDevice, Measured, Operation, Plan, Row, Test,
    Waiting, stats,
};
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_provider_shm::{DEVICE, ShmProvider};
use catchment_session::io::{ClientSecurity, ServerSecurity};
use catchment_verbs::{Context, Provider as _};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Receives that a target of SENDs keeps posted.
const RECEIVES: u32 = 256;
/// The name of those that others write to, in the policy.
pub(crate) const TARGET: &str = "target";
const READY: &str = "ready";
/// What JUSTITIA's probes shall not take longer than.
const TARGET_US: u32 = 100;

/// What one of the processes does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Runs an agent with this policy until its input ends.
    Agent(String),
    /// Owns memory that one application writes to.
    Target(Seat),
    /// The same, in a network namespace.
    In { netns: String, role: Box<Self> },
    /// Measures, and says what it found.
    Application { seat: Seat, target: SocketAddr, work: Vec<Work> },
}

/// Whose device a process uses.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seat {
    /// Nothing is RAW: a device of its own.
    agent: Option<Served>,
    application: String,
    /// Of its end of a network; without one, shared memory.
    address: Option<IpAddr>,
}

/// An agent that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Served {
    name: String,
    process: u32,
}

/// What an application does with the device.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) operation: Operation,
    pub(crate) bytes: u64,
    /// 1: each request is timed.
    pub(crate) outstanding: u32,
    pub(crate) warm_up: Amount,
    pub(crate) seconds: f64,
    pub(crate) waiting: Waiting,
}

impl Work {
    pub(crate) fn plan(&self) -> Plan {
        let test = Test::new(self.operation, Figure::Bandwidth);
        let amount = Amount::Seconds(self.seconds);
        Plan {
            warm_up: self.warm_up,
            receives: if self.operation.takes_receive() { RECEIVES } else { 1 },
            ..Plan::new(test, self.bytes, amount, self.outstanding, self.waiting)
        }
    }
}

/// What came out of one piece of work.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) ops_per_s: f64,
    /// From posting until complete, where requests were timed: p50, p80, p99.
    pub(crate) latency_ns: Option<[f64; 3]>,
    /// Of both processes.
    pub(crate) cpu_percent_apps: f64,
    pub(crate) cpu_percent_agent: Option<f64>,
    pub(crate) agent_ns_per_op: Option<f64>,
    /// That the agent had in the device.
    pub(crate) queue_pairs: Option<u64>,
}

/// Runs one of the processes.
pub(crate) fn role(order: &Role) -> Result<()> {
    match order {
        Role::Agent(policy) => {
            sys::settle(host::collector_core())?;
            // Where both ends are of this measurement, nobody else is in their namespaces.
            let security = PeerSecurity {
                client: ClientSecurity { tls: None, insecure: true },
                server: ServerSecurity { tls: None, insecure: true },
            };
            let agent = Agent::start_secured(Policy::parse(policy)?, security)?;
            let local = agent.local().map(|local| format!(" {local}"));
            output::line(&format!("{READY}{}", local.unwrap_or_default()))?;
            std::io::stdin().lines().for_each(drop);
            Ok(())
        }
        Role::Target(seat) => {
            sys::settle(host::cores().saturating_sub(1).min(2))?;
            rate::serve_at(seat.open()?, seat.address.unwrap_or(Ipv4Addr::LOCALHOST.into()))
        }
        Role::In { netns, role: order } => {
            Namespace::open(netns)?.enter()?;
            role(order)
        }
        Role::Application { seat, target, work } => {
            sys::settle(host::SOURCE_CORE)?;
            let mut control = Control::over_tcp(TcpStream::connect(target)?)?;
            let work = work.iter().map(|work| seat.measure(&mut control, work));
            output::json(&work.collect::<Result<Vec<Found>>>()?)
        }
    }
}

impl Seat {
    fn open(&self) -> Result<Arc<dyn Context>> {
        let Some(Served { name, .. }) = &self.agent else {
            return Ok(match self.address {
                None => ShmProvider::new().open(DEVICE)?,
                Some(at) => {
                    // Several may be at one address, each with a device of its own.
                    let options = RoceOptions { other_port: true, ..RoceOptions::default() };
                    RoceProvider::new(options).open(&at.to_string())?
                }
            });
        };
        let (agent, application) = (name.clone(), self.application.clone());
        Ok(AgentProvider::new(AgentOptions { agent, application }).open(name)?)
    }

    fn measure(&self, control: &mut Control, work: &Work) -> Result<Found> {
        let queue_pairs = Arc::new(AtomicU64::new(0));
        let mut device = LocalDevice::new(self.open()?);
        if let Some(agent) = self.agent.clone() {
            let queue_pairs = Arc::clone(&queue_pairs);
            device.counters = Box::new(move || agent.counters(&queue_pairs));
        }
        let plan = work.plan();
        let (measured, times) = if work.outstanding == 1 {
            catchment_perf::time_requests(control, &device, &plan)?
        } else {
            (catchment_perf::measure(control, &device, &plan)?, Vec::new())
        };
        let Row::Bandwidth(row) = measured.row else {
            bail!("the engine measured something else: {measured:?}");
        };
        let Measured { time, active, .. } = measured;
        let agent_ns = active.counters.first().map(|ns| *ns as f64);
        let latency = |part| stats::percentile(&times, part);
        Ok(Found {
            ops_per_s: row.messages_per_s,
            latency_ns: (!times.is_empty()).then(|| [0.5, 0.8, 0.99].map(latency)),
            cpu_percent_apps: row.client_cpu_percent + row.server_cpu_percent,
            cpu_percent_agent: agent_ns.map(|ns| 100.0 * ns / time.as_nanos() as f64),
            agent_ns_per_op: agent_ns.map(|ns| ns / row.iterations as f64),
            queue_pairs: Some(queue_pairs.load(Ordering::Relaxed)).filter(|count| *count > 0),
        })
    }
}

impl Served {
    /// Returns the agent's processor time, where it can be read, and notes its queue pairs.
    fn counters(&self, queue_pairs: &AtomicU64) -> Vec<u64> {
        let accounts = catchment_agent::status(&self.name).unwrap_or_default();
        let own: u64 = accounts.iter().map(|account| account.queue_pairs).sum();
        let peers = catchment_agent::peers(&self.name).unwrap_or_default();
        let shares =
            |of: fn(&Peer) -> u32| peers.iter().map(|peer| u64::from(of(peer))).sum::<u64>();
        // Those that share have none of their own that is connected.
        let count = own - shares(|peer| peer.connections).min(own);
        queue_pairs.fetch_max(count + shares(|peer| peer.queue_pairs), Ordering::Relaxed);
        let threads = sys::threads(self.process);
        threads.map_or(Vec::new(), |all| vec![all.iter().map(|thread| thread.cpu_ns).sum()])
    }
}

/// One of the two ends of a network, where there is one.
#[derive(Debug, Clone, Default)]
struct End {
    netns: Option<String>,
    address: Option<IpAddr>,
}

impl End {
    /// Returns its device, as a policy names it.
    fn device(&self) -> serde_json::Value {
        self.address.map_or(serde_json::json!("shm"), |at| serde_json::json!({ "roce": at }))
    }
}

/// What applications and targets are joined by: nothing is shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Network<'a>(pub(crate) Option<Hop<'a>>);

impl Network<'_> {
    /// Returns the end of applications, or that of targets.
    fn end(self, of_targets: bool) -> End {
        let Some(hop) = self.0 else { return End::default() };
        let (namespace, address) = if of_targets { hop.right } else { hop.left };
        End { netns: Some(namespace.path()), address: Some(address) }
    }

    /// Returns the name of the provider.
    pub(crate) fn provider(self) -> &'static str {
        if self.0.is_some() { "roce" } else { "shm" }
    }
}

fn start(name: &'static str, role: Role, end: &End) -> Result<ChildProcess> {
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
        let rules = rules(weights);
        let agent = |end: End| {
            let name = unused_name();
            let device = end.device();
            let policy = serde_json::json!({ "name": name, "device": device, "mode": mode, "applications": rules });
            let mut process = start("the agent", Role::Agent(policy.to_string()), &end)?;
            process.wait_for(|line| line == READY)?;
            anyhow::Ok((Served { name, process: process.id() }, process))
        };
        let (served, first) = agent(network.end(false))?;
        let second = network.0.map(|_| agent(network.end(true))).transpose()?;
        let (of_targets, second) = second.unzip();
        let processes = std::iter::once(first).chain(second).collect();
        Ok(Self { served, of_targets, _processes: processes })
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
        const UNBOUND: u64 = 1 << 40;
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

impl Hosts {
    /// Starts both, in a mode of the policy, and waits until they have a session.
    fn start_connected(
        mode: &str,
        weights: &[f64],
        network: Network<'_>,
        line_bytes_per_s: u64,
    ) -> Result<AgentProcess> {
        const PATIENCE: Duration = Duration::from_secs(20);
        let hosts = Self::start_in(mode, weights, network, (line_bytes_per_s, line_bytes_per_s))?;
        let begun = Instant::now();
        // Where it can be asked.
        let ask = || catchment_agent::peers(hosts.first());
        let peers = || match network.0 {
            Some(hop) => anyhow::Ok(hop.left.0.run(ask)??),
            None => Ok(ask()?),
        };
        while !peers()?.iter().any(|peer| peer.connected) {
            anyhow::ensure!(begun.elapsed() < PATIENCE, "two agents have no session");
            // An agent tells of its sessions only when asked.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(hosts.across)
    }

    /// Starts both, for applications of these weights: what both send, in bytes a second, and the second takes in.
    pub(crate) fn start(weights: &[f64], sends: u64, takes_in: u64) -> Result<Self> {
        Self::start_in("drum", weights, Network(None), (sends, takes_in))
    }

    fn start_in(
        mode: &str,
        weights: &[f64],
        network: Network<'_>,
        (sends, takes_in): (u64, u64),
    ) -> Result<Self> {
        let agent = |host: u32, peers: &[String], takes_in: u64| {
            let name = unused_name();
            let end = network.end(host == 2);
            let at = end.address.unwrap_or(Ipv4Addr::LOCALHOST.into());
            let between = serde_json::json!({
                "listen": format!("{at}:0"), "peers": peers, "host": host,
                "send_bytes_per_s": sends, "completion_bytes_per_s": takes_in
            });
            let device = end.device();
            let policy = serde_json::json!({
                "name": name, "device": device, "mode": mode, "applications": rules(weights),
                "between": between,
                // One application alone has nobody to be held back for.
                "justitia": { "line_bytes_per_s": sends, "target_us": TARGET_US }
            });
            let mut process = start("an agent", Role::Agent(policy.to_string()), &end)?;
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
    _target: ChildProcess,
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
        Ok(Self { application: start("the application", role, &ours)?, _target: target })
    }

    /// Waits until its work is done; what it found, of each piece.
    pub(crate) fn finish(self) -> Result<Vec<Found>> {
        serde_json::from_str(self.application.finish()?.trim()).context("the application")
    }
}
