//! What can go wrong before and after the work of a link.
use catchment_channel::ChannelError;
use std::io;

/// A link cannot be made, or not be taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The control connection failed.
    #[error("the control connection, {what}: {source}")]
    Control {
        /// What was to be done.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// An address that others reach, without a word that this is meant.
    #[error(
        "{0} can be reached from other hosts, and the control connection is not encrypted: listen \
         on a loopback address, or take Listener::tcp_insecure in a network that you trust"
    )]
    Open(std::net::SocketAddr),
    /// The server does not want this client.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The client says something else than that it is connected.
    #[error("the peer said byte {0:#04x} where it says that it is connected")]
    Said(u8),
    /// The channel could not be made, connected or taken down.
    #[error("{0}")]
    Duplex(#[from] ChannelError),
    /// The system has no thread left.
    #[error("a thread for {what}: {source}")]
    Thread {
        /// What it was to do.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
