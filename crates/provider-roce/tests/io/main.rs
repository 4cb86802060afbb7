//! Packets between real sockets: over loopback, and between two network namespaces.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod loopback;
mod observer;
mod support;
mod veth;
