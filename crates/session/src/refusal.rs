//! Why a session does not begin, or ends: a code for programs, a reason and a remedy for operators.
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Code of a refusal. `docs/spec/session.md` has the table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{}", self.as_str())]
#[non_exhaustive]
pub enum RefusalCode {
    /// Too many unfinished handshakes or sessions at this moment.
    Busy,
    /// No protocol version that both sides speak.
    ProtocolVersion,
    /// Bytes that are not a message, or a field out of its range.
    BadMessage,
    /// A well-formed message that the state does not allow.
    UnexpectedMessage,
    /// A message with another session's epoch.
    WrongEpoch,
    /// A stream number unknown in this session, repeated in a list, or missing from it.
    UnknownStream,
    /// A `first_packet` below what the collector has, or an end below the beginning.
    BadResume,
    /// The same device name twice in one Hello.
    DuplicateDevice,
    /// Another live source sends this device.
    DeviceInUse,
    /// No pair of providers can connect the two peers.
    NoPath,
    /// The chosen path does not work.
    PathFailed,
    /// The requested or offered ring is impossible.
    BadRing,
    /// Memory, disk or another resource is exhausted.
    NoResource,
    /// The peer may not do this.
    NotAllowed,
    /// A block is not what its source committed: the session begins again where it was.
    Damaged,
    /// The peer took too long.
    Timeout,
    /// A later attempt of the same source process took its devices over.
    Superseded,
    /// The collector or source is shutting down.
    ShuttingDown,
    /// A bug of the side that refuses.
    Internal,
    /// A code unknown to this version.
    Other(String),
}

use RefusalCode::{
    BadMessage, BadResume, BadRing, Busy, Damaged, DeviceInUse, DuplicateDevice, Internal, NoPath,
    NoResource, NotAllowed, Other, PathFailed, ProtocolVersion, ShuttingDown, Superseded, Timeout,
    UnexpectedMessage, UnknownStream, WrongEpoch,
};

/// Every known code with its text and the shortest wait before a retry (`None`: a retry cannot
/// succeed until the configuration changes).
static TABLE: [(RefusalCode, &str, Option<u32>); 19] = [
    (Busy, "busy", Some(250)),
    (ProtocolVersion, "protocol_version", None),
    (BadMessage, "bad_message", None),
    (UnexpectedMessage, "unexpected_message", None),
    (WrongEpoch, "wrong_epoch", Some(0)),
    (UnknownStream, "unknown_stream", None),
    (BadResume, "bad_resume", None),
    (DuplicateDevice, "duplicate_device", None),
    (DeviceInUse, "device_in_use", Some(1_000)),
    (NoPath, "no_path", None),
    (PathFailed, "path_failed", Some(0)),
    (BadRing, "bad_ring", None),
    (NoResource, "no_resource", Some(1_000)),
    (NotAllowed, "not_allowed", None),
    (Damaged, "damaged", Some(0)),
    (Timeout, "timeout", Some(0)),
    (Superseded, "superseded", Some(1_000)),
    (ShuttingDown, "shutting_down", Some(500)),
    (Internal, "internal", Some(1_000)),
];

impl RefusalCode {
    /// Returns the codes that this version knows, in the order of the specification's table.
    pub fn known() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(code, _, _)| code.clone())
    }

    fn row(&self) -> Option<&'static (Self, &'static str, Option<u32>)> {
        TABLE.iter().find(|(code, ..)| code == self)
    }

    /// Returns the text on the wire.
    pub fn as_str(&self) -> &str {
        let Other(text) = self else { return self.label() };
        text
    }

    /// Returns the text as a static label; `other` for codes of later versions.
    pub fn label(&self) -> &'static str {
        self.row().map_or("other", |(_, text, _)| text)
    }

    /// Returns the wait that [`Refusal::new`] sets.
    pub fn retry_after_ms(&self) -> Option<u32> {
        self.row().and_then(|(.., retry)| *retry)
    }

    fn from_text(text: String) -> Self {
        let row = TABLE.iter().find(|(_, known, _)| *known == text);
        row.map_or(Other(text), |(code, _, _)| code.clone())
    }
}

impl Serialize for RefusalCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RefusalCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from_text)
    }
}

/// A refusal, as in the messages Refused and Revoke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("{code}: {reason}; {remedy}")]
pub struct Refusal {
    /// The kind, for programs.
    pub code: RefusalCode,
    /// What was wrong, with the value seen. At most 1,024 characters.
    pub reason: String,
    /// What the receiver's operator can do. At most 1,024 characters.
    pub remedy: String,
    /// Shortest wait before a retry, in milliseconds; `None`: do not retry.
    pub retry_after_ms: Option<u32>,
}

impl Refusal {
    /// Creates a refusal with the default wait of its code. Control characters are escaped and texts
    /// are cut to the limits of the protocol.
    pub fn new(code: RefusalCode, reason: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        let fit = |text: &str| crate::names::fit(text, crate::check::REASON_CHARS_MAX);
        Self {
            retry_after_ms: code.retry_after_ms(),
            reason: fit(reason.as_ref()),
            remedy: fit(remedy.as_ref()),
            code,
        }
    }

    /// Sets another shortest wait, in milliseconds.
    #[must_use]
    pub fn retry_after_ms(mut self, wait_ms: u32) -> Self {
        self.retry_after_ms = Some(wait_ms);
        self
    }

    /// Says that a retry cannot succeed until somebody changes something.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.retry_after_ms = None;
        self
    }

    /// Returns whether a retry cannot succeed until the configuration changes.
    pub fn is_permanent(&self) -> bool {
        self.retry_after_ms.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_code_reads_back_and_an_unknown_one_survives() {
        for code in RefusalCode::known() {
            assert_eq!(RefusalCode::from_text(code.as_str().to_owned()), code);
        }
        let newer = RefusalCode::from_text("moon_phase".to_owned());
        assert_eq!(newer.as_str(), "moon_phase");
        assert!(Refusal::new(newer, "a", "b").is_permanent());
    }

    #[test]
    fn the_specification_lists_every_code_with_its_wait() {
        let spec = include_str!("../../../docs/spec/session.md");
        for code in RefusalCode::known() {
            let wait = code.retry_after_ms().map_or("null".to_owned(), |ms| ms.to_string());
            let row = format!("| `{code}` | {wait}");
            let is_there = [" |", ", or "].iter().any(|end| spec.contains(&format!("{row}{end}")));
            assert!(is_there, "docs/spec/session.md lacks: {row}");
        }
    }

    #[test]
    fn texts_are_made_fit_for_the_wire() {
        let refusal = Refusal::new(Busy, "\u{1b}".repeat(5_000), "x".repeat(5_000));
        assert!(refusal.reason.chars().count() <= 1_024);
        assert_eq!(refusal.remedy.chars().count(), 1_024);
        assert!(!refusal.reason.contains('\u{1b}'));
        assert!(!refusal.is_permanent());
    }
}
