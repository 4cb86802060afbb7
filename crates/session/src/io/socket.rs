//! The sockets that a collector listens on, and their connections.
use super::address::{Address, Peer};
use super::connect::unix_peer;
use crate::reread::ServerTls;
use crate::tls::{Protection, ProtectionError, Reach, protection};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// How a collector protects its connections.
#[derive(Debug, Clone, Default)]
pub struct ServerSecurity {
    /// TLS.
    pub tls: Option<Arc<ServerTls>>,
    /// Listen without TLS even where other hosts can connect.
    pub insecure: bool,
}

/// A collector cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The address would be unprotected.
    #[error(transparent)]
    Protection(#[from] ProtectionError),
    /// The system refuses.
    #[error("cannot listen on {address}: {source}; is the address of this host and free?")]
    Bind {
        /// The address.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// Another process listens there.
    #[error("another process listens on {0}; stop it or use another path")]
    InUse(Address),
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

pub(super) enum Raw {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) async fn bind(
        address: &Address,
        security: &ServerSecurity,
    ) -> Result<(Self, Protection), BindError> {
        let failed = |source| BindError::Bind { address: address.clone(), source };
        let (host, port) = match address {
            Address::Unix(path) => {
                let listener = bind_unix(path)?;
                let listener = listener.set_nonblocking(true).map(|()| listener);
                let listener = listener.and_then(UnixListener::from_std).map_err(failed)?;
                return Ok((Self::Unix(listener), Protection::PlainLocal));
            }
            Address::Tcp { host, port } => (host.as_str(), *port),
        };
        let addrs = tokio::net::lookup_host((host, port)).await.map_err(failed)?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for addr in addrs {
            let protection =
                protection(Reach::Ip(addr), security.tls.is_some(), security.insecure)?;
            match TcpListener::bind(addr).await {
                Ok(listener) => return Ok((Self::Tcp(listener), protection)),
                Err(source) => last = source,
            }
        }
        Err(failed(last))
    }

    pub(super) fn local(&self, asked: &Address) -> Address {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| asked.clone(), |addr: SocketAddr| addr.into())
            }
            Self::Unix(_) => asked.clone(),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<(Raw, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, addr) = listener.accept().await?;
                Ok((Raw::Tcp(stream), Peer::Tcp(addr)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = unix_peer(&stream)?;
                Ok((Raw::Unix(stream), peer))
            }
        }
    }
}

/// Listens on a unix socket that only its owner may use. Binds beside the path and renames: no client can connect
/// before the mode is set. What a dead process left at the path is replaced.
///
/// # Errors
/// Another process listens there, something else is there, or the system refuses.
pub fn bind_unix(path: &Path) -> Result<std::os::unix::net::UnixListener, BindError> {
    let address = Address::Unix(path.to_owned());
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(BindError::InUse(address));
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let bound = (|| {
        let is_other = fs::symlink_metadata(path).is_ok_and(|found| !is_socket(&found));
        if is_other {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let _ = fs::remove_file(&beside);
        let listener = std::os::unix::net::UnixListener::bind(&beside)?;
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o600))?;
        fs::rename(&beside, path)?;
        Ok(listener)
    })();
    bound.map_err(|source| {
        let _ = fs::remove_file(&beside);
        BindError::Bind { address, source }
    })
}

fn is_socket(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_socket()
}

/// Closes a connection at once, with the reason where that is one system call.
pub(super) fn dismiss(raw: Raw, refusal: Option<&Vec<u8>>) {
    let Some(refusal) = refusal else { return };
    let socket: io::Result<OwnedFd> = match raw {
        Raw::Tcp(stream) => stream.into_std().map(Into::into),
        Raw::Unix(stream) => stream.into_std().map(Into::into),
    };
    // It does not block, and nothing is lost when it cannot take the bytes.
    if let Ok(socket) = socket {
        let _ = send(&socket, refusal, SendFlags::NOSIGNAL);
        let _ = shutdown(&socket, Shutdown::Write);
        let _ = recv(&socket, &mut [0; 4096], RecvFlags::empty());
    }
}
