//! What the agents of two hosts say: one message a frame. `docs/spec/agent.md` describes it.
//!
//! A frame that begins with `{` is a JSON object, [`PeerMessage`]; any other is a message of the rounds
//! ([`drum::Message`](catchment_control::drum::Message)).
use crate::services::CARD_BYTES;
use crate::slot::SLOT_BYTES;
use catchment_control::drum::{Message as Round, WireError};
use catchment_session::names::{is_service, printable};
use catchment_verbs::{Access, Endpoint};
use serde::{Deserialize, Serialize};

/// The version of this protocol. Others are refused.
pub const VERSION: u32 = 6;
/// The label of the TLS exporter.
pub const LABEL: &[u8] = b"EXPORTER-catchment-agents";
/// Most bytes of a JSON object.
pub const MESSAGE_BYTES: usize = 16 << 10;
/// Bytes of the slots of an agent: one for offers, one for answers.
pub const SLOTS_BYTES: u64 = 2 * SLOT_BYTES as u64;
/// Most bytes of a frame: a message of the rounds with as many entries as can be counted.
pub const FRAME_BYTES: usize = 40 + 32 * u16::MAX as usize;
/// Most queue pairs that one message asks about.
pub const MOST_ASKED: usize = 256;
/// Longest name of an agent, in characters.
pub const NAME_CHARS: usize = 64;
/// Hexadecimal digits of the digest of a device's address.
pub const DEVICE_DIGITS: usize = 32;
/// Leases that agents may have, in ms.
pub const LEASES_MS: std::ops::RangeInclusive<u32> = 100..=60_000;
/// Fairness that agents may have.
pub const ALPHAS: std::ops::RangeInclusive<f64> = 0.1..=10.0;

/// Who an agent is. Both sides of a session must agree about `alpha`, `lease_ms` and `rates`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// Its name.
    pub name: String,
    /// The number of its host.
    pub host: u32,
    /// The number of its life: higher in every one. The incarnation of its messages of rounds.
    pub epoch: u32,
    /// A digest of its device's address: the address itself lets in whoever knows it.
    pub device: String,
    /// Fairness.
    pub alpha: f64,
    /// How long it may be silent, and how long what it grants holds without news.
    pub lease_ms: u32,
    /// It agrees on rates; otherwise on shared queue pairs only. Left out where it does.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub rates: bool,
}

pub(crate) const fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_true(value: &bool) -> bool {
    *value
}

/// A region of an application, for a peer's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteRegion {
    /// Its key on shared queue pairs.
    pub rkey: u32,
    /// Address of the first byte.
    pub addr: u64,
    /// Length.
    pub bytes: u64,
    /// Bits of [`Access`]: what its own rights and those of the queue pair both allow.
    pub access: u32,
}

impl RemoteRegion {
    fn check(&self) -> Result<(), FrameError> {
        let fits = self.addr.checked_add(self.bytes).is_some();
        demand("length of a region", fits, self.bytes)?;
        let access = Access::from_bits(self.access);
        demand("access", access.is_some_and(|access| Access::REMOTE.contains(access)), self.access)
    }
}

/// Where who hears it may write messages of the rounds, once it is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slots {
    /// The sender's number of these: another one each time.
    pub number: u32,
    /// The queue pair that is for them alone, as [`Endpoint`] prints it.
    pub endpoint: String,
    /// Their key.
    pub rkey: u32,
    /// Address of the first one.
    pub addr: u64,
    /// Length of all: [`SLOTS_BYTES`] or more.
    pub bytes: u64,
}

impl Slots {
    fn check(&self) -> Result<(), FrameError> {
        demand("endpoint", self.endpoint.parse::<Endpoint>().is_ok(), &self.endpoint)?;
        let fits = self.addr.checked_add(self.bytes).is_some() && self.bytes >= SLOTS_BYTES;
        demand("length of slots", fits, self.bytes)
    }
}

/// A message that is no message of the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PeerMessage {
    /// The first message, of the agent that connects.
    Hello(Hello),
    /// Its answer.
    Welcome(Hello),
    /// The end of the session, in place of any other message.
    Refused {
        /// Why, for people.
        reason: String,
        /// Whether another try may succeed.
        transient: bool,
    },
    /// Asks which applications have these queue pairs of the peer's device.
    Where {
        /// Their numbers, at most [`MOST_ASKED`].
        queue_pairs: Vec<u32>,
    },
    /// Its answer.
    There {
        /// Their numbers, and the application of each, if it has one.
        queue_pairs: Vec<(u32, Option<u32>)>,
    },
    /// An application of the sender is gone.
    Left {
        /// Its number.
        application: u32,
    },
    /// A queue pair is to be connected with one of the peer; may the two share queue pairs with others?
    Share {
        /// Its number at the sender.
        queue_pair: u32,
        /// The peer's number of the other.
        to: u32,
    },
    /// Its answer. After a yes the sender waits for its own application to connect the same two.
    Shared {
        /// The number at the sender.
        queue_pair: u32,
        /// At the peer, which asked.
        to: u32,
        /// They share.
        yes: bool,
    },
    /// The sender has nothing of this connection on shared queue pairs any more, and gives nothing to them.
    Apart {
        /// Its number at the sender.
        queue_pair: u32,
        /// At the peer.
        to: u32,
        /// The peer said so first.
        answer: bool,
    },
    /// Both ends have said Apart, and the receives of this one are on its own: the peer may send over its own.
    Alone {
        /// Its number at the sender.
        queue_pair: u32,
        /// At the peer.
        to: u32,
    },
    /// Asks for a region by the key that an application knows.
    Key {
        /// The queue pair that uses it.
        queue_pair: u32,
        /// The one that it is connected with, at the peer.
        to: u32,
        /// The key.
        rkey: u32,
    },
    /// Its answer.
    Region {
        /// The queue pair at the sender.
        queue_pair: u32,
        /// The one that uses it.
        to: u32,
        /// The key that was asked for.
        rkey: u32,
        /// The region; none if that connection reaches none by this key.
        region: Option<RemoteRegion>,
    },
    /// A region that the peer was told of ends, once the peer says that nothing more of it is on its way.
    Revoke {
        /// The key that the peer asked for.
        rkey: u32,
    },
    /// Its answer.
    Revoked {
        /// The key.
        rkey: u32,
    },
    /// An end of a shared queue pair: of the lower host first, then, connected with it, that of the other.
    QueuePair {
        /// The lower host's number of it, from 0; none is used twice in a session's two epochs.
        number: u32,
        /// As [`Endpoint`] prints it.
        endpoint: String,
    },
    /// The lower host has connected its end, too.
    Ready {
        /// Its number.
        number: u32,
    },
    /// The sender's end of a shared queue pair is gone.
    Lost {
        /// Its number.
        number: u32,
        /// The peer said so first.
        answer: bool,
    },
    /// Slots for messages of the rounds, and where they are.
    Slots(Slots),
    /// The sender has connected its end with that of these.
    SlotsReady {
        /// The peer's number of them.
        number: u32,
    },
    /// An application of the sender calls a service of the peer.
    Call {
        /// The sender's number of it.
        call: u64,
        /// The service.
        service: String,
        /// The application, by its name in the sender's policy.
        application: String,
        /// For the service.
        card: String,
    },
    /// Its answer.
    Called {
        /// The peer's number of the call.
        call: u64,
        /// For the caller; none: refused.
        card: Option<String>,
        /// Why, for people.
        reason: String,
    },
    /// Keeps the lease.
    Ping {},
    /// The agent ends: it has stopped sending.
    Goodbye {},
}

/// What a frame holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// A message.
    Message(PeerMessage),
    /// A message of the rounds.
    Round(Round),
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Neither kind: what the reader of rounds said.
    #[error("a message of a round: {0}")]
    Round(#[from] WireError),
    /// Too long.
    #[error("a message of {0} bytes: at most {MESSAGE_BYTES} are allowed")]
    TooLong(usize),
    /// Not JSON, or not with the members of its type: what the reader of JSON said.
    #[error("a message that cannot be read: {0}")]
    Json(String),
    /// Another version of the protocol.
    #[error(
        "the peer speaks version {0} of the protocol between agents, this agent {VERSION}: update the older one"
    )]
    Version(u64),
    /// A member is outside of its range.
    #[error("{what} is out of range: {seen}")]
    Range {
        /// Which one.
        what: &'static str,
        /// What it is, escaped and cut.
        seen: String,
    },
}

fn wrong(error: &serde_json::Error) -> FrameError {
    FrameError::Json(printable(&error.to_string(), 256))
}

fn demand(what: &'static str, good: bool, seen: impl ToString) -> Result<(), FrameError> {
    if good {
        return Ok(());
    }
    Err(FrameError::Range { what, seen: printable(&seen.to_string(), 80) })
}

fn asked(count: usize) -> Result<(), FrameError> {
    demand("number of queue pairs", count <= MOST_ASKED, count)
}

impl Hello {
    fn check(&self) -> Result<(), FrameError> {
        let chars = self.name.chars().count();
        let plain = self.name.chars().all(|c| !c.is_control()) && (1..=NAME_CHARS).contains(&chars);
        demand("name", plain, &self.name)?;
        demand("epoch", self.epoch > 0, self.epoch)?;
        let digits = self.device.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        demand("device", digits && self.device.len() == DEVICE_DIGITS, &self.device)?;
        demand("alpha", ALPHAS.contains(&self.alpha), self.alpha)?;
        demand("lease_ms", LEASES_MS.contains(&self.lease_ms), self.lease_ms)
    }

    /// Returns why an agent that says this and one that says `other` have no common optimum.
    #[must_use]
    pub fn misfit(&self, other: &Self) -> Option<String> {
        let differs = |what, ours: f64, theirs: f64| {
            format!("{what} is {ours} here and {theirs} there: give both agents the same")
        };
        if self.host == other.host {
            let host = self.host;
            return Some(format!("both hosts have the number {host}: give one another \"host\""));
        }
        if self.alpha.to_bits() != other.alpha.to_bits() {
            return Some(differs("alpha", self.alpha, other.alpha));
        }
        if self.rates != other.rates {
            let who = if self.rates {
                "this agent agrees on rates and the other does not"
            } else {
                "the other agent agrees on rates and this one does not"
            };
            return Some(format!("{who}: give both the same \"mode\""));
        }
        let [ours, theirs] = [self, other].map(|hello| f64::from(hello.lease_ms));
        (self.lease_ms != other.lease_ms).then(|| differs("lease_ms", ours, theirs))
    }
}

/// Returns the version that a first message names, whatever else is in it.
fn version_of(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct First {
        version: u64,
    }
    serde_json::from_slice(bytes).ok().map(|first: First| first.version)
}

impl PeerMessage {
    /// Returns the bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Numbers that JSON does not have are refused before they get here.
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        if bytes.len() > MESSAGE_BYTES {
            return Err(FrameError::TooLong(bytes.len()));
        }
        // Another version may have other members: which one it is says more than what is wrong with them.
        if let Some(version) = version_of(bytes).filter(|version| *version != u64::from(VERSION)) {
            return Err(FrameError::Version(version));
        }
        let message: Self = serde_json::from_slice(bytes).map_err(|error| wrong(&error))?;
        match &message {
            Self::Hello(hello) | Self::Welcome(hello) => hello.check()?,
            Self::Refused { reason, .. } => {
                demand("reason", reason.chars().count() <= 1024, reason)?;
            }
            Self::Call { service, application, card, .. } => {
                demand("service", is_service(service), service)?;
                demand("application", application.chars().count() <= 256, application)?;
                demand("card", card.len() <= CARD_BYTES, card)?;
            }
            Self::Called { card, reason, .. } => {
                let card = card.as_deref().unwrap_or_default();
                demand("card", card.len() <= CARD_BYTES, card)?;
                demand("reason", reason.chars().count() <= 1024, reason)?;
            }
            Self::Where { queue_pairs } => asked(queue_pairs.len())?,
            Self::There { queue_pairs } => asked(queue_pairs.len())?,
            Self::Region { region, .. } => region.as_ref().map_or(Ok(()), RemoteRegion::check)?,
            Self::Slots(slots) => slots.check()?,
            Self::QueuePair { endpoint, .. } => {
                demand("endpoint", endpoint.parse::<Endpoint>().is_ok(), endpoint)?;
            }
            Self::Left { .. }
            | Self::Share { .. }
            | Self::Shared { .. }
            | Self::Apart { .. }
            | Self::Alone { .. }
            | Self::Key { .. }
            | Self::Revoke { .. }
            | Self::Revoked { .. }
            | Self::Ready { .. }
            | Self::Lost { .. }
            | Self::SlotsReady { .. }
            | Self::Ping {}
            | Self::Goodbye {} => {}
        }
        Ok(message)
    }
}

impl Frame {
    /// Reads the bytes of a frame.
    ///
    /// # Errors
    /// [`FrameError`]: nothing of it was taken.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        if bytes.first() == Some(&b'{') {
            return PeerMessage::decode(bytes).map(Self::Message);
        }
        Ok(Self::Round(Round::decode(bytes)?))
    }
}

/// Returns a message of a round if it is of the life that the session is with.
///
/// # Errors
/// The reason for which the session ends.
pub(super) fn of_epoch(round: Round, epoch: u32) -> Result<Round, String> {
    let named = round.header().incarnation;
    if named == epoch {
        return Ok(round);
    }
    Err(format!("a message of epoch {named} in a session of epoch {epoch}"))
}
