//! Verbs for an application, through its agent: a provider like others.
//!
//! Requests go into the request pool that the application shares with its agent, completions come out of
//! it: no system call while both are awake. Creating, registering and connecting are messages to the agent.
mod ah;
mod application;
mod chunks;
mod context;
mod cq;
mod handles;
mod inquiry;
mod link;
mod mr;
mod qp;
mod qp_core;
mod slices;

use catchment_verbs::{Context, DeviceInfo, Provider, ProviderInfo, VerbsError, Wire};
use std::sync::Arc;
use std::time::Duration;

pub use application::{Application, Incoming, Offer};
pub use inquiry::{Inquiry, peers, rounds, status};

/// How long an answer of the agent may take: it may wait for a peer that does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The provider's entry for a registry. An agent over shared memory speaks as shared memory does; the rank
/// is behind all others, because an agent is used when it is asked for.
pub const INFO: ProviderInfo =
    ProviderInfo { name: "agent", rank: 100, wire: Wire::Memory, is_hardware: false };

/// How an application finds its agent, and who it says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentOptions {
    /// The agent's name.
    pub agent: String,
    /// The application's name in the agent's policy.
    pub application: String,
}

/// The name of an agent whose policy says none.
pub const DEFAULT_AGENT: &str = "agent0";

impl From<&str> for AgentOptions {
    /// Reads `APPLICATION`, of the agent [`DEFAULT_AGENT`], or `APPLICATION@AGENT`.
    fn from(text: &str) -> Self {
        let (application, agent) = text.split_once('@').unwrap_or((text, DEFAULT_AGENT));
        Self { agent: agent.to_owned(), application: application.to_owned() }
    }
}

/// The provider for applications of an agent. Its only device has the name of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentProvider {
    options: AgentOptions,
}

impl AgentProvider {
    /// Creates the provider. Every context is an application of its own to the agent.
    #[must_use]
    pub fn new(options: AgentOptions) -> Self {
        Self { options }
    }
}

impl Provider for AgentProvider {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        Ok(vec![DeviceInfo {
            name: self.options.agent.clone(),
            description: "the device of an agent, shared among applications".into(),
        }])
    }

    fn open(&self, device: &str) -> Result<Arc<dyn Context>, VerbsError> {
        if device != self.options.agent {
            let known = vec![self.options.agent.clone()];
            return Err(VerbsError::NoDevice { name: device.into(), known });
        }
        Ok(Arc::new(handles::AgentContext::open(&self.options)?))
    }
}

fn unavailable(agent: &str, error: &std::io::Error) -> VerbsError {
    let reason = if error.kind() == std::io::ErrorKind::ConnectionRefused {
        format!(
            "no agent of the name {agent:?} runs on this host: start one with `catchment agent --policy FILE`"
        )
    } else {
        format!("agent {agent:?}: {error}")
    };
    VerbsError::Unavailable { provider: INFO.name, reason }
}
