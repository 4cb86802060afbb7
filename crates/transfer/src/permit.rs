//! Permission to send: a hook for a controller that sets rates, pauses and priorities.
//!
//! A [`Permit`] is given to a sender when it is made ([`Sender::with_permit`](crate::Sender::with_permit))
//! and asked before every claim, on the claiming thread. A sender without one checks an `Option` that
//! is `None`, and nothing else.
//!
//! A sender that must wait gets [`ReserveError::Paused`](crate::ReserveError::Paused) and sleeps as
//! if no block were free. When the answer may have changed, the controller calls
//! [`Sender::wake`](crate::Sender::wake): sleepers on the doorbell ask again at once; where a provider
//! has no doorbell they ask after their backoff.
use std::fmt;

/// A claim that asks for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitRequest {
    /// Stream of the block.
    pub stream: u32,
    /// Payload bytes of the block.
    pub payload_bytes: u32,
}

/// The answer to a [`PermitRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Claim a block now.
    Go,
    /// Not now. Ask again after [`Sender::wake`](crate::Sender::wake), or later.
    Wait,
    /// Never, with the reason for the application.
    Refuse(&'static str),
}

/// Decides which streams may claim a block.
///
/// It is asked on the hot path, for every block: no lock, no allocation, no system call. Only the last
/// answer of a stream is remembered, for its sleepers.
pub trait Permit: fmt::Debug + Send + Sync {
    /// Decides on one claim. [`Decision::Go`] counts as used, unless [`Permit::unused`] follows.
    fn decide(&self, request: PermitRequest) -> Decision;

    /// Takes back a [`Decision::Go`] whose claim found no free block. A permit that counts bytes or
    /// blocks credits them here; others need nothing.
    fn unused(&self, request: PermitRequest) {
        let _ = request;
    }
}
