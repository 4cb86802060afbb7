//! The messages of a session as types. Field by field in `docs/spec/session.md`.
//!
//! A value of these types is not yet checked; [`crate::wire`] checks every message that it reads
//! or writes with [`Message::check`], so a message from a peer that reaches the engine is within
//! all limits.

use catchment_verbs::{Endpoint, Gid, NetEnd};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::json::{endpoint_json, gid_json, hex64, list, net_json};
use crate::names::DeviceName;
use crate::refusal::{Refusal, RefusalCode};

/// The protocol version that this library speaks.
pub const PROTOCOL_VERSION: u16 = 2;
/// Most devices of one source, and so most streams of one session.
pub const DEVICES_MAX: usize = 65_536;
/// Most offers of a source.
pub const PROVIDERS_MAX: usize = 16;
/// Most paths that a source may say have failed.
pub const FAILED_MAX: usize = 16;
/// Most streams in one [`SourceStats`]; a source with more sends several.
pub const STATS_STREAMS_MAX: usize = 256;

/// One message of the control connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs, reason = "each variant is described at its type")]
pub enum Message {
    Hello(Hello),
    Welcome(Welcome),
    Refused(Refusal),
    Connect(Connect),
    Ready(Ready),
    Ping(Ping),
    Pong(Pong),
    SourceStats(SourceStats),
    Revoke(Revoke),
    Goodbye(Goodbye),
    GoodbyeAck(GoodbyeAck),
}

/// The type of a [`Message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the same names as in Message")]
pub enum MessageKind {
    Hello,
    Welcome,
    Refused,
    Connect,
    Ready,
    Ping,
    Pong,
    SourceStats,
    Revoke,
    Goodbye,
    GoodbyeAck,
}

impl MessageKind {
    /// All kinds.
    pub const ALL: [MessageKind; 11] = [
        MessageKind::Hello,
        MessageKind::Welcome,
        MessageKind::Refused,
        MessageKind::Connect,
        MessageKind::Ready,
        MessageKind::Ping,
        MessageKind::Pong,
        MessageKind::SourceStats,
        MessageKind::Revoke,
        MessageKind::Goodbye,
        MessageKind::GoodbyeAck,
    ];

    /// The value of `type` on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            MessageKind::Hello => "hello",
            MessageKind::Welcome => "welcome",
            MessageKind::Refused => "refused",
            MessageKind::Connect => "connect",
            MessageKind::Ready => "ready",
            MessageKind::Ping => "ping",
            MessageKind::Pong => "pong",
            MessageKind::SourceStats => "source_stats",
            MessageKind::Revoke => "revoke",
            MessageKind::Goodbye => "goodbye",
            MessageKind::GoodbyeAck => "goodbye_ack",
        }
    }
}

impl std::fmt::Display for MessageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Message {
    /// The type of this message.
    pub fn kind(&self) -> MessageKind {
        match self {
            Message::Hello(_) => MessageKind::Hello,
            Message::Welcome(_) => MessageKind::Welcome,
            Message::Refused(_) => MessageKind::Refused,
            Message::Connect(_) => MessageKind::Connect,
            Message::Ready(_) => MessageKind::Ready,
            Message::Ping(_) => MessageKind::Ping,
            Message::Pong(_) => MessageKind::Pong,
            Message::SourceStats(_) => MessageKind::SourceStats,
            Message::Revoke(_) => MessageKind::Revoke,
            Message::Goodbye(_) => MessageKind::Goodbye,
            Message::GoodbyeAck(_) => MessageKind::GoodbyeAck,
        }
    }

    /// The epoch that the message names; `None` for Hello and Refused, which name none.
    pub fn epoch(&self) -> Option<u32> {
        match self {
            Message::Hello(_) | Message::Refused(_) => None,
            Message::Welcome(message) => Some(message.epoch),
            Message::Connect(message) => Some(message.epoch),
            Message::Ready(message) => Some(message.epoch),
            Message::Ping(message) => Some(message.epoch),
            Message::Pong(message) => Some(message.epoch),
            Message::SourceStats(message) => Some(message.epoch),
            Message::Revoke(message) => Some(message.epoch),
            Message::Goodbye(message) => Some(message.epoch),
            Message::GoodbyeAck(message) => Some(message.epoch),
        }
    }
}

/// First message of a source: who it is, what it sends, what it can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The protocol versions that the source speaks.
    pub protocol: ProtocolRange,
    /// Name and version of the software, for people. 1 to 128 characters.
    pub software: String,
    /// Random number of this source process; the same after a reconnect, another after a restart.
    #[serde(with = "hex64")]
    pub instance: u64,
    /// Where the source runs.
    pub host: Host,
    /// What it sends. At most 65,536, no name twice. None: the source only tries the way.
    #[serde(deserialize_with = "list::<_, _, DEVICES_MAX>")]
    pub devices: Vec<Device>,
    /// What it can move bytes with, the preferred one first. 1 to 16, no provider twice at one
    /// address.
    #[serde(deserialize_with = "list::<_, _, PROVIDERS_MAX>")]
    pub providers: Vec<ProviderOffer>,
    /// What it cannot move bytes with, and why. At most 16.
    #[serde(deserialize_with = "list::<_, _, PROVIDERS_MAX>")]
    pub missing: Vec<WhyNot>,
    /// Paths that it tried since its last session, and what went wrong. At most 16.
    #[serde(deserialize_with = "list::<_, _, FAILED_MAX>")]
    pub failed: Vec<FailedPath>,
    /// The ring that it would like; the collector decides.
    pub wish: RingWish,
}

/// Protocol versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolRange {
    /// Oldest version spoken. A Hello is written as this version says.
    pub min: u16,
    /// Newest version spoken.
    pub max: u16,
}

impl ProtocolRange {
    /// What this library speaks.
    pub const OURS: ProtocolRange = ProtocolRange {
        min: PROTOCOL_VERSION,
        max: PROTOCOL_VERSION,
    };

    /// The newest version of both ranges, if there is one.
    pub fn common(self, other: ProtocolRange) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

/// One device of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name, also of its directory at the collector.
    pub name: DeviceName,
    /// What its frames hold, such as `640x480:rgb24`; opaque to the session. 1 to 128 characters.
    pub format: Option<String>,
    /// What the source does with a frame when no block is free.
    pub policy: Policy,
    /// Packet number of the next new frame, as far as the source knows; 0 in a new process.
    pub next_packet: u64,
}

/// What a source does with a frame of a device when no block is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The filling thread waits.
    Block,
    /// The oldest frame not yet sent gives way.
    DropOldest,
    /// The new frame is dropped.
    DropNewest,
}

/// A provider that one side has, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderOffer {
    /// Name of the provider, such as `shm`. 1 to 32 characters of `[a-z0-9-]`.
    pub name: String,
    /// The side's address in that provider.
    #[serde(with = "gid_json")]
    pub gid: Gid,
    /// Name of the provider's device, for people. 1 to 64 characters.
    pub device: Option<String>,
    /// What it takes from the network; `None` where the provider has no packets.
    #[serde(with = "net_json", default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetEnd>,
}

/// Why one side cannot use a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhyNot {
    /// Name of the provider.
    pub provider: String,
    /// The reason, for people. 1 to 512 characters.
    pub reason: String,
}

impl std::fmt::Display for WhyNot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.provider, self.reason)
    }
}

/// The way of a session: which provider each side uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionPath {
    /// The source's provider.
    pub source: String,
    /// The source's address in it: with `source`, one offer of the Hello.
    #[serde(with = "gid_json")]
    pub source_gid: Gid,
    /// The collector's provider.
    pub collector: String,
    /// Payload of a full packet in bytes, in both directions; `None` where there are no packets.
    pub path_mtu: Option<u32>,
}

/// A path that a source tried and could not use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedPath {
    /// The path. With a path MTU: packets of this one did not pass, smaller ones did. Without:
    /// nothing passed.
    pub path: SessionPath,
    /// What went wrong, for people. 1 to 512 characters.
    pub reason: String,
}

/// Size of a ring that a source would like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingWish {
    /// Number of blocks, 1 to 65,536.
    pub blocks: u32,
    /// Size of a slot in bytes: a multiple of 64 from 128 to 67,108,864.
    pub block_bytes: u32,
}

/// The collector takes the source and says how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The version both will speak from here on.
    pub protocol: u16,
    /// Number of this session, not 0; in every later message and in every block.
    pub epoch: u32,
    /// The chosen path.
    pub path: SessionPath,
    /// Why that one, for people. 1 to 1,024 characters.
    pub reason: String,
    /// The memory to write into.
    pub ring: Ring,
    /// The collector's queue pair.
    #[serde(with = "endpoint_json")]
    pub endpoint: Endpoint,
    /// A side that hears nothing for so long takes the other for dead. 100 to 600,000 ms.
    pub lease_ms: u32,
    /// A stream number for every device of the Hello.
    #[serde(deserialize_with = "list::<_, _, DEVICES_MAX>")]
    pub streams: Vec<StreamGrant>,
}

/// The ring at the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ring {
    /// Virtual address of the ring's first byte at the collector.
    #[serde(with = "hex64")]
    pub addr: u64,
    /// Key for remote access to it.
    pub rkey: u32,
    /// Number of blocks, 1 to 65,536.
    pub blocks: u32,
    /// Size of a slot in bytes: a multiple of 64 from 128 to 67,108,864.
    pub block_bytes: u32,
    /// Hash of the layout; both sides compute it and must find the same.
    #[serde(with = "hex64")]
    pub layout_hash: u64,
    /// Whether every block must have a checksum: the collector's device does not promise the order
    /// of the bytes of a WRITE, so that only the checksum tells when all of a block is there.
    pub checksum: bool,
}

/// The stream of one device in this session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamGrant {
    /// Name of the device.
    pub device: DeviceName,
    /// Its number in block headers and in later messages.
    pub stream: u32,
    /// The first packet number that the collector lacks; `None` when it knows of none and takes
    /// any.
    pub next_packet: Option<u64>,
}

/// The source has made its queue pair ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// The session.
    pub epoch: u32,
    /// The source's queue pair.
    #[serde(with = "endpoint_json")]
    pub endpoint: Endpoint,
    /// Where each stream begins. Every stream of the session once.
    #[serde(deserialize_with = "list::<_, _, DEVICES_MAX>")]
    pub streams: Vec<StreamStart>,
}

/// Where a stream begins in this session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamStart {
    /// The stream.
    pub stream: u32,
    /// Packet number of the first frame that will be sent; not below the grant's `next_packet`.
    pub first_packet: u64,
}

/// The collector's queue pair is ready too: the source may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// The session.
    pub epoch: u32,
}

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

/// What the source has done so far. Counters never fall while its `instance` stays the same.
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
    /// Frames that gave way to newer ones (policy `drop_oldest`).
    pub dropped_oldest: u64,
    /// Frames dropped on arrival (policy `drop_newest`).
    pub dropped_newest: u64,
    /// Frames that could not be sent again after a reconnect.
    pub dropped_reconnect: u64,
    /// Time that filling threads waited for a free block, in microseconds (policy `block`).
    pub blocked_us: u64,
}

/// The session ends at once, without a Goodbye. Either side may send it after Ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The session.
    pub epoch: u32,
    /// The kind, for programs.
    pub code: RefusalCode,
    /// What happened. At most 1,024 characters.
    pub reason: String,
    /// What can be done. At most 1,024 characters.
    pub remedy: String,
    /// Least wait before a new session, in milliseconds; `None`: do not try again.
    pub retry_after_ms: Option<u32>,
}

impl Revoke {
    /// The revocation of session `epoch` for the cause `refusal`.
    pub fn new(epoch: u32, refusal: Refusal) -> Revoke {
        Revoke {
            epoch,
            code: refusal.code,
            reason: refusal.reason,
            remedy: refusal.remedy,
            retry_after_ms: refusal.retry_after_ms,
        }
    }

    /// The cause.
    pub fn into_refusal(self) -> Refusal {
        Refusal {
            code: self.code,
            reason: self.reason,
            remedy: self.remedy,
            retry_after_ms: self.retry_after_ms,
        }
    }
}

/// The source has sent all that it will send.
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

/// The collector has delivered all that came, and ends the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoodbyeAck {
    /// The session.
    pub epoch: u32,
    /// What was delivered. Every stream of the session once.
    #[serde(deserialize_with = "list::<_, _, DEVICES_MAX>")]
    pub delivered: Vec<StreamDelivered>,
}

/// What the collector did with one stream in this session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamDelivered {
    /// The stream.
    pub stream: u32,
    /// The first packet number that the collector lacks.
    pub next_packet: u64,
    /// Frames delivered to the sinks in this session.
    pub frames: u64,
    /// Packet numbers that never came and were not announced as skipped.
    pub lost: u64,
}
