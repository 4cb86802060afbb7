//! Framing: a length of four bytes, most significant first, then that many bytes of JSON.
//!
//! Sans-IO. [`Decoder`] takes bytes as they arrive and never holds more than one message, and of that
//! only what has arrived: an announced length reserves nothing.
use crate::check::Invalid;
use crate::json;
use crate::message::{Message, MessageKind, ProtocolRange, versions_of};
use crate::names::printable;
use crate::refusal::{Refusal, RefusalCode};

/// Bytes of the length before each message.
pub const HEADER_BYTES: usize = 4;
/// Longest message without lists, in bytes of JSON.
pub const SHORT_BYTES_MAX: u32 = 64 << 10;
/// Longest Hello, in bytes of JSON.
pub const HELLO_BYTES_MAX: u32 = 8 << 20;
/// Longest Welcome, Connect, Goodbye or GoodbyeAck, in bytes of JSON. Twice a Hello's, so that
/// every Hello that can be read can be answered.
pub const LONG_BYTES_MAX: u32 = 16 << 20;

/// Initial size of a growing buffer.
const CHUNK_BYTES: usize = 4 << 10;

impl MessageKind {
    /// Longest message of this kind, in bytes of JSON.
    pub fn bytes_max(self) -> u32 {
        match self {
            Self::Hello => HELLO_BYTES_MAX,
            Self::Welcome | Self::Connect | Self::Goodbye | Self::GoodbyeAck => LONG_BYTES_MAX,
            Self::Challenge
            | Self::Proof
            | Self::Refused
            | Self::Ready
            | Self::Ping
            | Self::Pong
            | Self::SourceStats
            | Self::SinkReport
            | Self::Revoke => SHORT_BYTES_MAX,
        }
    }
}

/// A message of ours cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A field is outside of its range.
    #[error("cannot send {kind}: {invalid}")]
    Invalid {
        /// The kind of message.
        kind: MessageKind,
        /// The field.
        invalid: Invalid,
    },
    /// The message is longer than its kind may be.
    #[error(
        "cannot send {kind} of {bytes} bytes: at most {limit} are allowed; use fewer devices or shorter names"
    )]
    TooLong {
        /// The kind of message.
        kind: MessageKind,
        /// Its length in bytes of JSON.
        bytes: usize,
        /// The limit.
        limit: u32,
    },
    /// The message could not be turned into JSON.
    #[error("cannot send {kind}: {detail}")]
    Json {
        /// The kind of message.
        kind: MessageKind,
        /// What the JSON writer said.
        detail: String,
    },
}

/// Appends `message`, length and JSON, to `out`.
///
/// # Errors
/// The message is invalid or too long; `out` is then as it was.
pub fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let kind = message.kind();
    message.check().map_err(|invalid| EncodeError::Invalid { kind, invalid })?;
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let result = serde_json::to_writer(&mut *out, message)
        .map_err(|error| EncodeError::Json { kind, detail: error.to_string() })
        .and_then(|()| fill_length(out, start, kind));
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn fill_length(out: &mut [u8], start: usize, kind: MessageKind) -> Result<(), EncodeError> {
    let bytes = out.len() - start - HEADER_BYTES;
    let limit = kind.bytes_max();
    let length = u32::try_from(bytes).ok().filter(|&length| length <= limit);
    let Some(length) = length else {
        return Err(EncodeError::TooLong { kind, bytes, limit });
    };
    out[start..start + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Bytes from a peer are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The length is 0 or more than allowed.
    #[error(
        "the peer announces a message of {announced} bytes; 2 to {limit} are allowed here{hint}"
    )]
    Length {
        /// The length as announced.
        announced: u32,
        /// The limit at this moment.
        limit: u32,
        /// What the bytes look like.
        hint: Hint,
    },
    /// The connection ended inside a message.
    #[error("the connection ended after {have} of {expected} bytes of a message")]
    Truncated {
        /// Bytes received, the length included.
        have: usize,
        /// Bytes expected, the length included; 4 when the length is incomplete.
        expected: usize,
    },
    /// The text is not UTF-8: the first invalid byte.
    #[error("the message is not UTF-8 from byte {0} on")]
    Utf8(usize),
    /// The text is not a JSON object with a `type`: the JSON reader's error, escaped and cut.
    #[error("the message is not a JSON object with a \"type\": {0}")]
    Json(String),
    /// The value of `type` is unknown: the value, escaped and cut.
    #[error("message type \"{0}\" is unknown")]
    UnknownType(String),
    /// The message does not have the members of its kind.
    #[error("{kind} is malformed: {detail}")]
    Malformed {
        /// The kind of message.
        kind: MessageKind,
        /// What the JSON reader said, escaped and cut.
        detail: String,
    },
    /// A field is outside of its range.
    #[error("{kind} is invalid: {invalid}")]
    Invalid {
        /// The kind of message.
        kind: MessageKind,
        /// The field.
        invalid: Invalid,
    },
    /// The message is longer than its kind may be.
    #[error("{kind} of {bytes} bytes: at most {limit} are allowed")]
    TooLong {
        /// The kind of message.
        kind: MessageKind,
        /// Its length in bytes of JSON.
        bytes: usize,
        /// The limit.
        limit: u32,
    },
    /// The peer and this side have no version in common.
    #[error(
        "the source is {software} and speaks {range}, the collector is {} and speaks {}",
        crate::SOFTWARE,
        ProtocolRange::OURS
    )]
    Protocol {
        /// What the peer speaks.
        range: ProtocolRange,
        /// What it is, escaped and cut.
        software: String,
    },
}

/// What invalid bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[non_exhaustive]
pub enum Hint {
    /// Nothing known.
    #[display("")]
    None,
    /// An HTTP request.
    #[display("; the bytes are HTTP, but this is the port of the session protocol")]
    Http,
    /// A TLS record.
    #[display("; the bytes are TLS, but this side speaks without TLS")]
    Tls,
    /// An SSH banner.
    #[display("; the bytes are SSH, but this is the port of the session protocol")]
    Ssh,
}

impl Hint {
    fn of(header: [u8; HEADER_BYTES]) -> Self {
        match &header {
            b"GET " | b"POST" | b"HEAD" | b"PUT " | b"OPTI" | b"DELE" | b"CONN" | b"PRI "
            | b"HTTP" => Self::Http,
            b"SSH-" => Self::Ssh,
            [0x15..=0x17, 0x03, 0x00..=0x04, _] => Self::Tls,
            _ => Self::None,
        }
    }
}

impl DecodeError {
    /// Returns the refusal for a peer that sent such bytes.
    pub fn refusal(&self) -> Refusal {
        if matches!(self, Self::Length { hint: Hint::Tls, .. }) {
            let remedy = "give --cert, --key and --ca on both sides, or on neither";
            let reason = "the peer speaks TLS, and this side does not";
            return Refusal::new(RefusalCode::BadMessage, reason, remedy);
        }
        let (code, remedy) = match self {
            Self::Protocol { range, .. } if range.max < ProtocolRange::OURS.min => {
                (RefusalCode::ProtocolVersion, "update the source to the collector's version")
            }
            Self::Protocol { .. } => {
                (RefusalCode::ProtocolVersion, "update the collector to the source's version")
            }
            Self::Length { .. }
            | Self::Truncated { .. }
            | Self::Utf8(_)
            | Self::Json(_)
            | Self::UnknownType(_)
            | Self::Malformed { .. }
            | Self::Invalid { .. }
            | Self::TooLong { .. } => {
                (RefusalCode::BadMessage, "send what docs/spec/session.md describes")
            }
        };
        Refusal::new(code, self.to_string(), remedy)
    }
}

/// Reads one message from its JSON text.
///
/// # Errors
/// The bytes are not a message, or a field is outside of its range.
pub fn parse(json: &[u8]) -> Result<Message, DecodeError> {
    let text = std::str::from_utf8(json).map_err(|error| DecodeError::Utf8(error.valid_up_to()))?;
    let tag = json::tag_of(text).map_err(|error| DecodeError::Json(detail(&error)))?;
    let kind = kind_of(&tag)?;
    let (bytes, limit) = (text.len(), kind.bytes_max());
    if bytes > limit as usize {
        return Err(DecodeError::TooLong { kind, bytes, limit });
    }
    let malformed =
        |error: serde_json::Error| DecodeError::Malformed { kind, detail: detail(&error) };
    if kind == MessageKind::Hello {
        let (range, software) = versions_of(text).map_err(malformed)?;
        if ProtocolRange::OURS.common(range).is_none() {
            return Err(DecodeError::Protocol { range, software });
        }
    }
    let message = Message::read(kind, text).map_err(malformed)?;
    message.check().map_err(|invalid| DecodeError::Invalid { kind, invalid })?;
    Ok(message)
}

fn kind_of(tag: &str) -> Result<MessageKind, DecodeError> {
    let known = MessageKind::ALL.iter().copied().find(|kind| kind.as_str() == tag);
    known.ok_or_else(|| DecodeError::UnknownType(printable(tag, 32)))
}

/// Returns the text of a JSON error, which may quote the peer.
fn detail(error: &serde_json::Error) -> String {
    printable(&error.to_string(), 256)
}

/// Cuts a stream of bytes into messages.
#[derive(Debug)]
pub struct Decoder {
    limit: u32,
    header: [u8; HEADER_BYTES],
    header_len: usize,
    /// The part of the message received so far; never beyond the announced length.
    body: Vec<u8>,
    failed: Option<DecodeError>,
}

impl Decoder {
    /// Creates a decoder of messages of at most `limit` bytes of JSON.
    pub fn new(limit: u32) -> Self {
        Self { limit, header: [0; HEADER_BYTES], header_len: 0, body: Vec::new(), failed: None }
    }

    /// Changes the limit. A message that was refused for its length is decoded if it fits now.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Takes bytes from the front of `input` until a message is complete or `input` is empty.
    ///
    /// # Errors
    /// The bytes are not a message. Apart from [`DecodeError::Length`], which [`Decoder::set_limit`]
    /// can lift, every later call fails with the same error: nothing that follows an invalid message
    /// can be trusted.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Message>, DecodeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if !self.take_header(input) {
            return Ok(None);
        }
        let announced = self.announced()?;
        if !self.take_body(input, announced) {
            return Ok(None);
        }
        let parsed = parse(&self.body);
        self.reset();
        parsed.map(Some).inspect_err(|error| {
            self.failed = Some(error.clone());
        })
    }

    /// To be called when the connection has ended.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when it ended inside a message.
    pub fn finish(&self) -> Result<(), DecodeError> {
        let have = self.header_len + self.body.len();
        if have == 0 {
            return Ok(());
        }
        let body = match self.header_len {
            HEADER_BYTES => u32::from_be_bytes(self.header) as usize,
            _ => 0,
        };
        Err(DecodeError::Truncated { have, expected: HEADER_BYTES + body })
    }

    /// Returns the bytes of memory held for the incoming message.
    pub fn held_bytes(&self) -> usize {
        self.body.capacity()
    }

    fn take_header(&mut self, input: &mut &[u8]) -> bool {
        let want = HEADER_BYTES - self.header_len;
        let (now, rest) = input.split_at(want.min(input.len()));
        self.header[self.header_len..self.header_len + now.len()].copy_from_slice(now);
        self.header_len += now.len();
        *input = rest;
        self.header_len == HEADER_BYTES
    }

    fn announced(&self) -> Result<usize, DecodeError> {
        let announced = u32::from_be_bytes(self.header);
        // The shortest JSON object has two bytes.
        if (2..=self.limit).contains(&announced) {
            return Ok(announced as usize);
        }
        Err(DecodeError::Length { announced, limit: self.limit, hint: Hint::of(self.header) })
    }

    fn take_body(&mut self, input: &mut &[u8], announced: usize) -> bool {
        let want = announced - self.body.len();
        let (now, rest) = input.split_at(want.min(input.len()));
        let needed = self.body.len() + now.len();
        if needed > self.body.capacity() {
            let grown = needed.max(2 * self.body.capacity()).max(CHUNK_BYTES);
            self.body.reserve_exact(grown.min(announced) - self.body.len());
        }
        self.body.extend_from_slice(now);
        *input = rest;
        self.body.len() == announced
    }

    /// Prepares for the next message; a large buffer is freed.
    fn reset(&mut self) {
        self.header_len = 0;
        self.body.clear();
        self.body.shrink_to(SHORT_BYTES_MAX as usize);
    }
}

#[cfg(test)]
#[path = "wire_test.rs"]
mod tests;
