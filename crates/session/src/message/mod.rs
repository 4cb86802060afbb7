//! The messages of a session as types. Field by field in `docs/spec/session.md`.
//!
//! A value of these types is not checked yet; [`crate::wire`] checks every message that it reads or
//! writes with [`Message::check`], so a peer's message that reaches the handler is within all limits.
mod hello;
mod running;
mod welcome;

pub(crate) use hello::versions_of;
pub use hello::{
    Challenge, Device, FailedPath, Hello, Policy, Proof, ProtocolRange, ProviderOffer, RingWish,
    SessionPath, WhyNot,
};
pub use running::{
    Goodbye, GoodbyeAck, Ping, Pong, Revoke, SinkReport, SourceStats, StreamDelivered, StreamEnd,
    StreamStats,
};
pub use welcome::{Connect, Ready, Ring, StreamGrant, StreamStart, Welcome};

use crate::refusal::Refusal;
use serde::Serialize;

/// The protocol version that this library speaks.
pub const PROTOCOL_VERSION: u16 = 3;
/// Maximum devices of one source, and so maximum streams of one session.
pub const DEVICES_MAX: usize = 65_536;
/// Maximum offers of a source.
pub const PROVIDERS_MAX: usize = 16;
/// Maximum failed paths that a source reports.
pub const FAILED_MAX: usize = 16;
/// Maximum streams in one [`SourceStats`]; a source with more sends several.
pub const STATS_STREAMS_MAX: usize = 256;

/// Defines the messages: their types, and their names on the wire.
macro_rules! messages {
    ($($kind:ident($message:ty) = $name:literal,)*) => {
        /// One message of the control connection.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[serde(tag = "type")]
        #[allow(missing_docs, reason = "each variant is described at its type")]
        pub enum Message {
            $(#[serde(rename = $name)] $kind($message),)*
        }

        /// The type of a [`Message`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, derive_more::Display)]
        #[display("{}", self.as_str())]
        #[allow(missing_docs, reason = "the same names as in Message")]
        pub enum MessageKind {
            $($kind,)*
        }

        impl MessageKind {
            /// All kinds.
            pub const ALL: &[MessageKind] = &[$(MessageKind::$kind,)*];

            /// Returns the value of `type` on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(MessageKind::$kind => $name,)*
                }
            }
        }

        impl Message {
            /// Returns the type of this message.
            pub fn kind(&self) -> MessageKind {
                match self {
                    $(Message::$kind(_) => MessageKind::$kind,)*
                }
            }

            /// Reads the members of a message of this type.
            pub(crate) fn read(kind: MessageKind, text: &str) -> Result<Self, serde_json::Error> {
                match kind {
                    $(MessageKind::$kind => crate::json::body(text).map(Message::$kind),)*
                }
            }
        }
    };
}

messages! {
    Hello(Hello) = "hello",
    Challenge(Challenge) = "challenge",
    Proof(Proof) = "proof",
    Welcome(Welcome) = "welcome",
    Refused(Refusal) = "refused",
    Connect(Connect) = "connect",
    Ready(Ready) = "ready",
    Ping(Ping) = "ping",
    Pong(Pong) = "pong",
    SourceStats(SourceStats) = "source_stats",
    SinkReport(SinkReport) = "sink_report",
    Revoke(Revoke) = "revoke",
    Goodbye(Goodbye) = "goodbye",
    GoodbyeAck(GoodbyeAck) = "goodbye_ack",
}

impl Message {
    /// Returns the epoch of the message; `None` for those that come before there is one.
    pub fn epoch(&self) -> Option<u32> {
        match self {
            Self::Hello(_) | Self::Challenge(_) | Self::Proof(_) | Self::Refused(_) => None,
            Self::Welcome(message) => Some(message.epoch),
            Self::Connect(message) => Some(message.epoch),
            Self::Ready(message) => Some(message.epoch),
            Self::Ping(message) => Some(message.epoch),
            Self::Pong(message) => Some(message.epoch),
            Self::SourceStats(message) => Some(message.epoch),
            Self::SinkReport(message) => Some(message.epoch),
            Self::Revoke(message) => Some(message.epoch),
            Self::Goodbye(message) => Some(message.epoch),
            Self::GoodbyeAck(message) => Some(message.epoch),
        }
    }
}
