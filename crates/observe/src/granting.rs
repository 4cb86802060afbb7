//! How a source stands with its transmission controller.
use serde::{Deserialize, Serialize};

/// Whether a source may send, and by whose leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It has not registered yet, and sends nothing.
    #[default]
    Unregistered,
    /// It sends as it is granted, or has nothing to send.
    Granted,
    /// It has something to send, and none of it may go yet.
    Waiting,
    /// Nobody answers: it sends at its safe rate.
    SafeRate,
    /// Nobody answers: it sends nothing.
    Stopped,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Unregistered, Self::Granted, Self::Waiting, Self::SafeRate, Self::Stopped];

    /// Returns its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unregistered => "unregistered",
            Self::Granted => "granted",
            Self::Waiting => "waiting",
            Self::SafeRate => "safe_rate",
            Self::Stopped => "stopped",
        }
    }
}

/// How a source stands with its transmission controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantSnapshot {
    /// How it stands.
    pub standing: Standing,
    /// Since when, milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Blocks that are written, and may not go yet.
    pub blocks_waiting: u64,
}
