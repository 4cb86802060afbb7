//! libibverbs, as safe objects. The only module with unsafe code.
//!
//! An object keeps alive what it was made from, so objects are destroyed in the order that verbs ask
//! for, whatever the order of dropping. The library's functions may be called from any thread.
mod library;
mod objects;
mod post;
pub(crate) mod types;

#[cfg(test)]
mod layout;

pub(crate) use library::Library;
pub(crate) use objects::{
    AsyncEvent, Channel, CompletionQueue, Device, Domain, QueuePair, QueuePairInit, Registration,
};
pub(crate) use post::Refused;
