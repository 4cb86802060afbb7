//! From an address to a connection: name, socket, TLS.
use super::address::{Address, Peer};
use super::connection::Connection;
use super::reason::{CLOSED_IN_TLS, handshake_reason};
use crate::reread::ClientTls;
use crate::tls::{Protection, ProtectionError, Reach, protection};
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How a source protects its connections.
#[derive(Debug, Clone, Default)]
pub struct ClientSecurity {
    /// TLS.
    pub tls: Option<Arc<ClientTls>>,
    /// Connect without TLS even to another host.
    pub insecure: bool,
}

/// No connection to a collector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name has no address.
    #[error("cannot find the address of {address}: {source}")]
    Resolve {
        /// What was dialled.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// The connection would be unprotected.
    #[error(transparent)]
    Protection(#[from] ProtectionError),
    /// No collector answers there.
    #[error("cannot connect to {address}: {source}; {}", advice(.source))]
    Connect {
        /// What was dialled.
        address: Address,
        /// What the system said about the last address tried.
        source: io::Error,
    },
    /// The host is not a valid name for a certificate: the host as dialled.
    #[error("TLS needs a host name or IP address, \"{0}\" is neither")]
    ServerName(String),
    /// The TLS handshake failed.
    #[error("TLS with {address} failed: {reason}")]
    Tls {
        /// What was dialled.
        address: Address,
        /// Why.
        reason: String,
    },
    /// Nothing happened for too long.
    #[error("no connection to {address} within {limit:?}")]
    Timeout {
        /// What was dialled.
        address: Address,
        /// The time that was allowed.
        limit: Duration,
    },
}

fn advice(error: &io::Error) -> &'static str {
    if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) {
        return "raise the limit of open files of this process (ulimit -n)";
    }
    "is anything listening there?"
}

impl ConnectError {
    /// Returns whether the same call may succeed later without a change of settings.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Resolve { .. } | Self::Connect { .. } | Self::Timeout { .. } => true,
            // A busy collector closes during the TLS handshake.
            Self::Tls { reason, .. } => reason == CLOSED_IN_TLS,
            Self::Protection(_) | Self::ServerName(_) => false,
        }
    }
}

impl Connection {
    /// Connects to the collector at `address` within `limit`.
    ///
    /// # Errors
    /// The address cannot be found or reached, needs protection that `security` does not give,
    /// or the TLS handshake fails.
    ///
    /// # Cancellation
    /// Cancelling closes the connection.
    pub async fn connect(
        address: &Address,
        security: &ClientSecurity,
        limit: Duration,
    ) -> Result<Self, ConnectError> {
        let attempt = async {
            match address {
                Address::Unix(path) => connect_unix(address, path.clone()).await,
                Address::Tcp { host, port } => connect_tcp(address, host, *port, security).await,
            }
        };
        let address = address.clone();
        timeout(limit, Box::pin(attempt))
            .await
            .unwrap_or(Err(ConnectError::Timeout { address, limit }))
    }
}

async fn connect_unix(address: &Address, path: PathBuf) -> Result<Connection, ConnectError> {
    let connected = async {
        let stream = UnixStream::connect(&path).await?;
        let peer = unix_peer(&stream)?;
        Ok((stream, peer))
    };
    let (stream, peer) = connected
        .await
        .map_err(|source| ConnectError::Connect { address: address.clone(), source })?;
    Ok(Connection::new(stream, peer, None, Protection::PlainLocal))
}

pub(super) fn unix_peer(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = stream.peer_cred()?;
    Ok(Peer::Unix { pid: credentials.pid(), uid: credentials.uid() })
}

async fn connect_tcp(
    address: &Address,
    host: &str,
    port: u16,
    security: &ClientSecurity,
) -> Result<Connection, ConnectError> {
    let (stream, addr, protection, round_trip) = dial(address, host, port, security).await?;
    let secured = secure(address, host, addr, stream, protection, security).await;
    secured.map(|connection| connection.with_round_trip(round_trip))
}

/// Connects to one of the addresses of a host. Returns the protection that it needs, and how long it took.
pub(super) async fn dial(
    address: &Address,
    host: &str,
    port: u16,
    security: &ClientSecurity,
) -> Result<(TcpStream, SocketAddr, Protection, Duration), ConnectError> {
    let resolved = tokio::net::lookup_host((host, port)).await;
    let addrs =
        resolved.map_err(|source| ConnectError::Resolve { address: address.clone(), source })?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in addrs {
        let protection = protection(Reach::Ip(addr), security.tls.is_some(), security.insecure)?;
        let began = Instant::now();
        match TcpStream::connect(addr).await {
            Ok(stream) => return Ok((stream, addr, protection, began.elapsed())),
            Err(source) => last = source,
        }
    }
    Err(ConnectError::Connect { address: address.clone(), source: last })
}

async fn secure(
    address: &Address,
    host: &str,
    addr: SocketAddr,
    stream: TcpStream,
    protection: Protection,
    security: &ClientSecurity,
) -> Result<Connection, ConnectError> {
    let (peer, local) = (Peer::Tcp(addr), local_ip(&stream));
    // Small messages must not wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let (Protection::Tls, Some(tls)) = (protection, &security.tls) else {
        return Ok(Connection::new(stream, peer, local, protection));
    };
    let stream = client_tls(address, host, stream, tls).await?;
    Ok(Connection::new(stream, peer, local, protection))
}

/// Makes the TLS handshake of the end that connects.
pub(super) async fn client_tls(
    address: &Address,
    host: &str,
    stream: TcpStream,
    tls: &ClientTls,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| ConnectError::ServerName(crate::names::printable(host, 128)))?;
    let connector = TlsConnector::from(tls.current());
    connector.connect(name, stream).await.map_err(|error| ConnectError::Tls {
        address: address.clone(),
        reason: handshake_reason(&error),
    })
}

/// Returns the address of this end. IPv4 in an IPv6 socket is IPv4.
pub(super) fn local_ip(stream: &TcpStream) -> Option<IpAddr> {
    Some(stream.local_addr().ok()?.ip().to_canonical())
}
