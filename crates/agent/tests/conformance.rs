//! The conformance suite through an agent over shared memory.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_agent::policy::Policy;
use catchment_agent::{Agent, AgentOptions, AgentProvider};
use catchment_conformance::{Bench, Deviation};
use std::sync::{Arc, LazyLock};

fn name() -> String {
    format!("conformance-{}", std::process::id())
}

/// The agent of this process. A second process of a case has its own: they meet at the device below.
static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    let text = format!(
        r#"{{"name": "{}", "applications": [{{"name": "suite", "memory_bytes": 17179869184}}]}}"#,
        name()
    );
    Agent::start(Policy::parse(&text).unwrap()).unwrap()
});

fn bench() -> Bench {
    LazyLock::force(&AGENT);
    let options = AgentOptions { agent: name(), application: "suite".to_owned() };
    let bench = Bench::new(Arc::new(AgentProvider::new(options)), &name());
    Bench { deviations: vec![Deviation::EveryMessageIsSolicited], ..bench }
}

catchment_conformance::conformance!(bench());
