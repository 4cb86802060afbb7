//! What processors take.
use anyhow::Result;
use catchment_agent::policy::Policy;
use std::time::Duration;

/// How connections share a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// A queue pair and a completion queue for each connection.
    Raw,
    /// Groups of connections on one queue pair, behind a lock, first come first served.
    Share,
    /// The agent's scheduler and shared queue pairs.
    Drum,
}

/// How much the agent has in the device's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// What its policy says if nothing is said.
    Default,
    /// The least chunk that a policy allows, and a window of one.
    Least,
}

impl Window {
    /// Returns the policy: but for chunk and window, that of a file which says nothing.
    ///
    /// # Errors
    /// Never, while policies are as they are.
    pub(crate) fn policy(self) -> Result<Policy> {
        let text = match self {
            Self::Default => r#"{"applications": []}"#,
            Self::Least => r#"{"applications": [], "chunk_bytes": 1024, "window_bytes": 1024}"#,
        };
        Ok(Policy::parse(text)?)
    }
}

/// Times of processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Posting a request, with its doorbell.
    pub post: Duration,
    /// Each further one of a batch.
    pub further: Duration,
    /// A cache line that another processor wrote last: a contended lock, an entry of a ring.
    pub hand_over: Duration,
    /// The agent's processor, for a request from its ring to its completion.
    pub agent: Duration,
    /// Connections of SHARE on one queue pair.
    pub group: usize,
}

impl Costs {
    /// Returns the times that the measurements use.
    ///
    /// | constant | value | source |
    /// |---|---|---|
    /// | post | 135 ns | a post of RAW takes 110 to 160 ns, the agent's requirements say |
    /// | further | 41 ns | docs/results/agent.md: RAW, 64 bytes, 64 outstanding |
    /// | hand-over | 245 ns | one way of a cache line between two cores, measured when the experiments were planned |
    /// | agent | 132 ns | docs/results/agent.md: drum, 64 bytes, 64 outstanding |
    /// | group | 5 | the paper's SHARE |
    #[must_use]
    pub fn usual() -> Self {
        Self {
            post: Duration::from_nanos(135),
            further: Duration::from_nanos(41),
            hand_over: Duration::from_nanos(245),
            agent: Duration::from_nanos(132),
            group: 5,
        }
    }

    pub(crate) fn posting(&self, count: usize) -> Duration {
        self.post + self.further * u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX)
    }
}
