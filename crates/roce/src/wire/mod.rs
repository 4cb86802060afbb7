//! What stands on the wire: headers, whole packets, the invariant CRC.
//!
//! A datagram is `BTH, extension headers, payload, pad, ICRC`. "Transport bytes" means all of it
//! but the ICRC. Which extension headers follow is a matter of the [`Opcode`] alone.
//!
//! Everything is decoded by value and encoded into the caller's array: nothing allocates.
//!
//! - [`Headers`], [`Packet`]: decode and encode.
//! - [`icrc`]: the checksum over what no router changes; [`ip_id`]: checking it without seeing the
//!   identification of the IPv4 header.
//! - [`net`]: the IP and UDP headers, as far as the ICRC covers them.

pub mod aeth;
mod atomic;
mod bth;
mod deth;
mod drop_reason;
pub mod icrc;
mod ieth;
mod immdt;
pub mod ip_id;
pub mod net;
mod opcode;
mod packet;
mod path_mtu;
mod reth;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomic::AtomicEth;
pub use bth::{Bth, PKEY_DEFAULT, pad_bytes, pkey_matches};
pub use deth::Deth;
pub use drop_reason::DropReason;
pub use icrc::{ICRC_BYTES, Icrc};
pub use net::{NetHeader, ROCE_PORT};
pub use opcode::{HeaderSet, Opcode, Operation, Position, Transport};
pub use packet::{DecodeError, Headers, MAX_HEADER_BYTES, Packet};
pub use path_mtu::PathMtu;
pub use reth::Reth;
