//! Datagrams of a source and its controller as messages of a connection, for where UDP does not pass (docs/spec/admission.md,
//! section 3).
//!
//! Each end has a socket on its own host, connected to the one that would use the network: what comes there goes as a
//! message, and each message goes there as a datagram. So neither end knows of it, and what is authentic stays so. What
//! finds no room is lost, as over a network.
use crate::io::{Address, ClientSecurity, SecuredStream, StreamError};
use crate::registration::{Answer, RegisterError, Request, ask};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// Longest datagram; a longer one is none of ours.
pub const DATAGRAM_BYTES_MAX: usize = 1500;
/// A source that has nothing to say sends a probe each second: who has said nothing for so long is gone.
pub const SILENT: Duration = Duration::from_secs(30);

/// Asks a controller to take the datagrams of this source as messages; returns the connection for [`carry`].
///
/// # Errors
/// [`RegisterError`]: it cannot be reached, or carries as many as it can.
pub async fn connect(
    address: &Address,
    security: &ClientSecurity,
    limit: Duration,
) -> Result<SecuredStream, RegisterError> {
    match ask(address, security, &Request::Carry {}, limit).await? {
        (Answer::Carrying {}, stream, _) => Ok(stream),
        _ => Err(RegisterError::Answer { address: address.clone() }),
    }
}

/// Returns two sockets of this host that reach each other and nobody else.
///
/// # Errors
/// The system gives none.
pub fn local_pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let any = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (any()?, any()?);
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((one, other))
}

/// Passes datagrams of a connected socket on as messages, and messages as datagrams, until the connection or the socket's
/// other end is gone, or nothing has come over the connection for [`SILENT`]. Does not return otherwise.
///
/// # Errors
/// Why it has ended.
pub async fn carry(stream: SecuredStream, socket: UdpSocket) -> Result<(), StreamError> {
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    let (mut reader, mut writer) = stream.split();
    let inward = async {
        loop {
            let message = tokio::time::timeout(SILENT, reader.recv(DATAGRAM_BYTES_MAX)).await;
            socket.send(&message.map_err(|_| StreamError::Silent(SILENT))??).await?;
        }
    };
    let outward = async {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        loop {
            let bytes = socket.recv(&mut buffer).await?;
            writer.send(&buffer[..bytes], DATAGRAM_BYTES_MAX).await?;
        }
    };
    tokio::select! {
        ended = inward => ended,
        ended = outward => ended,
    }
}
