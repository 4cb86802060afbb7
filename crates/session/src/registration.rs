//! How a source registers with a transmission controller (`docs/spec/admission.md`, section 0).
//!
//! One TCP connection carries one [`Request`] and its [`Answer`], then ends. Grants come by UDP, at the
//! port of the same number, with keys from here.
use crate::SOFTWARE;
use crate::io::{Address, ClientSecurity, ConnectError, Peer, SecuredStream, StreamError};
use crate::names::{DeviceName, printable};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The label for which both ends of the TLS connection export the root of their keys.
pub const LABEL: &[u8] = b"EXPORTER-catchment-admission";
/// What this module speaks.
pub const VERSION: u32 = 1;
/// Longest request and answer, in bytes of JSON.
pub const MESSAGE_BYTES_MAX: usize = 2 << 20;
/// Devices of one source.
pub const DEVICES_MAX: usize = 4096;
/// Longest name of a class, and of a collector.
pub const NAME_CHARS_MAX: usize = 256;
/// Time in which a controller answers what [`ask_blocking`] asks.
pub const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Characters of a refusal that are shown.
const REASON_CHARS: usize = 512;
/// Bytes of a root.
pub const ROOT_BYTES: usize = 32;

/// What somebody wants of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// To be granted rights to send.
    Register(Register),
    /// To know how it stands.
    Status {},
    /// To know what the streams of this device wait for, one of each source that has it.
    Explain {
        /// Its name.
        device: DeviceName,
    },
    /// That datagrams come and go as messages of this connection from now on ([`carried`](crate::carried)).
    Carry {},
}

/// A source, and what it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// [`VERSION`].
    pub version: u32,
    /// Name and version of the software.
    pub software: String,
    /// Drawn by the process at its start: whoever registers again with it is the same one.
    pub process: Secret<16>,
    /// The highest term of a controller that it knows; 0 for none.
    pub term: u32,
    /// Where its frames go, as it was told: `HOST:PORT`.
    pub collector: String,
    /// Its devices; grants name them by their place here.
    pub devices: Vec<RegisteredDevice>,
    /// A controller that stands by is to know it too. One of an earlier version refuses the member.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
}

/// A device that wants to be granted rights to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisteredDevice {
    /// Its name.
    pub name: DeviceName,
    /// The class that it claims; the last of the controller's without it.
    pub class: Option<String>,
    /// From the generation of a frame; the class's without it.
    pub deadline_us: Option<u64>,
    /// The most that it can send; what its path carries without it.
    pub rate_max_bps: Option<u64>,
}

/// What a controller says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Answer {
    /// The source is registered.
    Registered(Registered),
    /// It is not.
    Refused {
        /// Why, and what to do.
        reason: String,
        /// Whether the same request may succeed later.
        transient: bool,
    },
    /// How it stands: docs/reference/cli.md has the members.
    Status {
        /// The status.
        status: serde_json::Value,
    },
    /// What streams wait for: docs/reference/cli.md has the members.
    Explained {
        /// A list.
        streams: serde_json::Value,
    },
    /// Datagrams follow, as messages.
    Carrying {},
}

/// What a source has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registered {
    /// The number that stands in its datagrams.
    pub source: u32,
    /// The controller's term; 0 while it stands by.
    pub term: u32,
    /// The longest window.
    pub lease_ns: u64,
    /// Sending stops at borders of chunks of this size.
    pub chunk_bytes: u64,
    /// At this rate it may send while no controller answers; 0: not at all.
    pub safe_rate_bps: u64,
    /// The root of the keys; only without TLS.
    pub root: Option<Secret<ROOT_BYTES>>,
    /// By device: the class that it has.
    pub classes: Vec<String>,
    /// By device: how urgent its class is; 0 is the most urgent.
    pub ranks: Vec<u8>,
    /// By device: how old a frame may be when it arrives, in microseconds.
    #[serde(default)]
    pub deadlines_us: Vec<u64>,
    /// By device: bits a second of frames of 64 KiB or less that leave without asking; empty if no device has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub small_bps: Vec<u64>,
    /// What is granted and was not sent in time may leave at once as far as the rate gives it in this time: half of what
    /// the shortest queue of the path takes. `None` where no link of the path states its queue; one of an earlier
    /// version refuses the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_burst_ns: Option<u64>,
    /// From when it asked to be registered, a source that sends at its safe rate may go on for so long: nothing is granted
    /// until then. `None` where something may be; one of an earlier version refuses the member, and tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe_ns: Option<u64>,
    /// What is not as it was claimed, for its user.
    pub notes: Vec<String>,
}

/// Bytes that are not shown. As text they are hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Secret<const N: usize>(pub [u8; N]);

impl<const N: usize> std::fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl<const N: usize> Secret<N> {
    /// Draws one.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn random() -> Result<Self, ring::error::Unspecified> {
        let mut bytes = [0; N];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)?;
        Ok(Self(bytes))
    }
}

impl<const N: usize> Serialize for Secret<N> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Hex(&self.0))
    }
}

struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<'de, const N: usize> Deserialize<'de> for Secret<N> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom(format!("not {} hexadecimal digits", 2 * N));
        if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; N];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl Register {
    /// Checks what is not checked by its types.
    ///
    /// # Errors
    /// What is wrong, what was seen, and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("version {} of the registration, this is {VERSION}", self.version));
        }
        if self.devices.is_empty() || self.devices.len() > DEVICES_MAX {
            return Err(format!("{} devices; 1 to {DEVICES_MAX} may register", self.devices.len()));
        }
        let long = |text: &str| text.chars().count() > NAME_CHARS_MAX;
        let classes = self.devices.iter().filter_map(|device| device.class.as_deref());
        if long(&self.collector) || long(&self.software) || classes.clone().any(long) {
            return Err(format!("a name of more than {NAME_CHARS_MAX} characters"));
        }
        if self.devices.iter().any(|device| device.rate_max_bps == Some(0)) {
            return Err("a device with a greatest rate of 0".to_owned());
        }
        Ok(())
    }
}

/// No answer of a controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// It cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It broke off.
    #[error("the controller at {address}: {error}")]
    Stream {
        /// What was dialled.
        address: Address,
        /// What happened.
        error: StreamError,
    },
    /// It does not take this source.
    #[error("the controller at {address} refuses: {reason}")]
    Refused {
        /// What was dialled.
        address: Address,
        /// Why.
        reason: String,
        /// Whether a later attempt may succeed.
        transient: bool,
    },
    /// It answers something else, or has no root.
    #[error("the controller at {address} answers what was not asked")]
    Answer {
        /// What was dialled.
        address: Address,
    },
    /// It did not answer in time.
    #[error("no answer of the controller at {address} within {limit:?}")]
    Timeout {
        /// What was dialled.
        address: Address,
        /// The time that it had.
        limit: Duration,
    },
    /// The system gives no descriptor to ask with.
    #[error("cannot ask: {0}")]
    System(#[from] io::Error),
}

/// Asks a controller from a thread without a runtime, for [`ASK_LIMIT`] at most; returns its answer, and who that is.
///
/// # Errors
/// [`RegisterError`].
pub fn ask_blocking(
    address: &Address,
    security: &ClientSecurity,
    request: &Request,
) -> Result<(Answer, Peer), RegisterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (answer, stream, _) = runtime.block_on(ask(address, security, request, ASK_LIMIT))?;
    Ok((answer, stream.peer().clone()))
}

/// Asks a controller; returns its answer, the stream and when it was asked.
///
/// # Errors
/// [`RegisterError`].
pub async fn ask(
    address: &Address,
    security: &ClientSecurity,
    request: &Request,
    limit: Duration,
) -> Result<(Answer, SecuredStream, Instant), RegisterError> {
    let work = async {
        let mut stream = SecuredStream::connect(address, security, LABEL, limit).await?;
        let asked = Instant::now();
        let broke = |error| RegisterError::Stream { address: address.clone(), error };
        stream.send(request, MESSAGE_BYTES_MAX).await.map_err(broke)?;
        let answer = stream.recv(MESSAGE_BYTES_MAX).await.map_err(broke)?;
        match answer {
            Answer::Refused { reason, transient } => {
                let reason = printable(&reason, REASON_CHARS);
                Err(RegisterError::Refused { address: address.clone(), reason, transient })
            }
            answer @ (Answer::Registered(_)
            | Answer::Status { .. }
            | Answer::Explained { .. }
            | Answer::Carrying {}) => Ok((answer, stream, asked)),
        }
    };
    let timeout = || RegisterError::Timeout { address: address.clone(), limit };
    tokio::time::timeout(limit, Box::pin(work)).await.unwrap_or_else(|_| Err(timeout()))
}

/// A source's registration.
#[derive(Debug)]
pub struct Admitted {
    /// What it was told.
    pub told: Registered,
    /// The root of its keys.
    pub root: [u8; ROOT_BYTES],
    /// Where datagrams go.
    pub to: SocketAddr,
    /// How long a message and its answer take, at most.
    pub round_trip: Duration,
    /// When it asked, just before that was sent.
    pub asked: Instant,
}

/// Registers a source.
///
/// # Errors
/// [`RegisterError`].
pub async fn register(
    address: &Address,
    security: &ClientSecurity,
    register: Register,
    limit: Duration,
) -> Result<Admitted, RegisterError> {
    let devices = register.devices.len();
    let (answer, stream, asked) =
        ask(address, security, &Request::Register(register), limit).await?;
    let wrong = || RegisterError::Answer { address: address.clone() };
    match answer {
        Answer::Registered(registered) => {
            let told = registered.root.as_ref().map(|root| root.0);
            let root = stream.secret().copied().or(told).ok_or_else(wrong)?;
            let Peer::Tcp(to) = *stream.peer() else { return Err(wrong()) };
            let sound = registered.classes.len() == devices
                && registered.lease_ns > 0
                && registered.chunk_bytes > 0;
            if !sound {
                return Err(wrong());
            }
            let connected = stream.round_trip().max(Duration::from_micros(50));
            let round_trip = asked.elapsed().min(connected);
            Ok(Admitted { told: registered, root, to, round_trip, asked })
        }
        Answer::Status { .. }
        | Answer::Explained { .. }
        | Answer::Carrying {}
        | Answer::Refused { .. } => Err(wrong()),
    }
}

impl Register {
    /// Describes this software's source.
    #[must_use]
    pub fn new(process: Secret<16>, collector: String, devices: Vec<RegisteredDevice>) -> Self {
        let software = SOFTWARE.to_owned();
        let (term, standby) = (0, false);
        Self { version: VERSION, software, process, term, collector, devices, standby }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Register {
        let device = RegisteredDevice {
            name: "cam0".parse().unwrap(),
            class: Some("urgent".to_owned()),
            deadline_us: Some(100_000),
            rate_max_bps: None,
        };
        Register::new(Secret([7; 16]), "10.0.0.1:7117".to_owned(), vec![device])
    }

    #[test]
    fn a_registration_is_read_as_it_was_written_and_shows_no_secret() {
        let request = Request::Register(sample());
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        assert!(!format!("{request:?}").contains('7'.to_string().repeat(2).as_str()));
        assert!(!text.contains("standby"), "a controller of an earlier version understands it");
        let unknown = text.replace("\"term\"", "\"extra\":1,\"term\"");
        assert!(serde_json::from_str::<Request>(&unknown).is_err());
        for wrong in ["", "0707", "zz070707070707070707070707070707"] {
            let text = text.replace(&"07".repeat(16), wrong);
            assert!(serde_json::from_str::<Request>(&text).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_source_may_not_say_is_refused_with_what_was_seen() {
        sample().check().unwrap();
        let wrong = |change: fn(&mut Register), part: &str| {
            let mut register = sample();
            change(&mut register);
            let error = register.check().unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        wrong(|register| register.version = 2, "version 2");
        wrong(|register| register.devices.clear(), "0 devices");
        wrong(|register| register.devices = vec![sample().devices[0].clone(); 4097], "4097");
        wrong(|register| register.collector = "x".repeat(300), "256");
        wrong(|register| register.devices[0].rate_max_bps = Some(0), "rate of 0");
    }
}
