//! Whole messages over a byte stream.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::address::{Address, Peer};
use crate::message::Message;
use crate::refusal::Refusal;
use crate::tls::{Protection, ProtectionError, Reach, protection};
use crate::wire::{DecodeError, Decoder, EncodeError, LONG_BYTES_MAX, encode};

/// Bytes read from the socket at once.
const CHUNK_BYTES: usize = 8 << 10;
/// How long a peer may leave our bytes unread before a send fails.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// How long a refusal is looked for after the connection broke, and a close may take.
const LINGER: Duration = Duration::from_millis(200);
/// Bytes of a peer that are passed over while it is told why it is refused.
const LINGER_BYTES: usize = 64 << 10;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How a source protects its connections.
#[derive(Debug, Clone, Default)]
pub struct ClientSecurity {
    /// TLS, from [`crate::tls::client_config`].
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Go without TLS even to another host.
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
    /// The connection would be open to others.
    #[error(transparent)]
    Protection(#[from] ProtectionError),
    /// Nobody answers there.
    #[error("cannot connect to {address}: {source}; is a collector listening there?")]
    Connect {
        /// What was dialled.
        address: Address,
        /// What the system said about the last address tried.
        source: io::Error,
    },
    /// The host cannot stand in a certificate.
    #[error("TLS needs a host name or IP address, \"{host}\" is neither")]
    ServerName {
        /// The host as dialled.
        host: String,
    },
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

impl ConnectError {
    /// Whether the same call may succeed later without any change of settings.
    pub fn is_transient(&self) -> bool {
        match self {
            ConnectError::Resolve { .. }
            | ConnectError::Connect { .. }
            | ConnectError::Timeout { .. } => true,
            // A collector that is busy closes in the middle of the TLS handshake.
            ConnectError::Tls { reason, .. } => reason == CLOSED_IN_TLS,
            ConnectError::Protection(_) | ConnectError::ServerName { .. } => false,
        }
    }
}

/// A message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message is not valid.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The connection broke.
    #[error("cannot send: {0}")]
    Io(String),
    /// The peer reads nothing.
    #[error("the peer has read nothing for {0:?}")]
    Timeout(Duration),
}

/// No message was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The peer closed between two messages.
    #[error("the peer closed the connection")]
    Closed,
    /// What came is no message; [`DecodeError::refusal`] is what to answer.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The connection broke.
    #[error("cannot receive: {0}")]
    Io(String),
}

/// A control connection that carries messages.
pub struct Connection {
    reader: MessageReader,
    writer: MessageWriter,
    peer: Peer,
    local: Option<IpAddr>,
    protection: Protection,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({}, {:?})", self.peer, self.protection)
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
    ) -> Result<Connection, ConnectError> {
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

    pub(super) fn new(
        stream: impl Stream + 'static,
        peer: Peer,
        local: Option<IpAddr>,
        protection: Protection,
    ) -> Connection {
        let stream: Box<dyn Stream> = Box::new(stream);
        let (read, write) = tokio::io::split(stream);
        Connection {
            reader: MessageReader::new(read),
            writer: MessageWriter::new(write),
            peer,
            local,
            protection,
        }
    }

    /// The other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The address of this end; none over a unix socket.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.local
    }

    /// How the connection is protected.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Sends `message`; see [`MessageWriter::send`]. When the peer has closed but said something
    /// before, a refusal for example, this succeeds in vain and the next receive returns it.
    ///
    /// # Errors
    /// The message is invalid, or the connection broke and nothing is left to receive.
    ///
    /// # Cancellation
    /// A cancelled send is finished by the next one: no message is cut.
    pub async fn send(&mut self, message: &Message) -> Result<(), SendError> {
        let result = self.writer.send(message).await;
        if !matches!(result, Err(SendError::Io(_))) {
            return result;
        }
        if self.reader.ahead.is_some() {
            return Ok(());
        }
        // What the peer said before it closed tells more than "broken pipe".
        match timeout(LINGER, self.reader.recv()).await {
            Ok(Ok(message)) => {
                self.reader.ahead = Some(message);
                Ok(())
            }
            Ok(Err(RecvError::Io(reason))) => Err(SendError::Io(reason)),
            Ok(Err(RecvError::Closed | RecvError::Decode(_))) | Err(_) => result,
        }
    }

    /// Receives the next message; see [`MessageReader::recv`].
    ///
    /// # Errors
    /// The connection ended or what came is no message.
    pub async fn recv(&mut self) -> Result<Message, RecvError> {
        self.reader.recv().await
    }

    /// Receives the next message; see [`MessageReader::recv_until`].
    ///
    /// # Errors
    /// The connection ended or what came is no message.
    pub async fn recv_until(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<Message>, RecvError> {
        self.reader.recv_until(deadline).await
    }

    /// The two directions, to be used from two tasks.
    pub fn split(self) -> (MessageReader, MessageWriter) {
        (self.reader, self.writer)
    }

    pub(super) fn reader(&mut self) -> &mut MessageReader {
        &mut self.reader
    }

    /// Sends `refusal` and closes as [`Connection::close`] does.
    pub async fn turn_away(mut self, refusal: Refusal) {
        let sent = timeout(LINGER, self.writer.send(&Message::Refused(refusal))).await;
        if matches!(sent, Ok(Ok(()))) {
            self.close().await;
        }
    }

    /// Closes so that the peer can read the last message. What it still sends is passed over,
    /// since a close with unread bytes would make the system discard what is under way. Takes at
    /// most 400 ms.
    pub async fn close(mut self) {
        self.writer.close().await;
        let _ = timeout(LINGER, self.reader.skip(LINGER_BYTES)).await;
    }
}

async fn connect_unix(address: &Address, path: PathBuf) -> Result<Connection, ConnectError> {
    let connected = async {
        let stream = UnixStream::connect(&path).await?;
        let peer = unix_peer(&stream)?;
        Ok((stream, peer))
    };
    let (stream, peer) = connected.await.map_err(|source| ConnectError::Connect {
        address: address.clone(),
        source,
    })?;
    Ok(Connection::new(stream, peer, None, Protection::PlainLocal))
}

pub(super) fn unix_peer(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = stream.peer_cred()?;
    Ok(Peer::Unix {
        pid: credentials.pid(),
        uid: credentials.uid(),
    })
}

async fn connect_tcp(
    address: &Address,
    host: &str,
    port: u16,
    security: &ClientSecurity,
) -> Result<Connection, ConnectError> {
    let resolved = tokio::net::lookup_host((host, port)).await;
    let addrs = resolved.map_err(|source| ConnectError::Resolve {
        address: address.clone(),
        source,
    })?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in addrs {
        let protection = protection(Reach::Ip(addr), security.tls.is_some(), security.insecure)?;
        match TcpStream::connect(addr).await {
            Ok(stream) => return secure(address, host, addr, stream, protection, security).await,
            Err(source) => last = source,
        }
    }
    Err(ConnectError::Connect {
        address: address.clone(),
        source: last,
    })
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
    // Small messages must not wait for the answer to the ones before.
    let _ = stream.set_nodelay(true);
    let (Protection::Tls, Some(config)) = (protection, &security.tls) else {
        return Ok(Connection::new(stream, peer, local, protection));
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| ConnectError::ServerName {
        host: crate::names::printable(host, 128),
    })?;
    let connector = TlsConnector::from(config.clone());
    let stream = connector
        .connect(name, stream)
        .await
        .map_err(|error| ConnectError::Tls {
            address: address.clone(),
            reason: handshake_reason(&error),
        })?;
    Ok(Connection::new(stream, peer, local, protection))
}

/// The address of this end. IPv4 in an IPv6 socket is IPv4.
pub(super) fn local_ip(stream: &TcpStream) -> Option<IpAddr> {
    Some(stream.local_addr().ok()?.ip().to_canonical())
}

pub(super) const CLOSED_IN_TLS: &str =
    "the peer closed the connection during the TLS handshake; it may be busy, or speak without TLS";

/// Why a connection failed, in words of ours where rustls is terse.
fn reason(error: &io::Error) -> String {
    use rustls::{AlertDescription as Alert, CertificateError, Error};
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::AlertReceived(Alert::UnknownCA)) => {
            "the peer does not take our certificate: it comes from another certificate authority \
             than the peer's --ca"
                .to_owned()
        }
        Some(Error::AlertReceived(Alert::CertificateExpired)) => {
            "the peer does not take our certificate: it has expired".to_owned()
        }
        Some(Error::AlertReceived(Alert::CertificateRequired)) => {
            "the peer wants a certificate of ours: pass --cert and --key".to_owned()
        }
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "the peer's certificate comes from another certificate authority than our --ca"
                .to_owned()
        }
        Some(Error::NoCertificatesPresented) => "the peer shows no certificate".to_owned(),
        Some(Error::InvalidMessage(_)) => "the peer does not speak TLS".to_owned(),
        Some(other) => other.to_string(),
        None => error.to_string(),
    }
}

/// The reason of a failed TLS handshake.
pub(super) fn handshake_reason(error: &io::Error) -> String {
    let cut = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
    if error
        .get_ref()
        .is_none_or(|inner| !inner.is::<rustls::Error>())
        && cut.contains(&error.kind())
    {
        return CLOSED_IN_TLS.to_owned();
    }
    reason(error)
}

/// The receiving direction of a [`Connection`].
pub struct MessageReader {
    stream: ReadHalf<Box<dyn Stream>>,
    decoder: Decoder,
    chunk: Box<[u8]>,
    /// Bytes of `chunk` that are not decoded yet.
    unread: std::ops::Range<usize>,
    /// A message that was received while a send failed.
    ahead: Option<Message>,
}

impl MessageReader {
    fn new(stream: ReadHalf<Box<dyn Stream>>) -> MessageReader {
        MessageReader {
            stream,
            decoder: Decoder::new(LONG_BYTES_MAX),
            chunk: vec![0; CHUNK_BYTES].into(),
            unread: 0..0,
            ahead: None,
        }
    }

    /// Takes messages of at most `limit` bytes of JSON from here on.
    pub fn set_limit(&mut self, limit: u32) {
        self.decoder.set_limit(limit);
    }

    /// Receives the next message.
    ///
    /// # Errors
    /// The connection ended or what came is no message. Every later call fails too.
    ///
    /// # Cancellation
    /// May be cancelled: what has come is kept for the next call.
    pub async fn recv(&mut self) -> Result<Message, RecvError> {
        if let Some(message) = self.ahead.take() {
            return Ok(message);
        }
        loop {
            let mut input = &self.chunk[self.unread.clone()];
            let decoded = self.decoder.decode(&mut input);
            self.unread.start = self.unread.end - input.len();
            if let Some(message) = decoded? {
                return Ok(message);
            }
            // Everything is decoded: the decoder takes all it is given.
            let read = self.stream.read(&mut self.chunk).await;
            let count = read.map_err(|error| RecvError::Io(reason(&error)))?;
            self.unread = 0..count;
            if count == 0 {
                self.decoder.finish()?;
                return Err(RecvError::Closed);
            }
        }
    }

    /// Receives the next message, or `None` when `deadline` comes first.
    ///
    /// # Errors
    /// As [`MessageReader::recv`].
    ///
    /// # Cancellation
    /// May be cancelled: what has come is kept for the next call.
    pub async fn recv_until(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<Message>, RecvError> {
        let Some(deadline) = deadline else {
            return self.recv().await.map(Some);
        };
        match tokio::time::timeout_at(deadline.into(), self.recv()).await {
            Ok(result) => result.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Passes over what comes, at most `limit` bytes, until the peer closes.
    async fn skip(&mut self, limit: usize) {
        let mut skipped = 0;
        while skipped < limit {
            match self.stream.read(&mut self.chunk).await {
                Ok(0) | Err(_) => return,
                Ok(count) => skipped += count,
            }
        }
    }
}

/// The sending direction of a [`Connection`].
pub struct MessageWriter {
    stream: WriteHalf<Box<dyn Stream>>,
    /// Bytes that the socket has not taken yet.
    pending: Vec<u8>,
    written: usize,
    limit: Duration,
}

impl MessageWriter {
    fn new(stream: WriteHalf<Box<dyn Stream>>) -> MessageWriter {
        MessageWriter {
            stream,
            pending: Vec::new(),
            written: 0,
            limit: SEND_LIMIT,
        }
    }

    /// Sends `message`.
    ///
    /// # Errors
    /// The message is invalid, the connection broke, or the peer read nothing for 5 s.
    ///
    /// # Cancellation
    /// A cancelled send is finished by the next one: no message is cut.
    pub async fn send(&mut self, message: &Message) -> Result<(), SendError> {
        encode(message, &mut self.pending)?;
        let limit = self.limit;
        timeout(limit, self.flush())
            .await
            .map_err(|_| SendError::Timeout(limit))?
            .map_err(|error| SendError::Io(reason(&error)))
    }

    async fn flush(&mut self) -> io::Result<()> {
        while self.written < self.pending.len() {
            let count = self.stream.write(&self.pending[self.written..]).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.written += count;
        }
        self.stream.flush().await?;
        self.pending.clear();
        self.pending.shrink_to(CHUNK_BYTES);
        self.written = 0;
        Ok(())
    }

    /// Ends this direction; the peer reads to the last message and then sees the end. Takes at
    /// most 200 ms.
    pub async fn close(&mut self) {
        let _ = timeout(LINGER, self.stream.shutdown()).await;
    }
}
