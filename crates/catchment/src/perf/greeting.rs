//! How the two sides agree on the path, before the engine measures: JSON, a line each.
//!
//! ```text
//! client                          server
//! Hello      ->
//!            <-  Welcome | Refused
//! ```
use crate::session::host::Host;
use crate::session::message::{ProviderOffer, SessionPath, WhyNot};
use serde::{Deserialize, Serialize};

/// Of this protocol, the engine's messages included.
pub(super) const VERSION: u32 = 3;

/// What the client says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum FromClient {
    Hello(Hello),
}

/// What the server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum FromServer {
    Welcome(Welcome),
    Refused { reason: String, remedy: String },
}

/// Who the client is, and what it has.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) host: Host,
    pub(super) offers: Vec<ProviderOffer>,
    pub(super) missing: Vec<WhyNot>,
}

/// The path.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) path: SessionPath,
    pub(super) reason: String,
}
