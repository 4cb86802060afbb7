//! What the two ends of a tunnel say before the queue pair carries frames, and beside it: one JSON object a
//! message. `docs/spec/tunnel.md` describes it.
use catchment_channel::card::CardError;
use catchment_channel::{Card, MAX_BLOCKS, Mode};
use catchment_session::host::Host;
use catchment_session::message::{ProviderOffer, SessionPath, WhyNot};
use catchment_session::names::{is_service, printable};
use catchment_verbs::{Gid, PacketKey};
use serde::{Deserialize, Serialize};

/// The version of this protocol. Others are refused.
pub const VERSION: u32 = 1;
/// The label of the TLS exporter.
pub const LABEL: &[u8] = b"EXPORTER-catchment-tunnel";
/// Most bytes of a message.
pub const MESSAGE_BYTES: usize = 64 << 10;
/// Windows that an end may have, in bytes.
pub const WINDOWS: std::ops::RangeInclusive<u32> = 4 << 10..=64 << 20;
/// Leases that an end may have, in ms.
pub const LEASES_MS: std::ops::RangeInclusive<u32> = 100..=600_000;
/// Most bytes of the slots of a channel that an end takes part in.
const SLOTS_BYTES: u64 = 256 << 20;
/// Most providers that one side lists.
const MOST_PROVIDERS: usize = 16;

/// An end's queue pair and memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndCard {
    /// The 72 bytes of `docs/spec/tunnel.md`, as hexadecimal digits.
    pub card: String,
    /// The key of its packets, as 32 hexadecimal digits, where they are authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_key: Option<String>,
}

impl EndCard {
    /// Writes a card.
    #[must_use]
    pub fn of(card: &Card) -> Self {
        let key = card.endpoint.net.and_then(|net| net.key);
        Self { card: card.to_string(), packet_key: key.map(|key| Gid(key.0).to_string()) }
    }

    /// Reads a card, with a path MTU of at most what was agreed on.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&self, path_mtu: Option<u32>) -> Result<Card, String> {
        let mut card: Card = self.card.parse().map_err(|error: CardError| error.to_string())?;
        let slots = u64::from(card.blocks) * u64::from(card.payload_bytes);
        if !(1..=MAX_BLOCKS).contains(&card.blocks) || slots > SLOTS_BYTES {
            let (blocks, bytes) = (card.blocks, card.payload_bytes);
            return Err(format!("{blocks} slots of {bytes} bytes are out of range"));
        }
        if let Some(net) = &mut card.endpoint.net {
            net.path_mtu = net.path_mtu.min(path_mtu.unwrap_or(u32::MAX));
            let key = self.packet_key.as_deref().map(str::parse::<Gid>).transpose();
            net.key = key
                .map_err(|_| "a packet key that is not 32 hexadecimal digits")?
                .map(|key| PacketKey(key.0));
        }
        Ok(card)
    }
}

/// What an end wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// Name and version of the software, informative.
    pub software: String,
    /// Where the end with the clients runs.
    pub host: Host,
    /// The service that its clients are for.
    pub service: String,
    /// The providers that it can use, in order of preference.
    pub providers: Vec<ProviderOffer>,
    /// Those that it cannot, and why.
    pub missing: Vec<WhyNot>,
    /// Bytes of a stream that it takes before they are consumed.
    pub window_bytes: u32,
    /// Most streams at a time.
    pub streams: u32,
    /// It takes packets that are not authenticated although the session is in TLS.
    pub insecure: bool,
    /// How messages are to travel. Ends that are older than modes have none.
    #[serde(default, skip_serializing_if = "is_default", with = "mode_name")]
    pub mode: Mode,
}

/// Returns whether a mode is that of ends that know none.
fn is_default(mode: &Mode) -> bool {
    *mode == Mode::default()
}

/// A mode by its name.
mod mode_name {
    use catchment_channel::Mode;
    use catchment_session::names::printable;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(mode: &Mode, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(mode.name())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Mode, D::Error> {
        let name = String::deserialize(from)?;
        let named = |error| D::Error::custom(format!("mode {:?}: {error}", printable(&name, 32)));
        name.parse().map_err(named)
    }
}

/// What the other end makes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// Name and version of the software, informative.
    pub software: String,
    /// The chosen path: its source is the end with the clients.
    pub path: SessionPath,
    /// Why that one.
    pub reason: String,
    /// The queue pair; its slots are the shape of the channel, at both ends.
    pub end: EndCard,
    /// Bytes of a stream that it takes before they are consumed.
    pub window_bytes: u32,
    /// Streams at a time: not more than were asked for.
    pub streams: u32,
    /// After so long without a message an end is gone.
    pub lease_ms: u32,
    /// How messages travel: as the other end asked.
    #[serde(default, skip_serializing_if = "is_default", with = "mode_name")]
    pub mode: Mode,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Message {
    /// The first, of the end with the clients.
    Hello(Hello),
    /// Its answer.
    Welcome(Welcome),
    /// The queue pair of the end with the clients.
    Connect(EndCard),
    /// The other end is connected: frames may be sent.
    Ready {},
    /// Keeps the lease.
    Ping {},
    /// The end of the session, in place of any other message: why, and whether another try may succeed.
    Refused {
        /// Why, for people.
        reason: String,
        /// Whether another try may succeed.
        transient: bool,
    },
    /// The sender ends.
    Goodbye {},
}

impl Message {
    /// Returns the bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // None of them has a number that JSON does not have.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct First {
            version: u64,
        }
        // Another version may have other members: which one it is says more than what is wrong with them.
        if let Ok(First { version }) = serde_json::from_slice(bytes)
            && version != u64::from(VERSION)
        {
            return Err(format!(
                "the other end speaks version {version} of the protocol of tunnels, this one {VERSION}: update \
                 the older one"
            ));
        }
        let message = serde_json::from_slice(bytes);
        let message: Self = message.map_err(|error| {
            format!("a message that cannot be read: {}", printable(&error.to_string(), 256))
        })?;
        message.check()?;
        Ok(message)
    }

    fn check(&self) -> Result<(), String> {
        let demand = |good: bool, what: &str, seen: &dyn std::fmt::Display| {
            if good {
                Ok(())
            } else {
                Err(format!("{what} is out of range: {}", printable(&seen.to_string(), 80)))
            }
        };
        let window = |bytes: u32| demand(WINDOWS.contains(&bytes), "window_bytes", &bytes);
        let streams = |count: u32| {
            demand((1..=crate::mux::MOST_STREAMS).contains(&count), "number of streams", &count)
        };
        match self {
            Self::Hello(hello) => {
                demand(is_service(&hello.service), "name of a service", &hello.service)?;
                let listed = hello.providers.len().max(hello.missing.len());
                demand(listed <= MOST_PROVIDERS, "number of providers", &listed)?;
                window(hello.window_bytes)?;
                streams(hello.streams)
            }
            Self::Welcome(welcome) => {
                demand(LEASES_MS.contains(&welcome.lease_ms), "lease_ms", &welcome.lease_ms)?;
                window(welcome.window_bytes)?;
                streams(welcome.streams)
            }
            Self::Connect(_)
            | Self::Ready {}
            | Self::Ping {}
            | Self::Refused { .. }
            | Self::Goodbye {} => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_channel::RemoteMemory;
    use catchment_verbs::{Endpoint, NetEnd};
    use proptest::prelude::*;

    fn card() -> Card {
        let net = NetEnd { key: Some(PacketKey([7; 16])), ..NetEnd::of_rnic(4096) };
        Card {
            endpoint: Endpoint { gid: Gid([1; 16]), qpn: 5, psn: 6, net: Some(net) },
            memory: RemoteMemory { addr: 4096, rkey: 9, bytes: 1 << 20 },
            blocks: 8,
            payload_bytes: 4096,
        }
    }

    #[test]
    fn a_card_reads_back_with_its_key_and_the_agreed_path_mtu() {
        let mut agreed = card();
        let end = EndCard::of(&agreed);
        assert_eq!(end.read(None), Ok(agreed));
        agreed.endpoint.net = agreed.endpoint.net.map(|net| NetEnd { path_mtu: 1024, ..net });
        assert_eq!(end.read(Some(1024)), Ok(agreed));
    }

    #[test]
    fn a_wrong_card_is_refused_with_what_is_wrong() {
        let good = EndCard::of(&card());
        let wrong = |card: String| EndCard { card, ..good.clone() }.read(None).unwrap_err();
        assert!(wrong(good.card[2..].to_owned()).contains("a card of 142 characters"));
        assert!(wrong(format!("+1{}", &good.card[2..])).contains("hexadecimal digits"));
        assert!(wrong(format!("00{}", &good.card[2..])).contains("another protocol"));
        let huge = EndCard::of(&Card { blocks: 30_000, payload_bytes: 1 << 20, ..card() });
        assert!(huge.read(None).unwrap_err().contains("out of range"));
    }

    #[test]
    fn another_version_is_named_whatever_else_it_has() {
        let refused = Message::decode(br#"{"type":"hello","version":2,"new":1}"#).unwrap_err();
        assert!(refused.contains("version 2"), "{refused}");
        let refused = Message::decode(br#"{"type":"hello"}"#).unwrap_err();
        assert!(refused.contains("cannot be read"), "{refused}");
    }

    /// An end that is older than modes has no such member, takes none, and speaks that of today.
    #[test]
    fn a_mode_is_told_unless_it_is_that_of_older_ends() {
        let mut welcome = Welcome {
            software: String::new(),
            path: SessionPath {
                source: "shm".to_owned(),
                source_gid: Gid([1; 16]),
                collector: "shm".to_owned(),
                path_mtu: None,
            },
            reason: String::new(),
            end: EndCard::of(&card()),
            window_bytes: 4096,
            streams: 1,
            lease_ms: 1000,
            mode: Mode::default(),
        };
        for mode in Mode::ALL {
            welcome.mode = mode;
            let bytes = Message::Welcome(welcome.clone()).encode();
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert_eq!(text.contains("\"mode\""), mode != Mode::WriteImm, "{text}");
            assert_eq!(Message::decode(&bytes), Ok(Message::Welcome(welcome.clone())));
            let other = text.replace(&format!("\"mode\":\"{mode}\""), "\"mode\":\"dma\"");
            if other != text {
                let refused = Message::decode(other.as_bytes()).unwrap_err();
                assert!(
                    refused.contains("mode \"dma\"") && refused.contains("write-imm"),
                    "{refused}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Message::decode(&bytes).is_err());
        }
    }
}
