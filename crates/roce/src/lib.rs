//! RoCEv2 without I/O: what stands on the wire, and how a queue pair answers it.
//!
//! RoCEv2 is the InfiniBand transport in UDP datagrams to port 4791 (InfiniBand Architecture
//! Specification, volume 1, chapter 9 and annex A17). `docs/spec/roce-profile.md` says which part
//! of it this is, and where the standard leaves a choice.
//!
//! - [`Psn`]: packet sequence numbers, 24 bits that wrap.
//! - [`wire`]: the packet formats and the invariant CRC.
//!
//! Nothing here opens a socket, reads a clock, draws a random number or allocates for a packet.
#![forbid(unsafe_code)]

pub mod psn;
pub mod wire;

pub use psn::Psn;
