//! Agents of this process, and connections of their applications.
use catchment_agent::policy::Policy;
use catchment_agent::{Agent, peers};
use catchment_application::{Application, Connection, Service};
use catchment_conformance::eventually;
use catchment_probe::child::say;
use serde_json::{Value, json};

/// What a connection needs that is to stay.
pub(crate) struct Held {
    pub(crate) _agent: Agent,
    pub(crate) _service: Service,
}

fn rules() -> Value {
    json!([
        { "name": "store" },
        { "name": "vision", "weight": 3 },
        { "name": "sensor", "services": ["sensor", "spare"] }
    ])
}

pub(crate) fn name(text: &str) -> String {
    format!("application-{text}-{}", std::process::id())
}

/// The policy of an agent over shared memory.
pub(crate) fn policy(name: &str) -> Value {
    json!({ "name": name, "applications": rules() })
}

/// Opens an application of an agent.
pub(crate) fn open(application: &str, agent: &str) -> Application {
    Application::open(&format!("{application}@{agent}")).unwrap()
}

/// Returns an agent over shared memory, and its name.
pub(crate) fn agent(text: &str) -> (Agent, String) {
    let name = name(text);
    (Agent::start(Policy::parse(&policy(&name).to_string()).unwrap()).unwrap(), name)
}

/// An agent in a process of its own.
pub(crate) fn serve(policy: &str) {
    let _agent = Agent::start(Policy::parse(policy).unwrap()).unwrap();
    say("ready");
    std::io::stdin().lines().for_each(drop);
}

fn policy_between(name: &str, host: usize, dials: &[String], bytes_per_s: u64) -> Value {
    json!({
        "name": name,
        "device": { "roce": format!("127.0.0.{}", host + 1) },
        "applications": rules(),
        "between": {
            "listen": "127.0.0.1:0", "peers": dials, "host": host,
            "send_bytes_per_s": bytes_per_s, "completion_bytes_per_s": bytes_per_s
        }
    })
}

/// The policy of the first of two agents.
pub(crate) fn first_policy(name: &str, bytes_per_s: u64) -> Value {
    policy_between(name, 0, &[], bytes_per_s)
}

/// Returns two agents over RoCEv2, of hosts 0 and 1, and their names.
pub(crate) fn two_agents(text: &str, bytes_per_s: u64) -> ([Agent; 2], [String; 2]) {
    let names = [0, 1].map(|host| name(&format!("{text}-{host}")));
    let start = |host: usize, dials: &[String]| {
        let policy = policy_between(&names[host], host, dials, bytes_per_s);
        Agent::start(Policy::parse(&policy.to_string()).unwrap()).unwrap()
    };
    let first = start(0, &[]);
    let second = start(1, &[first.local().unwrap().to_string()]);
    let is_up = |host: usize| peers(&names[host]).unwrap().iter().any(|peer| peer.connected);
    eventually("the session", || is_up(0) && is_up(1));
    ([first, second], names)
}

/// Connects an application of an agent with a service of this host: the caller's end, and that of the service.
pub(crate) fn connected(agent: &str, service: &Service, caller: &str) -> (Connection, Connection) {
    let caller = Application::open(&format!("{caller}@{agent}")).unwrap();
    std::thread::scope(|scope| {
        let there = scope.spawn(|| service.accept().unwrap());
        let here = caller.connect("", "store").unwrap();
        (here, there.join().unwrap())
    })
}
