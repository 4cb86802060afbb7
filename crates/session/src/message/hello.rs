//! Hello: identity, devices and providers of a source.
use super::{DEVICES_MAX, FAILED_MAX, PROTOCOL_VERSION, PROVIDERS_MAX};
use crate::host::Host;
use crate::identity::{Instance, Nonce, Signature};
use crate::json::{gid_json, list, net_json};
use crate::names::{DeviceName, printable};
use catchment_verbs::{Gid, NetEnd};
use serde::{Deserialize, Serialize};

/// First message of a source: its identity, devices and providers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The protocol versions that the source speaks.
    pub protocol: ProtocolRange,
    /// Name and version of the software, informative. 1 to 128 characters.
    pub software: String,
    /// Public key of this source process; the same after a reconnect, another after a restart.
    pub instance: Instance,
    /// Number of this attempt to open a session, from 1; grows with every attempt of the process.
    pub attempt: u64,
    /// Where the source runs.
    pub host: Host,
    /// Its devices. At most 65,536, no name twice. Empty: the source only tests the path.
    #[serde(deserialize_with = "list::<_, _, DEVICES_MAX>")]
    pub devices: Vec<Device>,
    /// The providers it can use, in order of preference. 1 to 16, no provider twice at one address.
    #[serde(deserialize_with = "list::<_, _, PROVIDERS_MAX>")]
    pub providers: Vec<ProviderOffer>,
    /// The providers it cannot use, and why. At most 16.
    #[serde(deserialize_with = "list::<_, _, PROVIDERS_MAX>")]
    pub missing: Vec<WhyNot>,
    /// Paths that failed since its last session, and why. At most 16.
    #[serde(deserialize_with = "list::<_, _, FAILED_MAX>")]
    pub failed: Vec<FailedPath>,
    /// The ring that it requests; the collector decides.
    pub wish: RingWish,
}

/// The collector asks whether the Hello is of the process that it names, and of this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    /// A random number that the collector uses once.
    pub nonce: Nonce,
}

/// The source's answer to a [`Challenge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// Of the nonce and the number of the attempt, with the key whose public half is in Hello.
    pub signature: Signature,
}

/// Protocol versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolRange {
    /// Oldest version spoken. The Hello has the form of this version.
    pub min: u16,
    /// Newest version spoken.
    pub max: u16,
}

impl std::fmt::Display for ProtocolRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { min, max } if min == max => write!(f, "session protocol {min}"),
            Self { min, max } => write!(f, "session protocols {min} to {max}"),
        }
    }
}

impl ProtocolRange {
    /// What this library speaks.
    pub const OURS: Self = Self { min: PROTOCOL_VERSION, max: PROTOCOL_VERSION };

    /// Returns the newest version in both ranges, if there is one.
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
    /// Format of its frames, such as `640x480:rgb24`; opaque to the session. 1 to 128 characters.
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
    /// The oldest unsent frame is dropped.
    DropOldest,
    /// The new frame is dropped.
    DropNewest,
}

/// A provider of one side, with its address.
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
    /// Its network properties; `None` where the provider has no packets.
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

/// The path of a session: which provider each side uses.
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
    /// The path. With a path MTU: full packets did not pass, smaller ones did. Without: nothing
    /// passed.
    pub path: SessionPath,
    /// What went wrong, as text. 1 to 512 characters.
    pub reason: String,
}

/// Ring size that a source requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingWish {
    /// Number of blocks, 1 to 65,536.
    pub blocks: u32,
    /// Size of a slot in bytes: a multiple of 64 from 128 to 67,108,864.
    pub block_bytes: u32,
}

/// Reads the versions that a Hello offers, and the name of its software, and ignores the rest: a Hello of
/// another version may have fields that this one does not know.
pub(crate) fn versions_of(text: &str) -> Result<(ProtocolRange, String), serde_json::Error> {
    #[derive(Deserialize)]
    struct Versions {
        protocol: Range,
        #[serde(default)]
        software: String,
    }
    #[derive(Deserialize)]
    struct Range {
        min: u16,
        max: u16,
    }
    let Versions { protocol: Range { min, max }, software } = serde_json::from_str(text)?;
    let software = if software.is_empty() { "unknown software" } else { &software };
    Ok((ProtocolRange { min, max }, printable(software, 128)))
}
