//! The verbs vocabulary: providers, queue pairs, memory regions, work requests and completions.
//!
//! The crate has no provider of its own and does no I/O beyond mapping memory and event counters to
//! sleep on. It defines what a provider must do ([`Provider`], [`Context`], [`Pd`], [`Mr`], [`Cq`],
//! [`Qp`], [`Ah`]) and the plain types exchanged between an application and a provider. The terms
//! are those of the InfiniBand architecture specification (IBTA) and of `libibverbs`.
//!
//! # Safe posting
//!
//! Registered memory is always a [`mem::Region`]. It is never seen as `&[u8]`: every access goes
//! through [`mem::VolatileSlice`], because another process or a network adapter may write at any
//! time. A provider keeps a region mapped until the last request that names it has completed, even
//! when the [`Mr`] is dropped earlier. So [`Qp::post_send`] is safe: the worst that a faulty
//! program can do is to send bytes that it was still changing.
//!
//! # Services
//!
//! A queue pair has a [`Service`]: reliable connection (RC, which every provider has), unreliable
//! connection (UC) or unreliable datagram (UD). [`Caps::services`] lists what a device offers.
//! Services differ in the transitions of their states ([`QpTransition`]), in the operations they
//! accept ([`SendOp`]), and in that a receive of UD begins with [`GRH_BYTES`] of network header.
//!
//! # Extensions
//!
//! Two capabilities go beyond verbs, and [`Caps`] has a flag for each: `direct`
//! ([`Qp::map_remote`]: fill the peer's memory in place) and `doorbell` ([`Mr::watch`]: sleep until
//! a peer has written).
pub mod bias;
mod caps;
mod error;
pub mod event;
pub mod mem;
mod object;
pub mod provider;
pub mod sync;
pub mod wait;
mod watch;

pub use caps::{Caps, DeviceInfo, ProviderInfo, Wire};
pub use catchment_verbs_types::*;
pub use error::{CqError, RemoteMapError, VerbsError};
pub use object::{Ah, AsyncEvent, CompletionChannel, Context, Cq, Mr, Pd, Provider, Qp, QpInit};
pub use watch::{RemoteBell, RemoteWindow, Wake, Watch};
