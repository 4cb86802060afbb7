//! What can go wrong while a link is connected or closed.
use catchment_channel::ChannelError;
use std::io;

/// A link cannot be connected or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    #[error("the control connection, {what}: {source}")]
    Control { what: &'static str, source: io::Error },
    /// An address that other hosts reach, which must be asked for.
    #[error(
        "{0} can be reached from other hosts, and the control connection is not encrypted: listen \
         on a loopback address, or use Listener::tcp_insecure in a network that you trust"
    )]
    Open(std::net::SocketAddr),
    #[error("the server refuses: {0}")]
    Refused(String),
    #[error("the peer sent byte {0:#04x} instead of the one that confirms the connection")]
    Said(u8),
    #[error("{0}")]
    Duplex(#[from] ChannelError),
    /// The system refuses another thread.
    #[error("cannot start the thread for {what}: {source}")]
    Thread { what: &'static str, source: io::Error },
}
