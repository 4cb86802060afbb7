//! Whole messages over a byte stream.
use super::address::Peer;
use super::reason::{is_final, reason};
use crate::message::Message;
use crate::refusal::Refusal;
use crate::tls::Protection;
use crate::wire::{DecodeError, Decoder, EncodeError, LONG_BYTES_MAX, encode};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

/// Bytes per read from the socket.
const CHUNK_BYTES: usize = 8 << 10;
/// How long a peer may leave our bytes unread before a send fails.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// Time limit to read a refusal after the connection broke, and to close.
const LINGER: Duration = Duration::from_millis(200);
/// Bytes from a peer that are discarded while the refusal is sent to it.
const LINGER_BYTES: usize = 64 << 10;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

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
    /// TLS failed, and will until a setting or a file changes.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// The peer does not read.
    #[error("the peer has not read anything for {0:?}")]
    Timeout(Duration),
}

/// No message was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The peer closed between two messages.
    #[error("the peer closed the connection")]
    Closed,
    /// The bytes are not a message; answer with [`DecodeError::refusal`].
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The connection broke.
    #[error("cannot receive: {0}")]
    Io(String),
    /// TLS failed, and will until a setting or a file changes: the peer does not accept our certificate.
    #[error("TLS failed: {0}")]
    Tls(String),
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        let kind = if is_final(&error) { Self::Tls } else { Self::Io };
        kind(reason(&error))
    }
}

impl From<io::Error> for RecvError {
    fn from(error: io::Error) -> Self {
        let kind = if is_final(&error) { Self::Tls } else { Self::Io };
        kind(reason(&error))
    }
}

/// A control connection that carries messages.
pub struct Connection {
    reader: MessageReader,
    writer: MessageWriter,
    peer: Peer,
    local: Option<IpAddr>,
    protection: Protection,
    certificate: Option<String>,
    round_trip: Duration,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({}, {:?})", self.peer, self.protection)
    }
}

impl Connection {
    pub(super) fn new(
        stream: impl Stream + 'static,
        peer: Peer,
        local: Option<IpAddr>,
        protection: Protection,
    ) -> Self {
        let stream: Box<dyn Stream> = Box::new(stream);
        let (read, write) = tokio::io::split(stream);
        Self {
            reader: MessageReader::new(read),
            writer: MessageWriter::new(write),
            peer,
            local,
            protection,
            certificate: None,
            round_trip: Duration::ZERO,
        }
    }

    /// Notes how long it took to connect to another host.
    pub(super) fn with_round_trip(self, took: Duration) -> Self {
        let is_here = match (&self.peer, self.local) {
            (Peer::Tcp(peer), Some(local)) => peer.ip().is_loopback() || peer.ip() == local,
            (Peer::Tcp(_), None) | (Peer::Unix { .. }, _) => true,
        };
        Self { round_trip: if is_here { Duration::ZERO } else { took }, ..self }
    }

    /// Returns the time of one round trip, as the connecting end has seen it: that of the first packets, and
    /// what this thread waited for its turn. Zero at the accepting end, and on one host.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Notes whose certificate the peer has shown.
    pub(super) fn set_certificate(&mut self, name: Option<String>) {
        self.certificate = name;
    }

    /// Returns the name in the certificate that the peer has shown: its common name, or else its first
    /// alternative name. None without TLS, and at a source.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Returns the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the address of this end; none over a unix socket.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.local
    }

    /// Returns how the connection is protected.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Sends `message`; see [`MessageWriter::send`]. If the peer has closed but sent a message before,
    /// such as a refusal, this returns `Ok` and the next receive returns that message.
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
        // A message that the peer sent before it closed is more useful than "broken pipe".
        match timeout(LINGER, self.reader.recv()).await {
            Ok(Ok(message)) => {
                self.reader.ahead = Some(message);
                Ok(())
            }
            Ok(Err(RecvError::Io(reason))) => Err(SendError::Io(reason)),
            Ok(Err(RecvError::Tls(reason))) => Err(SendError::Tls(reason)),
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

    /// Splits the connection into its two directions, for two tasks.
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

    /// Closes so that the peer can read the last message. What it still sends is discarded, since a
    /// close with unread bytes would reset the connection. Takes at most 400 ms.
    pub async fn close(mut self) {
        self.writer.close().await;
        let _ = timeout(LINGER, self.reader.skip(LINGER_BYTES)).await;
    }
}

/// The receiving direction of a [`Connection`].
pub struct MessageReader {
    stream: ReadHalf<Box<dyn Stream>>,
    decoder: Decoder,
    chunk: Box<[u8]>,
    /// Bytes of `chunk` that are not decoded yet.
    unread: std::ops::Range<usize>,
    /// A message that was received after a send failed.
    ahead: Option<Message>,
}

impl MessageReader {
    fn new(stream: ReadHalf<Box<dyn Stream>>) -> Self {
        Self {
            stream,
            decoder: Decoder::new(LONG_BYTES_MAX),
            chunk: vec![0; CHUNK_BYTES].into(),
            unread: 0..0,
            ahead: None,
        }
    }

    /// Limits messages to `limit` bytes of JSON from here on.
    pub fn set_limit(&mut self, limit: u32) {
        self.decoder.set_limit(limit);
    }

    /// Receives the next message.
    ///
    /// # Errors
    /// The connection ended or what came is no message. Every later call fails too.
    ///
    /// # Cancellation
    /// May be cancelled: what has arrived is kept for the next call.
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
            // Everything is decoded: the decoder consumes all its input.
            let count = self.stream.read(&mut self.chunk).await?;
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
    /// May be cancelled: what has arrived is kept for the next call.
    pub async fn recv_until(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<Message>, RecvError> {
        let Some(deadline) = deadline else { return self.recv().await.map(Some) };
        match tokio::time::timeout_at(deadline.into(), self.recv()).await {
            Ok(result) => result.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Discards incoming bytes, at most `limit`, until the peer closes.
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
    fn new(stream: WriteHalf<Box<dyn Stream>>) -> Self {
        Self { stream, pending: Vec::new(), written: 0, limit: SEND_LIMIT }
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
        timeout(limit, self.flush()).await.map_err(|_| SendError::Timeout(limit))??;
        Ok(())
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
