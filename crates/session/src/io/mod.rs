//! Sockets for sessions: TCP, TLS over TCP, unix sockets.
//!
//! [`SecuredStream`] is for protocols beside the session, with the same rules of protection.
//!
//! [`Connection`] sends and receives whole messages. [`Listener`] accepts connections and hands out
//! those that have sent a valid Hello; the number of unfinished handshakes is bounded, so peers that
//! never finish cost little and block no other. [`drive`] runs a session over a connection.
mod address;
mod certificate;
mod connect;
mod connection;
mod descriptors;
mod driver;
mod frames;
mod listener;
mod reason;
mod secured;
mod slots;
mod socket;

pub use address::{Address, AddressError, Peer};
pub use connect::{ClientSecurity, ConnectError};
pub use connection::{Connection, MessageReader, MessageWriter, RecvError, SendError};
pub use descriptors::{NoDescriptors, raise_descriptor_limit};
pub use driver::{Handler, Lost, drive};
pub use frames::{StreamError, StreamReader, StreamWriter};
pub use listener::{Accepted, Listener, ListenerConfig, OnRejected, RejectReason, Rejected};
pub use secured::{Arriving, Place, SECRET_BYTES, SecuredStream, StreamListener};
pub use slots::Slot;
pub use socket::{BindError, ServerSecurity, bind_unix};

#[cfg(test)]
mod flood_test;
#[cfg(test)]
mod socket_test;
#[cfg(test)]
mod tls_test;
