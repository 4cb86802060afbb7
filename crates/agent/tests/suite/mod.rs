//! What the conformance suite needs to run through an agent of this process.
use catchment_agent::policy::Policy;
use catchment_agent::{Agent, AgentOptions, AgentProvider};
use catchment_conformance::{Bench, Deviation};
use std::sync::{Arc, OnceLock};

/// Returns the suite's bench through an agent over `device`, as a policy has it. A second process of
/// a case has an agent of its own: they meet at the device below.
pub(crate) fn bench(kind: &str, device: &str) -> Bench {
    static AGENT: OnceLock<Agent> = OnceLock::new();
    let name = format!("conformance-{kind}-{}", std::process::id());
    AGENT.get_or_init(|| {
        let text = format!(
            r#"{{"name": "{name}", "device": {device}, "applications": [{{"name": "suite", "memory_bytes": 17179869184}}]}}"#
        );
        Agent::start(Policy::parse(&text).unwrap()).unwrap()
    });
    let options = AgentOptions { agent: name.clone(), application: "suite".to_owned() };
    let bench = Bench::new(Arc::new(AgentProvider::new(options)), &name);
    Bench { deviations: vec![Deviation::EveryMessageIsSolicited], ..bench }
}
