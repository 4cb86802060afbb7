//! Permission to send: a hook for a controller that sets rates, pauses and priorities.
//!
//! A [`Permit`] is given to a sender when it is made ([`Sender::with_permit`](crate::Sender::with_permit))
//! and asked before every claim, on the claiming thread. A sender without one checks an `Option` that
//! is `None`, and nothing else.
//!
//! A sender that was told to wait gets [`ReserveError::Paused`](crate::ReserveError::Paused) and
//! sleeps as if no block were free. When the answer may have changed, the controller calls
//! [`Sender::wake`](crate::Sender::wake): sleepers on the doorbell ask again at once, and where a
//! provider has no doorbell they ask with their next backoff.
use std::fmt;

/// What a claim is for.
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
    /// Never, with the reason as the application is to read it.
    Refuse(&'static str),
}

/// Decides who may claim a block.
///
/// It is asked on the hot path: no lock, no allocation, no system call. It must be asked again for
/// every block; nothing is remembered but the last answer of a stream, for its sleepers.
pub trait Permit: fmt::Debug + Send + Sync {
    /// Decides on one claim. [`Decision::Go`] counts as used, unless [`Permit::unused`] follows.
    fn decide(&self, request: PermitRequest) -> Decision;

    /// Takes back a [`Decision::Go`] whose claim found no free block. A permit that counts bytes or
    /// blocks gives them back here; others need nothing.
    fn unused(&self, request: PermitRequest) {
        let _ = request;
    }
}
