//! How two programs find out each other's addresses and keys, connect, and part: the steps of `rdma_cm` (`rdma_connect`,
//! `rdma_listen`, `rdma_get_request`, `rdma_accept`, `rdma_reject`, `rdma_disconnect`), over a control connection that any
//! provider can have.
//!
//! ```text
//! client                                server
//!   card, 72 bytes  ───────────────────▶  acquires its resources, connects
//!   connects        ◀───────────────────  card, or 72 bytes and more with the reason for refusal
//!   "go", 1 byte    ───────────────────▶  may send
//!                    … the data path …
//!   "bye", 1 byte   ◀──────────────────▶  "bye"
//! ```
//!
//! [`connect`] is the client; the server has a [`Listener`], receives a [`Request`], and accepts or rejects it. Both then
//! have a [`Connection`]: a [`Channel`], and the control connection, which tells when the peer parts. Nothing here is
//! encrypted or authenticated: a [`Listener`] on an address that other hosts reach must be asked for. Sessions of sources and
//! tunnels, which are, exchange the same over TLS (`crates/session`).
mod control;

pub use control::{Control, Heard, Listener};

use crate::{Card, Channel, ChannelError, ChannelShape, Resources};
use catchment_verbs::{Context, RtsAttr};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A connection cannot be established.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EstablishError {
    /// The control connection.
    #[error("the control connection, {what}: {source}")]
    Control {
        /// What was done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// An address that other hosts reach, which must be asked for.
    #[error(
        "{0} can be reached from other hosts, and the control connection is not encrypted: listen \
         on a loopback address, or use Listener::tcp_insecure in a network that you trust"
    )]
    Open(std::net::SocketAddr),
    /// The server does not want this client.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// Another word than the one that is due.
    #[error("the peer sent byte {0:#04x} instead of the one that confirms the connection")]
    Said(u8),
    /// The channel.
    #[error("{0}")]
    Channel(#[from] ChannelError),
}

/// Exchanges cards with the server at the other end, for a client with these resources: the address, key and queue pair of
/// each for the other. Returns the server's card; the client connects, and says so with [`Control::send_go`]. The resources are
/// released if it fails.
///
/// # Errors
/// [`EstablishError`]: a refusal with its reason, silence until the deadline, or something else than a card.
pub fn exchange(
    control: &Control,
    resources: Resources,
    deadline: Instant,
) -> Result<(Resources, Card), EstablishError> {
    let sent = control.send_card(resources.card());
    match sent.and_then(|()| control.recv_card(deadline)) {
        Ok(peer) => Ok((resources, peer)),
        Err(error) => {
            resources.release()?;
            Err(error)
        }
    }
}

/// Connects to the server at the other end of a control connection, as `rdma_connect` does. Both may send when it returns.
///
/// # Errors
/// [`EstablishError`]. Everything was released then.
pub fn connect(
    control: Control,
    context: Arc<dyn Context>,
    shape: ChannelShape,
    rts: RtsAttr,
    deadline: Instant,
) -> Result<Connection, EstablishError> {
    let resources = Resources::acquire(context, shape)?;
    let (resources, peer) = exchange(&control, resources, deadline)?;
    let channel = Channel::connect(resources, &peer, rts)?;
    Connection::begin(channel, control, |control| control.send_go())
}

/// A client that wants to connect, as `rdma_get_request` returns it. Dropping it ends its control connection.
#[derive(Debug)]
pub struct Request {
    control: Control,
    card: Card,
}

impl Request {
    /// Receives what the client of an accepted control connection says of itself.
    ///
    /// # Errors
    /// [`EstablishError`]: silence until the deadline, or something else than a card.
    pub fn receive(control: Control, deadline: Instant) -> Result<Self, EstablishError> {
        let card = control.recv_card(deadline)?;
        Ok(Self { control, card })
    }

    /// Returns the client's card: its queue pair, its memory and the key of that.
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// Connects to the client. It learns the reason if that fails.
    ///
    /// # Errors
    /// [`EstablishError`]: the device or the client's card has not what it takes, or the client did not confirm until the
    /// deadline. Everything was released then.
    pub fn accept(
        self,
        context: Arc<dyn Context>,
        shape: ChannelShape,
        rts: RtsAttr,
        deadline: Instant,
    ) -> Result<Connection, EstablishError> {
        let connect = || {
            let resources = Resources::acquire(context, shape)?;
            Ok((resources.card(), Channel::connect(resources, &self.card, rts)?))
        };
        let (card, channel) = connect()
            .inspect_err(|error: &ChannelError| self.control.refuse(&error.to_string()))?;
        Connection::begin(channel, self.control, |control| {
            control.send_card(card)?;
            control.recv_go(deadline)
        })
    }

    /// Refuses the client, which learns this reason: 508 bytes of it at most.
    pub fn reject(self, reason: &str) {
        self.control.refuse(reason);
    }
}

/// A channel whose ends found each other over a control connection.
pub struct Connection {
    /// The channel.
    pub channel: Channel,
    control: Control,
}

impl Connection {
    fn begin(
        channel: Channel,
        control: Control,
        complete: impl FnOnce(&Control) -> Result<(), EstablishError>,
    ) -> Result<Self, EstablishError> {
        if let Err(error) = complete(&control).and_then(|()| control.set_nonblocking()) {
            channel.close()?;
            return Err(error);
        }
        Ok(Self { channel, control })
    }

    /// Returns what the peer has said since the last call: that it parts, or nothing. Never waits.
    pub fn heard(&self) -> Heard {
        self.control.poll()
    }

    /// Parts, as `rdma_disconnect` does: the peer hears goodbye, and everything of this end is released.
    ///
    /// # Errors
    /// As for [`Channel::close`].
    pub fn disconnect(self) -> Result<(), ChannelError> {
        self.control.send_goodbye();
        self.channel.close()
    }
}
