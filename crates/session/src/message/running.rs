//! The messages of a running session, and of its end.
use super::{DEVICES_MAX, STATS_STREAMS_MAX};
use crate::json::list;
use crate::refusal::{Refusal, RefusalCode};
use serde::{Deserialize, Serialize};

/// The source is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// The session.
    pub epoch: u32,
    /// Number of the ping, from 0.
    pub seq: u32,
}

/// Answer to a [`Ping`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pong {
    /// The session.
    pub epoch: u32,
    /// Number of the ping that this answers.
    pub seq: u32,
}

/// Counters of the source. They never fall while its `instance` stays the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceStats {
    /// The session.
    pub epoch: u32,
    /// CPU time of the source process, user and system, in microseconds.
    pub cpu_us: u64,
    /// Some or all streams of the session, none twice. At most 256 in one message.
    #[serde(deserialize_with = "list::<_, _, STATS_STREAMS_MAX>")]
    pub streams: Vec<StreamStats>,
}

/// Counters of one stream at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamStats {
    /// The stream.
    pub stream: u32,
    /// Frames handed to the provider.
    pub sent_frames: u64,
    /// Their payload in bytes.
    pub sent_bytes: u64,
    /// Frames dropped for newer ones (policy `drop_oldest`).
    pub dropped_oldest: u64,
    /// Frames dropped on arrival (policy `drop_newest`).
    pub dropped_newest: u64,
    /// Frames that could not be sent again after a reconnect.
    pub dropped_reconnect: u64,
    /// Time that filling threads waited for a free block, in microseconds (policy `block`).
    pub blocked_us: u64,
}

/// Whether the collector's sinks take the frames of the session; sent when that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkReport {
    /// The session.
    pub epoch: u32,
    /// How many streams have a frame that their sink refuses; 0: all go on.
    pub refusing: u32,
    /// Why one of them does, as text; `None` when none does. 1 to 512 characters.
    pub reason: Option<String>,
}

/// Ends the session at once, without a Goodbye. Either side may send it after Ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The session.
    pub epoch: u32,
    /// The code, for programs.
    pub code: RefusalCode,
    /// What happened. At most 1,024 characters.
    pub reason: String,
    /// What can be done. At most 1,024 characters.
    pub remedy: String,
    /// Shortest wait before a new session, in milliseconds; `None`: do not retry.
    pub retry_after_ms: Option<u32>,
}

impl Revoke {
    /// Creates the revocation of session `epoch` for the cause `refusal`.
    pub fn new(epoch: u32, refusal: Refusal) -> Self {
        Self {
            epoch,
            code: refusal.code,
            reason: refusal.reason,
            remedy: refusal.remedy,
            retry_after_ms: refusal.retry_after_ms,
        }
    }

    /// Returns the cause.
    pub fn into_refusal(self) -> Refusal {
        Refusal {
            code: self.code,
            reason: self.reason,
            remedy: self.remedy,
            retry_after_ms: self.retry_after_ms,
        }
    }
}

/// The source has sent everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goodbye {
    /// The session.
    pub epoch: u32,
    /// Where each stream ends. Every stream of the session once.
    #[serde(deserialize_with = "list::<_, _, DEVICES_MAX>")]
    pub streams: Vec<StreamEnd>,
}

/// Where a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamEnd {
    /// The stream.
    pub stream: u32,
    /// The packet number after the last frame's.
    pub end_packet: u64,
}

/// The collector has delivered everything, and ends the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoodbyeAck {
    /// The session.
    pub epoch: u32,
    /// What was delivered. Every stream of the session once.
    #[serde(deserialize_with = "list::<_, _, DEVICES_MAX>")]
    pub delivered: Vec<StreamDelivered>,
}

/// What the collector delivered of one stream in this session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamDelivered {
    /// The stream.
    pub stream: u32,
    /// The first packet number that the collector lacks.
    pub next_packet: u64,
    /// Frames delivered to the sinks in this session.
    pub frames: u64,
    /// Frames of this source process that could not be delivered, in all its sessions: packet numbers that
    /// never arrived and were not announced as skipped, and frames with a wrong checksum.
    pub lost: u64,
}
