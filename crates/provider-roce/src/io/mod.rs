//! Sockets of a RoCE device: trains of packets sent from registered memory, packets
//! received in place.
//!
//! A device has one [`UdpSocket`], for one address. [`SendBatch`] gathers packets, puts equal ones
//! to the same peer into one GSO send, computes their ICRC and hands several sends to the kernel in
//! one call; the payload goes from the registered region to the kernel without a copy of ours.
//! [`RecvRing`] takes what has come, up to 64 KiB a buffer where the kernel has merged packets
//! (GRO), and shows each packet in place. On a [`Waiter`] the engine sleeps.
//!
//! Nothing here keeps state of a peer, except the addresses where GSO was refused.
mod address;
mod auth;
mod batch;
mod control;
mod datagrams;
mod error;
mod flush;
mod fold;
mod icrc;
mod name;
mod options;
mod path;
mod port_owner;
mod recv;
mod seal;
mod socket;
mod source_ports;
mod sys;
mod wait;

pub use address::{LocalAddress, Scope, local_addresses};
pub use auth::{AUTH_BYTES, Opener, Sealer};
pub use batch::{Full, MAX_PIECES, MAX_TRAIN_PACKETS, Piece, Route, SendBatch};
pub use datagrams::{Capabilities, Datagrams, Incoming, Outgoing, OutgoingTrain};
pub use error::{BindError, SendFault};
pub use flush::{Blocked, Flush, SendCounters};
pub(crate) use icrc::net_header;
pub use icrc::{IcrcCheck, IcrcError, TrainCheck};
pub use options::{BufferSize, SocketOptions};
pub use path::{Path, PathError, PathProbe};
pub use port_owner::port_owner;
pub use recv::{Packet, RecvCounters, RecvRing, Train};
pub use socket::UdpSocket;
pub use wait::{Waiter, Waker, Wakeup};
