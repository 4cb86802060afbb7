//! The wire format: headers, whole packets, the invariant CRC.
//!
//! A datagram is `BTH, extension headers, payload, pad, ICRC`. "Transport bytes" are all of it but
//! the ICRC. The [`Opcode`] alone determines the extension headers.
//!
//! Decoding returns values and encoding fills the caller's array: nothing allocates.
//!
//! - [`Headers`], [`Packet`]: decode and encode.
//! - [`datagram`]: a whole datagram, opened and sealed.
//! - [`icrc`]: the checksum over invariant fields; [`ip_id`]: checking it without the identification
//!   of the IPv4 header.
//! - [`net`]: the IP and UDP headers, as far as the ICRC covers them.
//!
//! ```
//! use catchment_roce::Psn;
//! use catchment_roce::wire::{Bth, Headers, NetHeader, Opcode, Reth, datagram, ip_id, net};
//!
//! let port = net::source_port(0x11, 0x22);
//! let net = NetHeader::v6([1; 16].into(), [2; 16].into(), port);
//! let mut headers = Headers::new(Bth::new(Opcode::RcWriteOnly, 0x22, Psn::new(7)));
//! headers.reth = Some(Reth { va: 0x1000, rkey: 5, dma_bytes: 3 });
//! let mut bytes = Vec::new();
//! datagram::seal(&net, &headers, b"abc", &mut bytes);
//! assert_eq!(bytes.len(), 12 + 16 + 3 + 1 + 4);
//!
//! let packet = datagram::open(&net, &bytes, &mut ip_id::Solver::new())?;
//! assert_eq!(packet.payload, b"abc");
//! assert_eq!(packet.headers.reth, headers.reth);
//! # Ok::<(), datagram::OpenError>(())
//! ```
pub mod aeth;
mod atomic;
mod bth;
mod crc;
pub mod datagram;
mod decode_error;
mod deth;
mod drop_reason;
pub mod icrc;
pub mod ip_id;
pub mod net;
mod opcode;
mod packet;
mod path_mtu;
mod reth;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomic::AtomicEth;
pub use bth::{Bth, PKEY_DEFAULT, dest_qpn, pad_bytes, pkey_matches};
pub use crc::{fold_by_shifts, has_crc_instructions};
pub use decode_error::DecodeError;
pub use deth::Deth;
pub use drop_reason::DropReason;
pub use icrc::{ICRC_BYTES, Icrc};
pub use net::{NetHeader, ROCE_PORT};
pub use opcode::{HeaderSet, Opcode, Operation, Position, Transport};
pub use packet::{Headers, MAX_HEADER_BYTES, Packet};
pub use path_mtu::PathMtu;
pub use reth::Reth;
