//! What can go wrong while a link is connected or closed.
use catchment_channel::ChannelError;
use catchment_channel::establish::EstablishError;
use std::io;

/// A link cannot be connected or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    #[error("{0}")]
    Establish(#[from] EstablishError),
    /// The link itself, its sockets and what it waits for.
    #[error("the link, {what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error("{0}")]
    Duplex(#[from] ChannelError),
    /// The system refuses another thread.
    #[error("cannot start the thread for {what}: {source}")]
    Thread { what: &'static str, source: io::Error },
}

pub(super) fn failed(what: &'static str) -> impl Fn(io::Error) -> LinkError {
    move |source| LinkError::System { what, source }
}
