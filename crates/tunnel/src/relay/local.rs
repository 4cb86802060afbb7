//! Sockets of this host's programs: TCP or unix.
use catchment_session::io::{Address, bind_unix};
use socket2::{Domain, SockAddr, Socket, Type};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::{fmt, io};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Where a program listens, or is to connect. A name was looked up once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Local {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Local {
    /// Looks an address up.
    ///
    /// # Errors
    /// The name has no address.
    pub fn find(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix(path) => Ok(Self::Unix(path.clone())),
            Address::Tcp { host, port } => {
                let found = (host.as_str(), *port).to_socket_addrs()?.next();
                let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                Ok(Self::Tcp(found.ok_or_else(none)?))
            }
        }
    }

    fn socket(domain: Domain) -> io::Result<Socket> {
        let socket = Socket::new(domain, Type::STREAM.cloexec(), None)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Listens. Of a unix socket only its owner may be a client.
    ///
    /// # Errors
    /// The address is in use or not of this host.
    pub(crate) fn listen(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(addr) => {
                let socket = Self::socket(Domain::for_address(*addr))?;
                socket.set_reuse_address(true)?;
                socket.bind(&SockAddr::from(*addr))?;
                socket.listen(BACKLOG)?;
                Ok(socket)
            }
            Self::Unix(path) => {
                let listener = bind_unix(path).map_err(io::Error::other)?;
                listener.set_nonblocking(true)?;
                Ok(listener.into())
            }
        }
    }

    /// Begins to connect: the socket is writable when it is done.
    ///
    /// # Errors
    /// It is known at once that nobody answers.
    pub(crate) fn connect(&self) -> io::Result<Socket> {
        let (domain, address) = match self {
            Self::Tcp(addr) => (Domain::for_address(*addr), SockAddr::from(*addr)),
            Self::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
        };
        let socket = Self::socket(domain)?;
        match socket.connect(&address) {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        Ok(socket)
    }
}

/// Lets small writes leave at once. A unix socket always does.
pub(crate) fn send_at_once(socket: &Socket) {
    let _ = socket.set_tcp_nodelay(true);
}

/// Closes a connection so that the other end sees that it broke: by a reset, over TCP.
pub(crate) fn abort(socket: Socket) {
    let _ = socket.set_linger(Some(std::time::Duration::ZERO));
    drop(socket);
}
