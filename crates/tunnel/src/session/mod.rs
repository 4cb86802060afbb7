//! The session of two ends: how they find a path, exchange their queue pairs, and learn that the other is gone.
mod client;
mod event;
pub mod message;
mod service;

pub use client::{ClientConfig, ClientEnd};
pub use event::{Report, Totals, TunnelEvent};
pub use service::{ServiceConfig, ServiceEnd};

use crate::frame::HEADER_BYTES;
use crate::mux::Limits;
use crate::relay::{Connected, Local};
use catchment_channel::{Card, Channel, ChannelError, ChannelShape, Mode, Resources};
use catchment_providers::Providers;
use catchment_session::io::{BindError, SecuredStream, StreamReader, StreamWriter};
use catchment_session::lease::Lease;
use catchment_session::names::{SERVICE_NAMES, printable};
use catchment_session::tls::Protection;
use catchment_verbs::{Context, NetEnd, RtsAttr};
use message::{LABEL, MESSAGE_BYTES, Message};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

/// From connecting to the last message of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the last word of a session may take.
const LAST_WORD: Duration = Duration::from_millis(500);
/// Slots of a channel, in each direction, and the bytes of one.
const BLOCKS: u32 = 64;
const PAYLOAD_BYTES: u32 = 64 << 10;
/// The shortest message that this program takes part in.
const PAYLOAD_BYTES_MIN: u32 = 1 << 10;
/// Bytes of a stream that an end takes before they are consumed.
pub const WINDOW_BYTES: u32 = 256 << 10;
/// Most streams of a session, unless told otherwise.
pub const STREAMS: u32 = 2048;
/// After so long without a message an end is gone.
const LEASE: Duration = Duration::from_secs(5);

/// An end cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It cannot listen for the other end.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// It cannot listen for clients.
    #[error("cannot listen on {address}: {source}; is the address of this host and free?")]
    Listen {
        /// Where.
        address: Local,
        /// What the system said.
        source: io::Error,
    },
    /// A name that no service can have.
    #[error("\"{0}\" cannot name a service: {SERVICE_NAMES} can")]
    Service(String),
    /// The system refuses.
    #[error("a tunnel: {0}")]
    Io(#[from] io::Error),
    /// The identity of this host cannot be read.
    #[error(transparent)]
    Host(#[from] catchment_session::host::HostError),
}

/// Why there is no session.
#[derive(Debug, Clone)]
struct NotMade {
    reason: String,
    /// Whether another try may succeed without a change of settings.
    transient: bool,
}

impl NotMade {
    fn for_now(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), transient: true }
    }

    fn for_good(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), transient: false }
    }
}

async fn say(writer: &mut StreamWriter, message: &Message) -> Result<(), NotMade> {
    let sent = writer.send(&message.encode(), MESSAGE_BYTES).await;
    sent.map_err(|error| NotMade::for_now(error.to_string()))
}

async fn hear(reader: &mut StreamReader) -> Result<Message, NotMade> {
    let bytes =
        reader.recv(MESSAGE_BYTES).await.map_err(|error| NotMade::for_now(error.to_string()))?;
    match Message::decode(&bytes).map_err(NotMade::for_good)? {
        Message::Refused { reason, transient } => {
            Err(NotMade { reason: format!("refused: {}", printable(&reason, 512)), transient })
        }
        other @ (Message::Hello(_)
        | Message::Welcome(_)
        | Message::Connect(_)
        | Message::Ready {}
        | Message::Ping {}
        | Message::Goodbye {}) => Ok(other),
    }
}

fn unexpected() -> NotMade {
    NotMade::for_good("a message of the handshake at the wrong point of it")
}

/// Returns how the bytes of connections are protected on a path, for people; and refuses packets that anyone could
/// forge where the session itself is protected.
fn check_packets(
    protection: Protection,
    ends: [Option<NetEnd>; 2],
    insecure: bool,
) -> Result<&'static str, NotMade> {
    let [Some(ours), Some(theirs)] = ends else { return Ok("memory of this host") };
    if ours.extensions & theirs.extensions & NetEnd::AUTHENTICATED != 0 {
        return Ok("authenticated packets, not encrypted");
    }
    if protection == Protection::Tls && !insecure {
        return Err(NotMade::for_good(
            "the packets of this path would be neither encrypted nor authenticated: use the provider roce at both ends, \
             or say --insecure at both",
        ));
    }
    Ok("packets in clear, not authenticated")
}

const fn protection_text(protection: Protection) -> &'static str {
    match protection {
        Protection::Tls => "TLS",
        Protection::PlainLocal => "none, within this host",
        Protection::PlainInsecure => "none, --insecure",
    }
}

/// Acquires an end's queue pair and memory. May wait for an agent: not for a thread with other work.
async fn acquire(context: Arc<dyn Context>, shape: ChannelShape) -> Result<Resources, NotMade> {
    let acquired = tokio::task::spawn_blocking(move || Resources::acquire(context, shape)).await;
    let acquired = acquired.map_err(|error| NotMade::for_now(error.to_string()))?;
    acquired.map_err(|error| NotMade {
        transient: !matches!(error, ChannelError::Order),
        reason: error.to_string(),
    })
}

/// Connects the queue pair.
async fn connect(resources: Resources, peer: Card) -> Result<Channel, NotMade> {
    let rts = RtsAttr::default();
    let made = tokio::task::spawn_blocking(move || Channel::connect(resources, &peer, rts)).await;
    let made = made.map_err(|error| NotMade::for_now(error.to_string()))?;
    made.map_err(|error| NotMade::for_now(format!("the queue pair: {error}")))
}

/// A session that is ready.
struct Made {
    channel: Channel,
    limits: Limits,
    payload_bytes: u32,
    lease: Duration,
    reader: StreamReader,
    writer: StreamWriter,
    connected: event::Connected,
}

impl Made {
    /// Splits what the relay gets from what the session keeps.
    fn split(self, service: Option<Local>) -> (Connected, Kept, event::Connected) {
        let (failed, failure) = oneshot::channel();
        let Self { channel, limits, payload_bytes, lease, reader, writer, connected } = self;
        let relayed = Connected { channel, limits, payload_bytes, service, failed };
        (relayed, Kept { reader, writer, lease, failure }, connected)
    }
}

/// The control connection of a session.
struct Kept {
    reader: StreamReader,
    writer: StreamWriter,
    lease: Duration,
    failure: oneshot::Receiver<String>,
}

impl Kept {
    /// Keeps the session to its end; returns why it ended.
    async fn keep(self, stop: watch::Receiver<bool>) -> String {
        let Self { reader, writer, lease, failure } = self;
        tokio::select! {
            reason = listen(reader, lease) => reason,
            reason = speak(writer, lease, failure, stop) => reason,
        }
    }
}

async fn listen(mut reader: StreamReader, time: Duration) -> String {
    let mut lease = Lease::new(Instant::now(), time);
    loop {
        let bytes = match reader.recv_within(&mut lease, MESSAGE_BYTES).await {
            Ok(bytes) => bytes,
            Err(error) => return error.to_string(),
        };
        match Message::decode(&bytes) {
            Ok(Message::Ping {}) => {}
            Ok(Message::Goodbye {}) => return "the other end was told to end".to_owned(),
            Ok(Message::Refused { reason, .. }) => {
                return format!("there: {}", printable(&reason, 512));
            }
            Ok(
                Message::Hello(_) | Message::Welcome(_) | Message::Connect(_) | Message::Ready {},
            ) => {
                return "a message of the handshake after it".to_owned();
            }
            Err(reason) => return reason,
        }
    }
}

async fn speak(
    mut writer: StreamWriter,
    lease: Duration,
    mut failure: oneshot::Receiver<String>,
    mut stop: watch::Receiver<bool>,
) -> String {
    let period = Lease::new(Instant::now(), lease).period();
    let (last, reason) = loop {
        tokio::select! {
            failed = &mut failure => {
                let reason = failed.unwrap_or_else(|_| "the channel could not be used".to_owned());
                break (Message::Refused { reason: reason.clone(), transient: true }, reason);
            }
            () = wait_for_stop(&mut stop) => {
                break (Message::Goodbye {}, "this end was told to end".to_owned());
            }
            () = tokio::time::sleep(period) => {
                match timeout(lease, writer.send(&Message::Ping {}.encode(), MESSAGE_BYTES)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return error.to_string(),
                    Err(_) => return format!("it has read nothing for a lease of {lease:?}"),
                }
            }
        }
    };
    let said = async {
        let _ = writer.send(&last.encode(), MESSAGE_BYTES).await;
        writer.close().await;
    };
    let _ = timeout(LAST_WORD, said).await;
    reason
}

/// Waits until the end is told to end.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // Fails when nobody is left to tell it.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Takes the events of devices now and then: they would gather.
async fn drain_events(providers: Arc<Providers>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        providers.take_events();
    }
}

/// The shape of the channel of a peer's card and mode, if this program takes part in it.
fn shape_of(card: &Card, mode: Mode) -> Result<ChannelShape, NotMade> {
    if card.payload_bytes < PAYLOAD_BYTES_MIN.max(HEADER_BYTES as u32) || card.blocks < 2 {
        let (blocks, bytes) = (card.blocks, card.payload_bytes);
        return Err(NotMade::for_good(format!(
            "{blocks} slots of {bytes} bytes are too few or too small"
        )));
    }
    Ok(ChannelShape::new(card.blocks, card.payload_bytes).with_mode(mode))
}

/// Connects to the other end, in TLS where that is needed.
async fn dial(
    to: &catchment_session::io::Address,
    security: &catchment_session::io::ClientSecurity,
) -> Result<SecuredStream, NotMade> {
    let stream = SecuredStream::connect(to, security, LABEL, HANDSHAKE).await;
    stream.map_err(|error| NotMade { transient: error.is_transient(), reason: error.to_string() })
}
