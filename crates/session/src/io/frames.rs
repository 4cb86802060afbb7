//! A length of four bytes, most significant first, then so many bytes.
use super::connection::Stream;
use crate::lease::Lease;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::time::timeout_at;

const HEADER_BYTES: usize = crate::wire::HEADER_BYTES;

/// Nothing came that can be read, or nothing could be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The other end closed, or the connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// A message is longer than allowed.
    #[error("a message of {bytes} bytes, where at most {limit} are allowed")]
    TooLong {
        /// Bytes of it.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The text is not what was expected: what the reader of JSON said.
    #[error("a message that cannot be read: {0}")]
    Json(String),
    /// The other end let its lease run out.
    #[error("nothing was heard for a lease of {0:?}")]
    Silent(Duration),
}

pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    limit: usize,
) -> Result<(), StreamError> {
    let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= limit);
    let length = length.ok_or(StreamError::TooLong { bytes: bytes.len(), limit })?;
    stream.write_all(&[&length.to_be_bytes()[..], bytes].concat()).await?;
    Ok(stream.flush().await?)
}

/// An announced length reserves nothing.
pub(super) async fn recv(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Vec<u8>, StreamError> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let length = u32::from_be_bytes(header) as usize;
    if length > limit {
        return Err(StreamError::TooLong { bytes: length, limit });
    }
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(bytes)
}

/// The receiving direction of a [`SecuredStream`](super::SecuredStream).
pub struct StreamReader(pub(super) ReadHalf<Box<dyn Stream>>);

/// The sending direction of a [`SecuredStream`](super::SecuredStream).
pub struct StreamWriter(pub(super) WriteHalf<Box<dyn Stream>>);

impl StreamReader {
    /// Receives the bytes of one message, of at most `limit`.
    ///
    /// # Errors
    /// [`StreamError`].
    ///
    /// # Cancellation
    /// What was received of a message is lost: nothing more can be received.
    pub async fn recv(&mut self, limit: usize) -> Result<Vec<u8>, StreamError> {
        recv(&mut self.0, limit).await
    }

    /// The same, within the lease of the other end, which begins anew with the message.
    ///
    /// # Errors
    /// [`StreamError`]; [`StreamError::Silent`] when the lease has ended.
    ///
    /// # Cancellation
    /// As for [`StreamReader::recv`].
    pub async fn recv_within(
        &mut self,
        lease: &mut Lease,
        limit: usize,
    ) -> Result<Vec<u8>, StreamError> {
        let received = timeout_at(lease.until().into(), self.recv(limit)).await;
        let bytes = received.map_err(|_| StreamError::Silent(lease.time()))??;
        lease.hear(Instant::now());
        Ok(bytes)
    }
}

impl StreamWriter {
    /// Sends the bytes of one message, of at most `limit`.
    ///
    /// # Errors
    /// [`StreamError`].
    ///
    /// # Cancellation
    /// Part of the message may have been sent: nothing more can be.
    pub async fn send(&mut self, bytes: &[u8], limit: usize) -> Result<(), StreamError> {
        send(&mut self.0, bytes, limit).await
    }

    /// Closes this direction.
    pub async fn close(mut self) {
        let _ = self.0.shutdown().await;
    }
}
