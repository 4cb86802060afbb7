//! What can go wrong before and after the work of a link.
use catchment_channel::ChannelError;
use std::io;

/// A link cannot be made, or not be taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    #[error("the control connection, {what}: {source}")]
    Control { what: &'static str, source: io::Error },
    /// An address that others reach, without a word that this is meant.
    #[error(
        "{0} can be reached from other hosts, and the control connection is not encrypted: listen \
         on a loopback address, or take Listener::tcp_insecure in a network that you trust"
    )]
    Open(std::net::SocketAddr),
    #[error("the server refuses: {0}")]
    Refused(String),
    #[error("the peer said byte {0:#04x} where it says that it is connected")]
    Said(u8),
    #[error("{0}")]
    Duplex(#[from] ChannelError),
    /// The system has no thread left.
    #[error("a thread for {what}: {source}")]
    Thread { what: &'static str, source: io::Error },
}
