//! What the conformance suite needs to run through agents of this process.
#![allow(dead_code, reason = "each test uses some of it")]
use catchment_agent::policy::Policy;
use catchment_agent::protocol::Peer;
use catchment_agent::{Agent, AgentOptions, AgentProvider, peers};
use catchment_conformance::{Bench, Deviation, eventually};
use catchment_probe::child::role;
use catchment_verbs::{Context, DeviceInfo, Provider, VerbsError};
use std::cell::Cell;
use std::sync::{Arc, OnceLock};

/// The memory of all cases that run at a time.
const MEMORY: u64 = 1 << 34;

fn provider(agent: &str) -> AgentProvider {
    AgentProvider::new(AgentOptions { agent: agent.to_owned(), application: "suite".to_owned() })
}

fn bench_of(provider: Arc<dyn Provider>, name: &str) -> Bench {
    let bench = Bench::new(provider, name);
    Bench { deviations: vec![Deviation::EveryMessageIsSolicited], ..bench }
}

pub(crate) const SHM: [&str; 2] = [r#""shm""#, r#""shm""#];
pub(crate) const ROCE: [&str; 2] = [r#"{"roce": "127.0.0.1"}"#, r#"{"roce": "127.0.0.2"}"#];

pub(crate) fn open(agent: &str, application: &str) -> Arc<dyn Context> {
    let options = AgentOptions { agent: agent.to_owned(), application: application.to_owned() };
    AgentProvider::new(options).open(agent).unwrap()
}

/// What the first agent says of the second.
pub(crate) fn peer(names: &[String; 2]) -> Peer {
    peers(&names[0]).unwrap().into_iter().find(|peer| peer.host == Some(1)).unwrap()
}

/// Returns the suite's bench through an agent over `device`, as a policy has it. A second process of
/// a case has an agent of its own: they meet at the device below.
pub(crate) fn bench(kind: &str, device: &str) -> Bench {
    static AGENT: OnceLock<Agent> = OnceLock::new();
    let name = format!("conformance-{kind}-{}", std::process::id());
    AGENT.get_or_init(|| {
        let text = format!(
            r#"{{"name": "{name}", "device": {device}, "applications": [{{"name": "suite", "memory_bytes": {MEMORY}, "datagrams": true}}]}}"#
        );
        Agent::start(Policy::parse(&text).unwrap()).unwrap()
    });
    bench_of(Arc::new(provider(&name)), &name)
}

/// Returns the RDMA device of the lab, a Soft-RoCE one, as a policy has it.
pub(crate) fn rxe() -> String {
    let device = std::env::var("CATCHMENT_IBVERBS_DEVICE").unwrap();
    format!(r#"{{"ibverbs": "{device}"}}"#)
}

/// Returns a bench with the deviations of Soft-RoCE.
pub(crate) fn of_rxe(mut bench: Bench) -> Bench {
    bench.deviations.extend([
        Deviation::LongMessageBreaksTheQueuePair,
        Deviation::WrongKeyBreaksTheQueuePair,
        Deviation::InvalidationIsAcknowledgedFirst,
    ]);
    bench
}

/// Two agents that share queue pairs; who opens devices gets them in turn, so that the two sides of a case are
/// applications of two hosts.
struct TwoAgents {
    providers: [AgentProvider; 2],
    names: [String; 2],
    _agents: [Agent; 2],
}

impl Provider for TwoAgents {
    fn name(&self) -> &'static str {
        self.providers[0].name()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        self.providers[0].devices()
    }

    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError> {
        thread_local!(static OPENED: Cell<usize> = const { Cell::new(0) });
        if device != self.names[0] {
            return self.providers[0].open(device);
        }
        let opened = OPENED.replace(OPENED.get() + 1);
        self.providers[opened % 2].open(&self.names[opened % 2])
    }
}

/// Returns the suite's bench through two agents over these devices, with up to eight connections on a queue pair. An
/// agent of a second process is none of their peers. One case counts what its process holds before and after all
/// descriptors were in use: shared queue pairs that failed for want of them are not all back then, so the agent of
/// that process has none.
pub(crate) fn shared_bench(kind: &str, devices: [&str; 2]) -> Bench {
    if role().is_some_and(|role| role == "starving") {
        return bench(kind, devices[0]);
    }
    static AGENTS: OnceLock<Arc<TwoAgents>> = OnceLock::new();
    let agents = AGENTS.get_or_init(|| {
        let (agents, names) = two_agents(kind, devices, 20);
        let providers = [0, 1].map(|host: usize| provider(&names[host]));
        Arc::new(TwoAgents { providers, names, _agents: agents })
    });
    bench_of(Arc::clone(agents) as Arc<dyn Provider>, &agents.names[0])
}

/// Returns two agents of this process over these devices, and their names. Up to eight connections share a queue
/// pair, or more, so that there are at most so many.
pub(crate) fn two_agents(
    kind: &str,
    devices: [&str; 2],
    queue_pairs: u32,
) -> ([Agent; 2], [String; 2]) {
    two_agents_in(&serde_json::json!({}), (kind, devices), (queue_pairs, 1 << 40))
}

/// As [`two_agents`], with more members of the policy, the mode for one; with what their devices do, in bytes a second.
pub(crate) fn two_agents_in(
    members: &serde_json::Value,
    (kind, devices): (&str, [&str; 2]),
    (queue_pairs, bytes_per_s): (u32, u64),
) -> ([Agent; 2], [String; 2]) {
    let names = [0, 1].map(|host| format!("shared-{kind}-{host}-{}", std::process::id()));
    let start = |host: usize, dials: Vec<String>| {
        let rule = |name: &str| serde_json::json!({ "name": name, "memory_bytes": MEMORY, "datagrams": true });
        let rules = ["suite", "good", "bad"].map(rule);
        let mut policy = serde_json::json!({
            "name": names[host],
            "device": serde_json::from_str::<serde_json::Value>(devices[host]).unwrap(),
            "applications": rules,
            "between": {
                "listen": "127.0.0.1:0", "peers": dials, "host": host, "ratio": 8,
                "queue_pairs": queue_pairs,
                "send_bytes_per_s": bytes_per_s, "completion_bytes_per_s": bytes_per_s
            }
        });
        let mut more = members.as_object().unwrap().clone();
        if let Some(serde_json::Value::Object(between)) = more.remove("between") {
            policy["between"].as_object_mut().unwrap().extend(between);
        }
        policy.as_object_mut().unwrap().extend(more);
        Agent::start(Policy::parse(&policy.to_string()).unwrap()).unwrap()
    };
    let first = start(0, Vec::new());
    let second = start(1, vec![first.local().unwrap().to_string()]);
    let is_up = |host: usize| peers(&names[host]).unwrap().iter().any(|peer| peer.connected);
    eventually("the session", || is_up(0) && is_up(1));
    ([first, second], names)
}
