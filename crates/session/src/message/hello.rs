//! Hello: who a source is, what it sends, and what it can send with.
use super::{DEVICES_MAX, FAILED_MAX, PROTOCOL_VERSION, PROVIDERS_MAX};
use crate::host::Host;
use crate::json::{gid_json, hex64, list, net_json};
use crate::names::DeviceName;
use catchment_verbs::{Gid, NetEnd};
use serde::{Deserialize, Serialize};

/// First message of a source: who it is, what it sends, what it can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The protocol versions that the source speaks.
    pub protocol: ProtocolRange,
    /// Name and version of the software, informative. 1 to 128 characters.
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
    pub const OURS: Self = Self { min: PROTOCOL_VERSION, max: PROTOCOL_VERSION };

    /// The newest version of both ranges, if there is one.
    pub fn common(self, other: Self) -> Option<u16> {
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
    /// Name of the provider's device, informative. 1 to 64 characters.
    pub device: Option<String>,
    /// What it takes from the network; `None` where the provider has no packets.
    #[serde(with = "net_json", default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetEnd>,
}

/// Why one side cannot use a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[display("{provider}: {reason}")]
#[serde(deny_unknown_fields)]
pub struct WhyNot {
    /// Name of the provider.
    pub provider: String,
    /// The reason, as text. 1 to 512 characters.
    pub reason: String,
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
    /// What went wrong, as text. 1 to 512 characters.
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

/// The versions that a Hello offers, whatever else it holds: a Hello of another version may have
/// fields that this one does not know.
pub(crate) fn protocol_of(text: &str) -> Result<ProtocolRange, serde_json::Error> {
    #[derive(Deserialize)]
    struct Versions {
        protocol: Range,
    }
    #[derive(Deserialize)]
    struct Range {
        min: u16,
        max: u16,
    }
    let Range { min, max } = serde_json::from_str::<Versions>(text)?.protocol;
    Ok(ProtocolRange { min, max })
}
