//! RoCEv2 without I/O: the wire formats, and queue pairs as state machines.
//!
//! RoCEv2 is the InfiniBand transport in UDP datagrams to port 4791 (InfiniBand Architecture
//! Specification, volume 1, chapter 9 and annex A17). `docs/spec/roce-profile.md` lists
//! what is implemented, and the choices where the standard leaves one.
//!
//! - [`Psn`]: packet sequence numbers, 24 bits that wrap.
//! - [`wire`]: the packet formats and the invariant CRC.
//! - [`Qp`]: a queue pair of service type RC, UC or UD. Packets and times go in, packets,
//!   completions and the next timeout come out.
//! - [`Memory`]: what the driver provides: checking keys, moving bytes.
//! - [`TransmitBatch`]: packets to send, their payload by reference.
//! - [`pcap`]: captures for Wireshark.
//!
//! # The contract
//!
//! | | |
//! |---|---|
//! | inputs | [`Qp::handle`]: a packet, the end of a batch, a timeout; `post_*`, `modify_*`, [`Qp::set_rate`] |
//! | outputs | [`Qp::poll_transmit`], [`Qp::poll_completion`], [`Qp::next_timeout`]: all three after every input, until nothing is left |
//! | time | nanoseconds from an origin of the driver's; never goes back; only `now_ns` arguments carry it |
//! | memory | reached through [`Memory`] only, and only during a call |
//! | who may call | one thread at a time; nothing blocks, and the work of a call is bounded |
//!
//! A completion is valid once the packets polled before it are sent. A driver does this for each
//! queue pair after an input:
//!
//! ```
//! use catchment_roce::{Input, Memory, Qp, TransmitBatch};
//!
//! fn drive(qp: &mut Qp, now_ns: u64, memory: &mut dyn Memory, batch: &mut TransmitBatch) -> Option<u64> {
//!     qp.handle(now_ns, Input::EndOfBatch, memory);
//!     loop {
//!         batch.clear();
//!         if qp.poll_transmit(now_ns, memory, batch) == 0 {
//!             break;
//!         }
//!         for packet in batch.packets() {
//!             let _to_socket = (packet.header(), batch.pieces(packet), packet.pad_bytes());
//!         }
//!     }
//!     while let Some(completion) = qp.poll_completion() {
//!         println!("{completion:?}");
//!     }
//!     qp.next_timeout()
//! }
//! ```
//!
//! Nothing here opens a socket, reads a clock or draws a random number. The only allocations per
//! packet are copies of packets that arrive out of order under selective repeat.
#![forbid(unsafe_code)]

mod completion;
mod config;
mod counters;
mod input;
mod memory;
mod pacing;
pub mod pcap;
pub mod psn;
mod qp;
mod recovery;
mod requester;
mod responder;
mod timers;
mod transmit;
mod unreliable;
pub mod wire;
mod wqe;

pub use catchment_verbs_types::timer::ack_timeout;
pub use catchment_verbs_types::{
    Destination, GRH_BYTES, Limits, ModifyError, Payload, PostFailure, QpState, RecvWr, RemoteAddr,
    SendOp, SendWr, Service, Sge, Success, WcOpcode, WcStatus,
};
pub use completion::{Completion, Queue};
pub use config::{Config, InitAttr, Recovery, RtrAttr, RtsAttr, WriteLayout};
pub use counters::Counters;
pub use input::{Arrival, Input};
pub use memory::{AccessError, AtomicOp, Memory, RemoteAccess};
pub use pacing::PacingConfig;
pub use psn::Psn;
pub use qp::Qp;
pub use transmit::{OutPacket, Piece, TransmitBatch};
pub use wqe::{RecvWqe, SendWqe};
