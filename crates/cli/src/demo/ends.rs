//! What both ends of a demo are told. One that asks for an agent and names none has an agent of its own.
use crate::args::DemoArgs;
use crate::failure::{Code, Failure, OrFail as _};
use catchment::observe::cpu::CpuMeter;
use catchment_agent::Agent;
use catchment_agent::policy::Policy;
use serde_json::json;

pub(super) struct Ends {
    pub(super) collector: DemoArgs,
    pub(super) source: DemoArgs,
    /// Its threads serve both until the demo ends.
    agent: Option<Agent>,
}

impl Ends {
    /// # Errors
    /// The agent cannot start.
    pub(super) fn new(args: &DemoArgs) -> Result<Self, Failure> {
        let (mut collector, mut source) = (args.clone(), args.clone());
        if !args.providers.lacks_application() {
            return Ok(Self { collector, source, agent: None });
        }
        let name = format!("demo-{}", std::process::id());
        let applications = json!([{"name": "collector"}, {"name": "cameras"}]);
        let policy = json!({"name": name, "device": "shm", "applications": applications});
        let policy = Policy::parse(&policy.to_string()).or_fail(Code::Failed)?;
        let agent = Agent::start(policy).or_fail(Code::Local)?;
        collector.providers.agent = Some(format!("collector@{name}"));
        source.providers.agent = Some(format!("cameras@{name}"));
        Ok(Self { collector, source, agent: Some(agent) })
    }

    /// Returns a meter of the demo's own process, which does nothing else, where it has an agent.
    pub(super) fn meter(&self) -> Option<CpuMeter> {
        self.agent.as_ref().map(|_| CpuMeter::this_process())
    }
}
