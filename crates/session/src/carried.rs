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
    carry_within(stream, socket, SILENT).await
}

/// The same, with a limit of its own for how long the peer may say nothing.
async fn carry_within(
    stream: SecuredStream,
    socket: UdpSocket,
    silent: Duration,
) -> Result<(), StreamError> {
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    let (mut reader, mut writer) = stream.split();
    let inward = async {
        loop {
            let message = tokio::time::timeout(silent, reader.recv(DATAGRAM_BYTES_MAX)).await;
            socket.send(&message.map_err(|_| StreamError::Silent(silent))??).await?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use crate::io::{ServerSecurity, StreamListener};
    use crate::registration::LABEL;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;

    /// Longer than anything takes.
    const LONG: Duration = Duration::from_secs(3600);

    type Ended = JoinHandle<Result<(), StreamError>>;

    /// A peer's raw end of a connection whose messages are carried, the socket that they reach, and how that ends.
    async fn carried(silent: Duration) -> (TcpStream, UdpSocket, Ended) {
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = StreamListener::bind(&address, ServerSecurity::default()).await.unwrap();
        let peer = TcpStream::connect(listener.local().to_string()).await.unwrap();
        let stream = listener.accept().await.unwrap().secure(LABEL).await.unwrap();
        let (own, bridge) = local_pair().unwrap();
        (peer, own, tokio::spawn(carry_within(stream, bridge, silent)))
    }

    fn message(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
    }

    #[tokio::test]
    async fn the_longest_datagram_passes_in_both_directions() {
        let (mut peer, own, _ended) = carried(LONG).await;
        let own = tokio::net::UdpSocket::from_std(own).unwrap();
        let (mut buffer, longest) = ([0; 2 * DATAGRAM_BYTES_MAX], [7; DATAGRAM_BYTES_MAX]);
        peer.write_all(&message(&longest)).await.unwrap();
        let read = own.recv(&mut buffer).await.unwrap();
        assert_eq!(buffer[..read], longest);
        own.send(&longest).await.unwrap();
        let mut read = message(&longest);
        read.fill(0);
        peer.read_exact(&mut read).await.unwrap();
        assert_eq!(read, message(&longest));
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_ends_it_before_any_of_its_bytes_is_read() {
        let (mut peer, own, ended) = carried(LONG).await;
        // Its bytes never come.
        let bytes = DATAGRAM_BYTES_MAX + 1;
        peer.write_all(&(bytes as u32).to_be_bytes()).await.unwrap();
        let error = ended.await.unwrap().unwrap_err();
        assert!(
            matches!(error, StreamError::TooLong { bytes: 1501, limit: DATAGRAM_BYTES_MAX }),
            "{error:?}"
        );
        assert_eq!(error.to_string(), "a message of 1501 bytes, where at most 1500 are allowed");
        assert!(own.recv(&mut [0]).is_err(), "nothing of it is passed on");
    }

    #[tokio::test]
    async fn a_peer_that_says_nothing_or_leaves_is_given_up() {
        let silent = Duration::from_millis(20);
        let (_peer, own, ended) = carried(silent).await;
        // What goes to it does not count as said by it.
        own.send(&[1]).unwrap();
        let error = ended.await.unwrap().unwrap_err();
        assert!(matches!(error, StreamError::Silent(limit) if limit == silent), "{error:?}");
        let (mut peer, _own, ended) = carried(LONG).await;
        // It leaves in the middle of a message.
        peer.write_all(&message(&[7; 100])[..50]).await.unwrap();
        drop(peer);
        assert!(matches!(ended.await.unwrap(), Err(StreamError::Io(_))));
    }
}
