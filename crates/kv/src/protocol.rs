//! What clients and the server say over the control connection: JSON, `docs/spec/kv.md` section 9.
use crate::layout::Table;
use crate::store::{Counts, Report};
use catchment_session::host::Host;
use catchment_session::message::{ProviderOffer, SessionPath, WhyNot};
use catchment_verbs::{Endpoint, RemoteAddr, RtsAttr};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Of this protocol and of the layout of the memory.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a message at most.
pub(crate) const MESSAGE_BYTES: usize = 64 << 10;
/// For the keys of TLS.
pub(crate) const LABEL: &[u8] = b"EXPORTER-catchment-kv";
/// Numbers of blocks in a message at most.
pub(crate) const BLOCKS_MAX: usize = 1024;
/// Longest wait for an acknowledgement.
const TIMEOUT_MAX: Duration = Duration::from_secs(2);

/// Who executes operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sided {
    /// The client, by READs, WRITEs and compare-and-swaps.
    One,
    /// The server, asked by SENDs.
    Two,
}

/// What a client says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum FromClient {
    Hello {
        version: u32,
        host: Host,
        offers: Vec<ProviderOffer>,
        missing: Vec<WhyNot>,
        sided: Sided,
    },
    Connect {
        endpoint: String,
    },
    Take {
        units: u32,
        count: u32,
    },
    Report(Report),
    Answer {
        epoch: u32,
    },
    Grow {
        generation: u32,
    },
    Counts {},
    Ping {},
    Goodbye {},
}

/// What the server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum FromServer {
    Refused { reason: String, remedy: String },
    Welcome { path: SessionPath, reason: String, lease_ms: u64 },
    Connected(Connected),
    Blocks { units: u32, blocks: Vec<u32>, why: Option<Why> },
    Question { epoch: u32, table: u64 },
    Counts { counts: Counts, cpu_s: f64 },
    Ping {},
}

/// Why there are no blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    Later,
    Full,
}

/// The server's queue pair and memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Connected {
    pub(crate) endpoint: String,
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) bytes: u64,
    pub(crate) seed: (u64, u64),
    pub(crate) table: u64,
    pub(crate) epoch: u32,
    pub(crate) may_write: bool,
}

impl Connected {
    pub(crate) fn region(&self) -> RemoteAddr {
        RemoteAddr { addr: self.addr, rkey: self.rkey }
    }

    pub(crate) fn table(&self) -> Option<Table> {
        Table::decode(self.table, self.bytes)
    }
}

/// Reads the endpoint of a peer.
pub(crate) fn endpoint(text: &str) -> Result<Endpoint, String> {
    text.parse().map_err(|error| format!("the peer's queue pair: {error}"))
}

/// Returns how long a queue pair repeats its requests: for a lease, so that no side that stands still for less is
/// given up (at most 16 s).
pub(crate) fn rts_within(lease: Duration) -> RtsAttr {
    let usual = RtsAttr::default();
    let timeout = (lease / (u32::from(usual.retry_cnt) + 1)).min(TIMEOUT_MAX);
    RtsAttr { timeout: timeout.max(usual.timeout), ..usual }
}

pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(bytes)
        .map_err(|error| catchment_session::names::printable(&error.to_string(), 256))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_repeated_for_a_lease() {
        for (lease_s, least_s) in [(0, 0), (1, 1), (3, 3), (60, 16)] {
            let attributes = rts_within(Duration::from_secs(lease_s));
            let repeated = attributes.timeout * (u32::from(attributes.retry_cnt) + 1);
            assert!(repeated >= Duration::from_secs(least_s).max(Duration::from_millis(500)));
            assert!(repeated <= Duration::from_secs(lease_s.max(1)), "{repeated:?}");
        }
    }
}
