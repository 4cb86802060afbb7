//! A stream of bytes whose other end was checked as a session's is, for protocols beside the session.
use super::address::{Address, Peer};
use super::certificate::certificate_name;
use super::connect::{ClientSecurity, ConnectError, client_tls, dial, local_ip, unix_peer};
use super::connection::Stream;
use super::frames::{self, StreamError, StreamReader, StreamWriter};
use super::reason::handshake_reason;
use super::socket::{BindError, Raw, ServerSecurity, Socket};
use crate::reread::ServerTls;
use crate::tls::Protection;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Bytes of a [`SecuredStream::secret`].
pub const SECRET_BYTES: usize = 32;

/// A stream over TCP, in TLS where the rules of [`crate::tls::protection`] ask for it.
pub struct SecuredStream {
    stream: Box<dyn Stream>,
    peer: Peer,
    local: Option<IpAddr>,
    protection: Protection,
    certificate: Option<String>,
    secret: Option<[u8; SECRET_BYTES]>,
    round_trip: Duration,
}

impl std::fmt::Debug for SecuredStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecuredStream({}, {:?})", self.peer, self.protection)
    }
}

impl SecuredStream {
    /// Connects within `limit`. With TLS both ends get the same [`secret`](Self::secret) for
    /// this label.
    ///
    /// # Errors
    /// As [`Connection::connect`](super::Connection::connect).
    pub async fn connect(
        address: &Address,
        security: &ClientSecurity,
        label: &[u8],
        limit: Duration,
    ) -> Result<Self, ConnectError> {
        let (host, port) = match address {
            Address::Tcp { host, port } => (host, port),
            Address::Unix(path) => return Self::connect_unix(address, path, limit).await,
        };
        let attempt = async {
            let (stream, peer, protection, round_trip) =
                dial(address, host, *port, security).await?;
            let _ = stream.set_nodelay(true);
            let (peer, local) = (Peer::Tcp(peer), local_ip(&stream));
            let (Protection::Tls, Some(tls)) = (protection, &security.tls) else {
                let stream: Box<dyn Stream> = Box::new(stream);
                let (certificate, secret) = (None, None);
                return Ok(Self {
                    stream,
                    peer,
                    local,
                    protection,
                    certificate,
                    secret,
                    round_trip,
                });
            };
            let stream = client_tls(address, host, stream, tls).await?;
            let secret = export(stream.get_ref().1, label);
            let (stream, certificate): (Box<dyn Stream>, _) = (Box::new(stream), None);
            Ok(Self { stream, peer, local, protection, certificate, secret, round_trip })
        };
        let address = address.clone();
        timeout(limit, Box::pin(attempt))
            .await
            .unwrap_or(Err(ConnectError::Timeout { address, limit }))
    }

    async fn connect_unix(
        address: &Address,
        path: &Path,
        limit: Duration,
    ) -> Result<Self, ConnectError> {
        let address = address.clone();
        let connected = timeout(limit, UnixStream::connect(path)).await;
        let Ok(connected) = connected else {
            return Err(ConnectError::Timeout { address, limit });
        };
        let of = |stream: UnixStream| Ok((unix_peer(&stream)?, stream));
        match connected.and_then(of) {
            Ok((peer, stream)) => Ok(Self {
                stream: Box::new(stream),
                peer,
                local: None,
                protection: Protection::PlainLocal,
                certificate: None,
                secret: None,
                round_trip: Duration::ZERO,
            }),
            Err(source) => Err(ConnectError::Connect { address, source }),
        }
    }

    /// Returns the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the address of this end; none over a unix socket. IPv4 in an IPv6 socket is IPv4.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.local
    }

    /// Returns how the stream is protected.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Returns the name in the certificate of the end that connected; `None` at that end, and without TLS.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Returns bytes that only the two ends know: the exporter of RFC 8446, section 7.5, for the label with
    /// which the stream was made. `None` without TLS.
    pub fn secret(&self) -> Option<&[u8; SECRET_BYTES]> {
        self.secret.as_ref()
    }

    /// Returns how long it took to connect; zero at the end that accepted.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Sends a length of four bytes, most significant first, then so many bytes of JSON.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn send(
        &mut self,
        message: &impl serde::Serialize,
        limit: usize,
    ) -> Result<(), StreamError> {
        let json =
            serde_json::to_vec(message).map_err(|error| StreamError::Json(error.to_string()))?;
        frames::send(&mut self.stream, &json, limit).await
    }

    /// Receives what [`send`](Self::send) sends. An announced length reserves nothing.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn recv<T: serde::de::DeserializeOwned>(
        &mut self,
        limit: usize,
    ) -> Result<T, StreamError> {
        let json = frames::recv(&mut self.stream, limit).await?;
        let wrong = |error: serde_json::Error| {
            StreamError::Json(crate::names::printable(&error.to_string(), 256))
        };
        serde_json::from_slice(&json).map_err(wrong)
    }

    /// Splits the stream into its two directions, for messages of any bytes.
    pub fn split(self) -> (StreamReader, StreamWriter) {
        let (read, write) = tokio::io::split(self.stream);
        (StreamReader(read), StreamWriter(write))
    }

    /// Returns the stream, for a protocol of its own.
    pub fn into_stream(self) -> impl AsyncRead + AsyncWrite + Send + Unpin {
        self.stream
    }

    /// Closes this direction.
    pub async fn close(mut self) {
        let _ = self.stream.shutdown().await;
    }
}

/// Returns what both ends of a TLS connection can derive for a label.
fn export<D>(connection: &rustls::ConnectionCommon<D>, label: &[u8]) -> Option<[u8; SECRET_BYTES]> {
    connection.export_keying_material([0; SECRET_BYTES], label, None).ok()
}

/// Listens for [`SecuredStream`]s.
#[derive(Debug)]
pub struct StreamListener {
    socket: Socket,
    local: Address,
    protection: Protection,
    tls: Option<Arc<ServerTls>>,
}

/// Pause after a failed accept, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// One of the connections that are served at a time. Dropping it makes room for another one.
#[derive(Debug)]
pub struct Place(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit);

/// A connection whose handshake is still to be made.
pub struct Arriving {
    raw: Raw,
    peer: Peer,
    protection: Protection,
    tls: Option<Arc<ServerTls>>,
}

impl StreamListener {
    /// Listens on a TCP address.
    ///
    /// # Errors
    /// The address needs protection that `security` does not provide, or cannot be bound.
    pub async fn bind(address: &Address, security: ServerSecurity) -> Result<Self, BindError> {
        let (socket, protection) = Socket::bind(address, &security).await?;
        let local = socket.local(address);
        let tls = security.tls.filter(|_| protection == Protection::Tls);
        Ok(Self { socket, local, protection, tls })
    }

    /// Returns the address, with the port that the system chose.
    pub fn local(&self) -> &Address {
        &self.local
    }

    /// Waits for the next connection. Make its handshake on a task of its own, with a limit of time.
    ///
    /// # Errors
    /// Those of `accept(2)`.
    pub async fn accept(&self) -> io::Result<Arriving> {
        let (raw, peer) = self.socket.accept().await?;
        Ok(Arriving { raw, peer, protection: self.protection, tls: self.tls.clone() })
    }

    /// Serves each connection on a task of its own, until this is dropped. No more than `most` have a place at a time;
    /// others wait in the queue of the system.
    pub async fn serve_each<F>(self, most: usize, serve: impl Fn(Arriving, Place) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let places = Arc::new(Semaphore::new(most));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match self.accept().await {
                Ok(arriving) => drop(tokio::spawn(serve(arriving, Place(place)))),
                Err(error) => {
                    tracing::warn!(listener = %self.local, %error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Arriving {
    /// Returns the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Makes the handshake.
    ///
    /// # Errors
    /// TLS failed, or the certificate has no name: why.
    pub async fn secure(self, label: &[u8]) -> Result<SecuredStream, String> {
        let Self { raw, peer, protection, tls } = self;
        let round_trip = Duration::ZERO;
        let plain = |stream: Box<dyn Stream>, peer, local| {
            let (certificate, secret) = (None, None);
            SecuredStream { stream, peer, local, protection, certificate, secret, round_trip }
        };
        let stream = match raw {
            Raw::Unix(stream) => return Ok(plain(Box::new(stream), peer, None)),
            Raw::Tcp(stream) => stream,
        };
        let _ = stream.set_nodelay(true);
        let local = local_ip(&stream);
        let Some(tls) = tls else { return Ok(plain(Box::new(stream), peer, local)) };
        let accepted = TlsAcceptor::from(tls.current()).accept(stream).await;
        let stream = accepted.map_err(|error| handshake_reason(&error))?;
        let session = stream.get_ref().1;
        let certificate = certificate_name(session.peer_certificates());
        if certificate.is_none() {
            return Err("the certificate holds no name".to_owned());
        }
        let secret = export(session, label);
        Ok(SecuredStream { certificate, secret, ..plain(Box::new(stream), peer, local) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use tokio::net::TcpStream;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn no_more_connections_are_served_at_a_time_than_have_a_place() {
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = StreamListener::bind(&address, ServerSecurity::default()).await.unwrap();
        let local = listener.local().to_string();
        let (sender, mut places) = mpsc::unbounded_channel();
        let serving = tokio::spawn(listener.serve_each(2, move |_, place| {
            let sender = sender.clone();
            async move { drop(sender.send(place)) }
        }));
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(TcpStream::connect(&local).await.unwrap());
        }
        let first = places.recv().await.unwrap();
        let _second = places.recv().await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(places.try_recv().is_err(), "there is no place for a third");
        drop(first);
        assert!(places.recv().await.is_some(), "there is one now");
        serving.abort();
    }
}
