//! One session with the agent of another host, from its first message to its end.
use super::message::{FRAME_BYTES, Frame, Hello, LABEL, MESSAGE_BYTES, PeerMessage, of_epoch};
use super::registry::{Out, Refusal, Registry, Seat};
use catchment_session::io::{
    Address, Arriving, ClientSecurity, SecuredStream, StreamReader, StreamWriter,
};
use catchment_session::lease::Lease;
use catchment_session::names::printable;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// From connecting to the answer to the first message.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long the last word of a session may take.
const LAST_WORD: Duration = Duration::from_millis(500);

/// What happens in sessions.
pub(super) enum Event {
    /// A session began.
    Opened(Hello),
    /// A message came, in the session of this host.
    Frame { host: u32, frame: Frame },
    /// Bytes were written into a slot of this host, of the end of this number.
    Written { host: u32, number: u32, bytes: Vec<u8> },
    /// The session of a host ended; whether the host said that it has stopped sending.
    Closed { host: u32, said_goodbye: bool },
}

/// What all sessions share.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) ours: Arc<Hello>,
    pub(super) registry: Arc<Registry>,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) security: ClientSecurity,
}

/// Why a session ended.
pub(super) struct Ended {
    pub(super) reason: String,
    said_goodbye: bool,
}

impl Ended {
    fn of(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), said_goodbye: false }
    }
}

/// Why there was no session with an address.
pub(super) struct NotMade {
    pub(super) reason: String,
    /// The host that answered there.
    pub(super) host: Option<u32>,
}

impl From<String> for NotMade {
    fn from(reason: String) -> Self {
        Self { reason, host: None }
    }
}

/// A session that is to be run.
pub(super) struct Made {
    pub(super) seat: Seat,
    outbox: mpsc::Receiver<Out>,
    hello: Hello,
    reader: StreamReader,
    writer: StreamWriter,
}

async fn say(writer: &mut StreamWriter, message: &PeerMessage) -> Result<(), String> {
    writer.send(&message.encode(), MESSAGE_BYTES).await.map_err(|error| error.to_string())
}

async fn hear(reader: &mut StreamReader) -> Result<PeerMessage, String> {
    let bytes = reader.recv(MESSAGE_BYTES).await.map_err(|error| error.to_string())?;
    match Frame::decode(&bytes).map_err(|error| error.to_string())? {
        Frame::Message(message) => Ok(message),
        Frame::Round(_) => Err("a message of a round came before hello".to_owned()),
    }
}

impl Context {
    /// Answers an agent that connects. One that is refused is told why.
    pub(super) async fn accept(&self, arriving: Arriving) -> Result<Made, String> {
        let made = async {
            let stream = arriving.secure(LABEL).await?;
            let certificate = stream.certificate().map(str::to_owned);
            let (mut reader, mut writer) = stream.split();
            let admitted = match hear(&mut reader).await {
                Ok(PeerMessage::Hello(hello)) => {
                    let admitted = self.admit(&hello, false, certificate.as_deref());
                    admitted.map(|place| (place, hello))
                }
                Ok(_) => Err(refusal("the first message is no hello".to_owned())),
                Err(reason) => Err(refusal(reason)),
            };
            let ((seat, outbox), hello) = match admitted {
                Ok(admitted) => admitted,
                Err(refusal) => {
                    let reason = refusal.reason.clone();
                    let _ = say(&mut writer, &refusal.message()).await;
                    writer.close().await;
                    return Err(reason);
                }
            };
            let welcome = PeerMessage::Welcome(Hello::clone(&self.ours));
            if let Err(reason) = say(&mut writer, &welcome).await {
                self.registry.leave(&seat, reason.clone());
                return Err(reason);
            }
            Ok(Made { seat, outbox, hello, reader, writer })
        };
        timeout(HANDSHAKE, Box::pin(made)).await.unwrap_or_else(|_| Err(slow()))
    }

    /// Connects to an agent.
    pub(super) async fn dial(&self, address: &Address) -> Result<Made, NotMade> {
        let made = async {
            let stream = SecuredStream::connect(address, &self.security, LABEL, HANDSHAKE).await;
            let (mut reader, mut writer) = stream.map_err(|error| error.to_string())?.split();
            say(&mut writer, &PeerMessage::Hello(Hello::clone(&self.ours))).await?;
            let heard = hear(&mut reader).await?;
            if let PeerMessage::Refused { reason, .. } = &heard {
                return Err(format!("refused: {}", printable(reason, 256)).into());
            }
            let PeerMessage::Welcome(hello) = heard else {
                return Err("the answer is no welcome".to_owned().into());
            };
            let host = Some(hello.host);
            let admitted = self.admit(&hello, true, None);
            let refused = |refusal: Refusal| NotMade { reason: refusal.reason, host };
            let (seat, outbox) = admitted.map_err(refused)?;
            Ok(Made { seat, outbox, hello, reader, writer })
        };
        timeout(HANDSHAKE, Box::pin(made)).await.unwrap_or_else(|_| Err(slow().into()))
    }

    fn admit(
        &self,
        hello: &Hello,
        dialed: bool,
        certificate: Option<&str>,
    ) -> Result<(Seat, mpsc::Receiver<Out>), Refusal> {
        if let Some(reason) = self.ours.misfit(hello) {
            return Err(refusal(reason));
        }
        self.registry.admit(self.ours.host, hello, dialed, certificate)
    }

    /// Runs a session to its end; returns why it ended.
    pub(super) async fn run(&self, made: Made) -> String {
        let Made { seat, outbox, hello, reader, writer } = made;
        let (host, epoch) = (seat.host, seat.epoch);
        tracing::info!(host, epoch, peer = %hello.name.escape_debug(), "session with an agent");
        let _ = self.events.send(Event::Opened(hello)).await;
        let lease = Duration::from_millis(self.ours.lease_ms.into());
        let ended = tokio::select! {
            ended = self.read(reader, &seat, lease) => ended,
            ended = write(writer, outbox, lease) => ended,
        };
        tracing::info!(host, epoch, reason = %ended.reason, "session with an agent ended");
        if self.registry.leave(&seat, ended.reason.clone()) {
            let closed = Event::Closed { host, said_goodbye: ended.said_goodbye };
            let _ = self.events.send(closed).await;
        }
        ended.reason
    }

    async fn read(&self, mut reader: StreamReader, seat: &Seat, time: Duration) -> Ended {
        let mut lease = Lease::new(Instant::now(), time);
        loop {
            let bytes = match reader.recv_within(&mut lease, FRAME_BYTES).await {
                Ok(bytes) => bytes,
                Err(error) => return Ended::of(error.to_string()),
            };
            let frame = match Frame::decode(&bytes).map_err(|error| error.to_string()) {
                Ok(Frame::Message(PeerMessage::Ping {})) => continue,
                Ok(Frame::Message(PeerMessage::Goodbye {})) => {
                    return Ended { said_goodbye: true, ..Ended::of("the agent there ended") };
                }
                Ok(Frame::Message(PeerMessage::Refused { reason, .. })) => {
                    return Ended::of(format!("refused: {}", printable(&reason, 256)));
                }
                Ok(Frame::Message(PeerMessage::Hello(_) | PeerMessage::Welcome(_))) => {
                    Err("a session has one hello".to_owned())
                }
                Ok(Frame::Round(round)) => of_epoch(round, seat.epoch).map(Frame::Round),
                other => other,
            };
            match frame {
                Ok(frame) => {
                    let event = Event::Frame { host: seat.host, frame };
                    let _ = self.events.send(event).await;
                }
                Err(reason) => return turn_away(seat, reason).await,
            }
        }
    }
}

fn refusal(reason: String) -> Refusal {
    Refusal { reason, transient: false }
}

fn slow() -> String {
    format!("no session within {HANDSHAKE:?}")
}

/// Ends a session because of what its peer sent, and says so.
async fn turn_away(seat: &Seat, reason: String) -> Ended {
    let message = refusal(reason.clone()).message();
    if let Some(outbox) = seat.last.upgrade() {
        let said = async {
            let _ = outbox.send(Out::Last(message.encode())).await;
            drop(outbox);
            // The writer ends the session.
            std::future::pending::<()>().await;
        };
        let _ = timeout(LAST_WORD, said).await;
    }
    Ended::of(format!("it sent {reason}"))
}

/// Sends what is in the outbox, and keeps the lease meanwhile.
async fn write(mut writer: StreamWriter, mut outbox: mpsc::Receiver<Out>, time: Duration) -> Ended {
    let lease = Lease::new(Instant::now(), time);
    loop {
        let next = timeout(lease.period(), outbox.recv()).await;
        let (bytes, is_last) = match next {
            Ok(Some(Out::Frame(bytes))) => (bytes, false),
            Ok(Some(Out::Last(bytes))) => (bytes, true),
            Ok(None) => return Ended::of("another session took its place"),
            Err(_) => (PeerMessage::Ping {}.encode(), false),
        };
        match timeout(lease.time(), writer.send(&bytes, FRAME_BYTES)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Ended::of(error.to_string()),
            Err(_) => return Ended::of(format!("it has read nothing for a lease of {time:?}")),
        }
        if is_last {
            writer.close().await;
            return Ended::of(last_word(&bytes));
        }
    }
}

/// Returns what the last message of this side said.
fn last_word(bytes: &[u8]) -> String {
    match Frame::decode(bytes) {
        Ok(Frame::Message(PeerMessage::Refused { reason, .. })) => format!("it sent {reason}"),
        _ => "this agent ends".to_owned(),
    }
}
