//! How to connect.
use crate::protocol::Sided;
use catchment_providers::ProviderSet;
use catchment_session::io::{Address, ClientSecurity};

/// How to connect.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Where the server listens.
    pub server: Address,
    /// Who executes operations.
    pub sided: Sided,
    /// What the server's memory may be reached through.
    pub providers: ProviderSet,
    /// How the control connection is protected.
    pub security: ClientSecurity,
    /// Keys whose places are remembered: a GET of them is one READ.
    pub places: usize,
}

impl ClientConfig {
    /// Returns the usual settings for a server: one-sided, all providers, 65,536 places.
    pub fn new(server: Address) -> Self {
        Self {
            server,
            sided: Sided::One,
            providers: ProviderSet::default(),
            security: ClientSecurity::default(),
            places: 1 << 16,
        }
    }
}
