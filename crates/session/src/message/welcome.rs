//! Welcome, Connect and Ready: the ring, the queue pairs, and where each stream begins.
use super::{DEVICES_MAX, SessionPath};
use crate::json::{EndpointJson, hex64, list};
use crate::names::DeviceName;
use catchment_verbs::Endpoint;
use serde::{Deserialize, Serialize};

/// The collector accepts the source, on these terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The version that both speak from here on.
    pub protocol: u16,
    /// Number of this session, not 0; part of every later message and every block.
    pub epoch: u32,
    /// The chosen path.
    pub path: SessionPath,
    /// Why that one, as text. 1 to 1,024 characters.
    pub reason: String,
    /// The memory to write into.
    pub ring: Ring,
    /// The collector's queue pair.
    #[serde(with = "EndpointJson")]
    pub endpoint: Endpoint,
    /// After this time without a message a side considers the other dead. 100 to 600,000 ms.
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
    /// Whether every block must have a checksum: the collector's device does not guarantee the order
    /// of the bytes of a WRITE, so only the checksum shows that a block is complete.
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
    /// The first packet number that the collector lacks; `None` when it knows of none and accepts
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
    #[serde(with = "EndpointJson")]
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
