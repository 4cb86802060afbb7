//! Accepts connections and hands out those that have sent a valid Hello.
use super::address::{Address, Peer};
use super::certificate::certificate_name;
use super::connect::local_ip;
use super::connection::{Connection, RecvError};
use super::descriptors::{Descriptors, NoDescriptors};
use super::reason::handshake_reason;
use super::slots::{Slot, Slots};
use super::socket::{BindError, Raw, ServerSecurity, Socket, dismiss};
use crate::message::{Hello, Message, MessageKind};
use crate::refusal::{Refusal, RefusalCode};
use crate::reread::ServerTls;
use crate::tls::Protection;
use crate::wire::{DecodeError, HELLO_BYTES_MAX, LONG_BYTES_MAX, SHORT_BYTES_MAX, encode};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Pause after a failed accept, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Bytes per device that a source may send at once after its Hello, above the short limit.
const DEVICE_BYTES: u32 = 128;

/// Limits of a [`Listener`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Maximum unfinished handshakes.
    pub unfinished_max: usize,
    /// Time limit from connecting to the complete Hello.
    pub handshake: Duration,
    /// How long a handshake may wait for its source before it can be evicted when all places are taken.
    pub grace: Duration,
    /// Maximum Hellos above 64 KiB that are received at once; each can take 8 MiB.
    pub long_hellos_max: usize,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            unfinished_max: 256,
            handshake: Duration::from_secs(5),
            grace: Duration::from_millis(500),
            long_hellos_max: 8,
        }
    }
}

/// A connection that was not handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The other end.
    pub peer: Peer,
    /// Why.
    pub reason: RejectReason,
}

/// Why a connection was not handed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RejectReason {
    /// All places are taken by younger connections.
    #[error("too many unfinished handshakes")]
    Busy,
    /// This process has too few file descriptors for another session.
    #[error(transparent)]
    NoDescriptors(#[from] NoDescriptors),
    /// All places for long Hellos are taken: its announced length.
    #[error("a Hello of {0} bytes while too many long ones are being received")]
    LongHelloBusy(u32),
    /// It kept other connections waiting.
    #[error("no Hello within {0:?} while others wait")]
    Evicted(Duration),
    /// Its Hello did not arrive in time.
    #[error("no Hello within {0:?}")]
    Timeout(Duration),
    /// It closed before its Hello.
    #[error("closed before Hello")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(String),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// The bytes are not a message.
    #[error(transparent)]
    Decode(DecodeError),
    /// The first message is not a Hello.
    #[error("the first message is {0}, not hello")]
    NotHello(MessageKind),
}

impl RejectReason {
    /// Returns a label of the kind, for a counter.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Busy | Self::LongHelloBusy(_) => "busy",
            Self::NoDescriptors(_) => "no_resource",
            Self::Evicted(_) => "evicted",
            Self::Timeout(_) => "timeout",
            Self::Closed => "closed",
            Self::Io(_) => "io",
            Self::Tls(_) => "tls",
            Self::Decode(_) => "bad_message",
            Self::NotHello(_) => "not_hello",
        }
    }

    /// Returns the refusal to send to the peer.
    fn refusal(&self) -> Refusal {
        let (code, remedy) = match self {
            Self::Decode(error) => return error.refusal(),
            Self::NotHello(_) => (RefusalCode::UnexpectedMessage, "begin the session with Hello"),
            Self::Busy | Self::LongHelloBusy(_) => (RefusalCode::Busy, "try again later"),
            Self::NoDescriptors(_) => (
                RefusalCode::NoResource,
                "raise the limit of open files of the collector: ulimit -n, or LimitNOFILE= of systemd",
            ),
            Self::Evicted(_) | Self::Timeout(_) | Self::Closed | Self::Io(_) | Self::Tls(_) => {
                (RefusalCode::Timeout, "send Hello at once")
            }
        };
        Refusal::new(code, self.to_string(), remedy)
    }
}

/// Called for every rejection, from the listener's tasks; must not block.
pub type OnRejected = Arc<dyn Fn(&Rejected) + Send + Sync>;

/// A connection whose Hello has arrived.
#[derive(Debug)]
pub struct Accepted {
    /// The connection; the next message will be the answer to ours.
    pub connection: Connection,
    /// The first message, checked. Pass it to the state machine.
    pub hello: Hello,
    /// Its place among the unfinished handshakes: keep it until the session is Ready or over.
    pub slot: Slot,
}

/// Listens for sources. Dropping it closes the socket and all unfinished handshakes.
#[derive(Debug)]
pub struct Listener {
    local: Address,
    accepted: mpsc::Receiver<Accepted>,
    acceptor: JoinHandle<()>,
    unix_path: Option<PathBuf>,
}

impl Listener {
    /// Listens on `address`. A unix socket is accessible to its owner only (mode 0600); one that a dead
    /// process left behind is replaced.
    ///
    /// # Errors
    /// The address needs protection that `security` does not provide, or cannot be bound.
    pub async fn bind(
        address: &Address,
        security: ServerSecurity,
        config: ListenerConfig,
        on_rejected: OnRejected,
    ) -> Result<Self, BindError> {
        let (socket, protection) = Socket::bind(address, &security).await?;
        let local = socket.local(address);
        let (sender, accepted) = mpsc::channel(config.unfinished_max.max(1));
        let context = Arc::new(Context {
            tls: security.tls.filter(|_| protection == Protection::Tls),
            protection,
            config,
            long_hellos: Semaphore::new(config.long_hellos_max),
            on_rejected,
        });
        let unix_path = match address {
            Address::Unix(path) => Some(path.clone()),
            Address::Tcp { .. } => None,
        };
        Ok(Self {
            local,
            accepted,
            acceptor: tokio::spawn(accept_all(socket, context, sender)),
            unix_path,
        })
    }

    /// Returns the address, with the port that the system chose.
    pub fn local(&self) -> &Address {
        &self.local
    }

    /// Waits for the next connection with a valid Hello; `None` only after the runtime ended the
    /// listener.
    ///
    /// # Cancellation
    /// May be cancelled: no connection is lost.
    pub async fn accept(&mut self) -> Option<Accepted> {
        self.accepted.recv().await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.acceptor.abort();
        if let Some(path) = &self.unix_path {
            let _ = fs::remove_file(path);
        }
    }
}

struct Context {
    tls: Option<Arc<ServerTls>>,
    protection: Protection,
    config: ListenerConfig,
    long_hellos: Semaphore,
    on_rejected: OnRejected,
}

impl Context {
    fn reject(&self, peer: Peer, reason: RejectReason) {
        if matches!(reason, RejectReason::Busy | RejectReason::NoDescriptors(_)) {
            tracing::debug!(%peer, %reason, "connection refused");
        } else {
            tracing::info!(%peer, %reason, "connection refused");
        }
        (self.on_rejected)(&Rejected { peer, reason });
    }

    /// Closes a connection that gets no place, and says why where that is one system call.
    fn dismiss(&self, raw: Raw, peer: Peer, reason: RejectReason) {
        let mut bytes = Vec::new();
        if let Err(error) = encode(&Message::Refused(reason.refusal()), &mut bytes) {
            tracing::error!(%error, "cannot encode a refusal");
        }
        dismiss(raw, self.tls.is_none().then_some(&bytes));
        self.reject(peer, reason);
    }
}

async fn accept_all(socket: Socket, context: Arc<Context>, sender: mpsc::Sender<Accepted>) {
    let slots = Slots::new(context.config.unfinished_max, context.config.grace);
    let descriptors = Descriptors::default();
    let mut handshakes = JoinSet::new();
    let mut is_short = false;
    loop {
        let (raw, peer) = match socket.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn_once(&mut is_short, &error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while handshakes.try_join_next().is_some() {}
        if let Err(none) = descriptors.grant(slots.held() as u64) {
            warn_once(&mut is_short, &none);
            context.dismiss(raw, peer, none.into());
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        }
        is_short = false;
        match slots.take(Instant::now()) {
            Some(slot) => {
                let work = greet(raw, peer, slot, context.clone(), sender.clone());
                handshakes.spawn(work);
            }
            None => {
                context.dismiss(raw, peer, RejectReason::Busy);
                // Let the handshakes in progress run.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Warns that no source can connect, unless that is known.
fn warn_once(is_known: &mut bool, reason: &dyn std::fmt::Display) {
    if !std::mem::replace(is_known, true) {
        tracing::warn!(%reason, "new sources must wait until others end; to admit more, raise the \
             limit of open files (ulimit -n, LimitNOFILE= of systemd)");
    }
}

/// Runs one handshake, from the accepted socket to the Hello.
async fn greet(
    raw: Raw,
    peer: Peer,
    slot: Slot,
    context: Arc<Context>,
    sender: mpsc::Sender<Accepted>,
) {
    let ListenerConfig { handshake, grace, .. } = context.config;
    // Set as soon as messages can be sent to the peer.
    let mut connection = None;
    let hello = {
        let work = introduce(raw, &peer, &mut connection, &context);
        tokio::select! {
            biased;
            result = timeout(handshake, work) => {
                result.unwrap_or(Err(RejectReason::Timeout(handshake)))
            }
            _ = slot.evicted() => Err(RejectReason::Evicted(grace)),
        }
    };
    match (hello, connection) {
        (Ok(hello), Some(connection)) => {
            slot.our_turn();
            let accepted = Accepted { connection, hello, slot };
            // Fails only while the listener is being dropped.
            let _ = sender.send(accepted).await;
        }
        (Err(reason), connection) => {
            let refusal = reason.refusal();
            let is_gone = matches!(reason, RejectReason::Closed | RejectReason::Io(_));
            context.reject(peer, reason);
            if let Some(connection) = connection.filter(|_| !is_gone) {
                connection.turn_away(refusal).await;
            }
        }
        (Ok(_), None) => {}
    }
}

async fn introduce(
    raw: Raw,
    peer: &Peer,
    connection: &mut Option<Connection>,
    context: &Context,
) -> Result<Hello, RejectReason> {
    let connection = connection.insert(protect(raw, peer, context).await?);
    connection.reader().set_limit(SHORT_BYTES_MAX);
    let message = receive_first(connection, context).await?;
    let kind = message.kind();
    let Message::Hello(hello) = message else { return Err(RejectReason::NotHello(kind)) };
    let lists = u32::try_from(hello.devices.len()).unwrap_or(u32::MAX).saturating_mul(DEVICE_BYTES);
    let limit = SHORT_BYTES_MAX.saturating_add(lists).min(LONG_BYTES_MAX);
    connection.reader().set_limit(limit);
    Ok(hello)
}

async fn protect(raw: Raw, peer: &Peer, context: &Context) -> Result<Connection, RejectReason> {
    let (peer, protection) = (peer.clone(), context.protection);
    let stream = match raw {
        Raw::Unix(stream) => return Ok(Connection::new(stream, peer, None, protection)),
        Raw::Tcp(stream) => stream,
    };
    let _ = stream.set_nodelay(true);
    let local = local_ip(&stream);
    let Some(tls) = &context.tls else {
        return Ok(Connection::new(stream, peer, local, protection));
    };
    let stream = match TlsAcceptor::from(tls.current()).accept(stream).into_fallible().await {
        Ok(stream) => stream,
        Err((error, stream)) => {
            // With what the peer still sends unread, the alert that says why would not arrive.
            Connection::new(stream, peer, local, protection).close().await;
            return Err(RejectReason::Tls(handshake_reason(&error)));
        }
    };
    let name = certificate_name(stream.get_ref().1.peer_certificates());
    let name = name.ok_or_else(|| RejectReason::Tls("the certificate holds no name".to_owned()))?;
    let mut connection = Connection::new(stream, peer, local, protection);
    connection.set_certificate(Some(name));
    Ok(connection)
}

/// Receives the first message. One above 64 KiB needs a place of its own, of which there are few:
/// this bounds the memory that unauthenticated connections can occupy.
async fn receive_first(
    connection: &mut Connection,
    context: &Context,
) -> Result<Message, RejectReason> {
    let bytes = match connection.recv().await {
        Err(RecvError::Decode(DecodeError::Length { announced, .. }))
            if (SHORT_BYTES_MAX..=HELLO_BYTES_MAX).contains(&announced) =>
        {
            announced
        }
        result => return result.map_err(reject_reason),
    };
    let _place =
        context.long_hellos.try_acquire().map_err(|_| RejectReason::LongHelloBusy(bytes))?;
    connection.reader().set_limit(HELLO_BYTES_MAX);
    connection.recv().await.map_err(reject_reason)
}

fn reject_reason(error: RecvError) -> RejectReason {
    match error {
        RecvError::Closed => RejectReason::Closed,
        RecvError::Decode(error) => RejectReason::Decode(error),
        RecvError::Io(detail) => RejectReason::Io(detail),
        RecvError::Tls(detail) => RejectReason::Tls(detail),
    }
}
