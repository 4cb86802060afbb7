//! How a source stands with its transmission controller.
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

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
    /// Nobody answers: it sends without leave.
    Free,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Unregistered,
        Self::Granted,
        Self::Waiting,
        Self::SafeRate,
        Self::Stopped,
        Self::Free,
    ];

    /// Returns its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unregistered => "unregistered",
            Self::Granted => "granted",
            Self::Waiting => "waiting",
            Self::SafeRate => "safe_rate",
            Self::Stopped => "stopped",
            Self::Free => "free",
        }
    }
}

/// What a source knows of itself and its transmission controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Granting {
    /// How it stands.
    pub standing: Standing,
    /// Blocks that are written, and may not go yet.
    pub blocks_waiting: u64,
    /// Windows that it was granted since the start, those that prolong another one too.
    pub grants: u64,
    /// At this rate it may send while no controller answers: bits a second; 0: not at all.
    pub safe_rate_bps: u64,
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
    /// For how long some block could not go, since the start: milliseconds.
    pub waited_ms: u64,
    /// Windows that it was granted since the start, those that prolong another one too.
    pub grants: u64,
    /// At this rate it may send while no controller answers: bits a second; 0: not at all.
    pub safe_rate_bps: u64,
}

/// How a source stands, and since when.
#[derive(Debug)]
pub(crate) struct Stands {
    granting: Granting,
    since_unix_ms: u64,
    /// How long blocks waited until the last change, and when that was.
    waited: Duration,
    changed: Instant,
}

impl Stands {
    /// Takes what is so from now on, after what was before.
    pub(crate) fn new(granting: Granting, before: Option<&Self>, now_unix_ms: u64) -> Self {
        let same = before.filter(|before| before.granting.standing == granting.standing);
        let since_unix_ms = same.map_or(now_unix_ms, |before| before.since_unix_ms);
        let waited = before.map_or(Duration::ZERO, Self::waited);
        Self { granting, since_unix_ms, waited, changed: Instant::now() }
    }

    fn waited(&self) -> Duration {
        let waits = self.granting.blocks_waiting > 0;
        self.waited + if waits { self.changed.elapsed() } else { Duration::ZERO }
    }

    pub(crate) fn snapshot(&self) -> GrantSnapshot {
        let Granting { standing, blocks_waiting, grants, safe_rate_bps } = self.granting;
        GrantSnapshot {
            standing,
            since_unix_ms: self.since_unix_ms,
            blocks_waiting,
            waited_ms: u64::try_from(self.waited().as_millis()).unwrap_or(u64::MAX),
            grants,
            safe_rate_bps,
        }
    }
}
