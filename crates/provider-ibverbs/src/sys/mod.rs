//! libibverbs, as safe objects. The only module with unsafe code.
//!
//! An object keeps alive what it was created from, so objects are destroyed in the order that verbs
//! require, whatever the order of dropping. The library's functions may be called from any thread.
mod address;
mod answer;
mod completion;
mod device;
mod extension;
mod library;
mod memory;
mod post;
mod queue_pair;

pub(crate) use catchment_ibverbs_abi as types;

pub(crate) use address::AddressHandle;
pub(crate) use completion::{Channel, CompletionQueue};
pub(crate) use device::{AsyncEvent, Device};
pub(crate) use library::Library;
pub(crate) use memory::{Domain, Registration};
pub(crate) use post::Refused;
pub(crate) use queue_pair::{QueuePair, QueuePairInit};
