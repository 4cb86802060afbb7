//! Verbs for an application, through its agent: a provider like others.
//!
//! Requests go into the request pool that the application shares with its agent, completions come out of
//! it: no system call while both are awake. Creating, registering and connecting are messages to the agent.
mod chunks;
mod context;
mod cq;
mod handles;
mod link;
mod mr;
mod qp;
mod qp_core;
mod slices;

use crate::protocol::{self, Account, Peer, Reply, Request, Rounds};
use catchment_provider_shm::seqpacket;
use catchment_verbs::{Context, DeviceInfo, Provider, ProviderInfo, VerbsError, Wire};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Returns the accounts of the applications of an agent.
///
/// # Errors
/// When there is no such agent, or it does not answer.
pub fn status(agent: &str) -> Result<Vec<Account>, VerbsError> {
    Ok(standing(agent)?.applications)
}

/// Returns what an agent knows of those of other hosts.
///
/// # Errors
/// As [`status`].
pub fn peers(agent: &str) -> Result<Vec<Peer>, VerbsError> {
    Ok(standing(agent)?.peers)
}

/// Returns how an agent's rounds with those of other hosts stand; `None` if it has none.
///
/// # Errors
/// As [`status`].
pub fn rounds(agent: &str) -> Result<Option<Rounds>, VerbsError> {
    Ok(standing(agent)?.rounds)
}

/// What an agent says of itself.
pub(crate) struct Standing {
    pub(crate) alpha: f64,
    pub(crate) applications: Vec<Account>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) rounds: Option<Rounds>,
}

/// Returns what an agent says of itself.
///
/// # Errors
/// As [`status`].
pub(crate) fn standing(agent: &str) -> Result<Standing, VerbsError> {
    let ask = || {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let fd = seqpacket::connect(&protocol::address(agent)?, deadline)?;
        protocol::send(fd.as_fd(), &Request::Status, &[])?;
        let answer = protocol::receive(fd.as_fd(), protocol::REPLY_BYTES, deadline)?;
        match answer {
            Some((Reply::Status { alpha, applications, peers, rounds }, _)) => {
                Ok(Standing { alpha, applications, peers, rounds })
            }
            _ => Err(std::io::ErrorKind::InvalidData.into()),
        }
    };
    ask().map_err(|error| unavailable(agent, &error))
}
