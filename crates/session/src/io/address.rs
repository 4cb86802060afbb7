//! Addresses of collectors, and of peers.
use crate::names::printable;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Address of a control connection: `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host name or IP address, without brackets, and a port.
    Tcp {
        /// The host.
        host: String,
        /// The port; 0 lets the system choose one to listen on.
        port: u16,
    },
    /// Path of a unix socket.
    Unix(PathBuf),
}

/// A text is not an [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("address \"{seen}\" {problem}; use HOST:PORT, [IPV6]:PORT or unix:PATH")]
pub struct AddressError {
    /// The text, escaped and cut.
    pub seen: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |problem| AddressError { seen: printable(text, 128), problem };
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(wrong("has no path"));
            }
            return Ok(Self::Unix(path.into()));
        }
        if text.contains("://") {
            return Err(wrong("is a URL, and sessions know no schemes such as http"));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("has no port"))?;
        let port = port.parse().map_err(|_| wrong("has no port 0 to 65535"))?;
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err(wrong("has an IPv6 address without brackets"));
        }
        let host = bare.unwrap_or(host);
        if host.is_empty() {
            return Err(wrong("has no host"));
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp { host: addr.ip().to_string(), port: addr.port() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Over TCP.
    Tcp(SocketAddr),
    /// Over a unix socket: the process, as reported by the kernel.
    Unix {
        /// Its process id, where the kernel knows it.
        pid: Option<i32>,
        /// Its user id.
        uid: u32,
    },
}

impl Peer {
    /// Returns its address; none over a unix socket. IPv4 in an IPv6 socket is IPv4.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(addr) => Some(addr.ip().to_canonical()),
            Self::Unix { .. } => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix { pid: Some(pid), uid } => write!(f, "process {pid} (uid {uid})"),
            Self::Unix { pid: None, uid } => write!(f, "a process (uid {uid})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_what_they_print() {
        for text in ["localhost:0", "10.1.2.3:65535", "[::1]:7", "unix:/run/c.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn wrong_addresses_say_what_is_wrong() {
        for (text, problem) in [
            ("host", "no port"),
            ("host:99999", "no port 0 to 65535"),
            (":80", "no host"),
            ("::1:80", "without brackets"),
            ("unix:", "no path"),
            ("http://host:80", "is a URL"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
