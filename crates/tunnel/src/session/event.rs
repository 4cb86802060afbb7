//! What an end says of itself: with `--json`, one object a line.
use crate::relay::Counters;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Takes events, on a thread of the end. It must not block.
pub type Report = Arc<dyn Fn(TunnelEvent) + Send + Sync>;

/// Something that happened at an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TunnelEvent {
    /// There is a session.
    Connected(Connected),
    /// It ended, and all its connections broke.
    Disconnected {
        /// The other end.
        peer: String,
        /// The service; none at its end.
        service: String,
        /// Why.
        reason: String,
    },
    /// There is no session, and the end tries again. Said once for each reason.
    Waiting {
        /// Where it tries.
        to: String,
        /// Why there is none.
        reason: String,
    },
    /// There is no session, and trying again would change nothing.
    Failed {
        /// Where it tried.
        to: String,
        /// Why.
        reason: String,
    },
    /// An end was turned away.
    Refused {
        /// The other end.
        peer: String,
        /// Why.
        reason: String,
    },
}

/// A session, and how it is protected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connected {
    /// The other end.
    pub peer: String,
    /// The name in its certificate, at the end of the service.
    pub certificate: Option<String>,
    /// The service.
    pub service: String,
    /// The provider of this end.
    pub provider: String,
    /// The provider of the other end.
    pub peer_provider: String,
    /// Why these.
    pub reason: String,
    /// How messages travel: `write-imm`, `write` or `send`.
    pub mode: String,
    /// How the session is protected.
    pub session_protection: String,
    /// How the bytes of connections are.
    pub data_protection: String,
}

/// What an end has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Connections that began.
    pub connections: u64,
    /// Those that are open.
    pub connections_open: u64,
    /// Those that broke.
    pub connections_broken: u64,
    /// Clients that were turned away at once.
    pub clients_turned_away: u64,
    /// Bytes read from programs of this host.
    pub bytes_sent: u64,
    /// Bytes for programs of this host.
    pub bytes_received: u64,
    /// Messages that left by the queue pair.
    pub messages_sent: u64,
    /// Messages that came by it.
    pub messages_received: u64,
}

impl Counters {
    /// Returns what was counted so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            connections: self.connections.load(Relaxed),
            connections_open: self.open.load(Relaxed),
            connections_broken: self.broken.load(Relaxed),
            clients_turned_away: self.turned_away.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            messages_sent: self.messages_sent.load(Relaxed),
            messages_received: self.messages_received.load(Relaxed),
        }
    }
}
