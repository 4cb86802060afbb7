//! Registrations: a connection each, with one request and its answer.
use crate::admit::{Admitted, admit};
use crate::config::Settings;
use crate::grants::{Command, Handle, Names, Newcomer, Placed};
use catchment_control::admission::DeviceSpec;
use catchment_session::carried::carry;
use catchment_session::datagrams::socket_to;
use catchment_session::io::{Arriving, Peer, Place, SecuredStream, StreamListener};
use catchment_session::names::DeviceName;
use catchment_session::registration::{
    Answer, LABEL, MESSAGE_BYTES_MAX, Register, Registered, Request, Secret,
};
use catchment_session::tls::Protection;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Connections that are served at a time.
const CONNECTIONS_MAX: usize = 256;
/// Of these, sources whose datagrams come over a connection.
const CARRIED_MAX: usize = 128;
/// Time from connecting to the answer.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) grants: Handle,
    pub(crate) settings: Arc<RwLock<Settings>>,
    /// Where the thread that grants takes datagrams.
    pub(crate) datagrams: SocketAddr,
}

pub(crate) async fn accept_all(listener: StreamListener, context: Context) {
    let carrying = Arc::new(Semaphore::new(CARRIED_MAX));
    let serve = |arriving: Arriving, place: Place| {
        let (context, carrying) = (context.clone(), carrying.clone());
        async move {
            let _place = place;
            let peer = arriving.peer().clone();
            match tokio::time::timeout(LIMIT, serve(arriving, &context)).await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(stream))) => carry_all(stream, &context, carrying).await,
                Ok(Err(reason)) => tracing::info!(%peer, %reason, "not registered"),
                Err(_) => tracing::info!(%peer, limit = ?LIMIT, "nothing registered in time"),
            }
        }
    };
    listener.serve_each(CONNECTIONS_MAX, serve).await;
}

/// Answers a request; returns the connection if it goes on, with datagrams.
async fn serve(arriving: Arriving, context: &Context) -> Result<Option<SecuredStream>, String> {
    let mut stream = arriving.secure(LABEL).await?;
    let request: Request = match stream.recv(MESSAGE_BYTES_MAX).await {
        Ok(request) => request,
        Err(error) => {
            let answer = Answer::Refused { reason: error.to_string(), transient: false };
            let _ = stream.send(&answer, MESSAGE_BYTES_MAX).await;
            return Err(error.to_string());
        }
    };
    let (answer, log) = match request {
        Request::Carry {} => return Ok(Some(stream)),
        Request::Status {} => (status(context).await, Ok(())),
        Request::Explain { device } => (explain(context, device).await, Ok(())),
        Request::Register(register) => {
            match registered(context, End::of(&stream), register).await {
                Ok(registered) => (Answer::Registered(registered), Ok(())),
                Err(reason) => {
                    // A change of its configuration may help.
                    (Answer::Refused { reason: reason.clone(), transient: true }, Err(reason))
                }
            }
        }
    };
    stream.send(&answer, MESSAGE_BYTES_MAX).await.map_err(|error| error.to_string())?;
    stream.close().await;
    log.map(|()| None)
}

async fn status(context: &Context) -> Answer {
    let (answer, status) = oneshot::channel();
    context.grants.tell(Command::Status(answer));
    let status = status.await.ok().and_then(|status| serde_json::to_value(status).ok());
    status.map_or_else(ended, |status| Answer::Status { status })
}

async fn explain(context: &Context, device: DeviceName) -> Answer {
    let (answer, streams) = oneshot::channel();
    context.grants.tell(Command::Explain(device, answer));
    let streams = streams.await.ok().and_then(|streams| serde_json::to_value(streams).ok());
    streams.map_or_else(ended, |streams| Answer::Explained { streams })
}

fn ended() -> Answer {
    Answer::Refused { reason: "the controller ends".to_owned(), transient: true }
}

/// Who registers, and the root that both ends have.
struct End {
    peer: Peer,
    certificate: Option<String>,
    root: Result<([u8; 32], Option<Secret<32>>), String>,
}

impl End {
    fn of(stream: &SecuredStream) -> Self {
        let certificate = stream.certificate().map(str::to_owned);
        Self { peer: stream.peer().clone(), certificate, root: root(stream) }
    }
}

async fn registered(context: &Context, end: End, register: Register) -> Result<Registered, String> {
    let End { peer, certificate, root } = end;
    let Peer::Tcp(from) = peer else {
        return Err("register by TCP: grants come by UDP".to_owned());
    };
    let (root, told_root) = root?;
    let (answer, place) = oneshot::channel();
    let fill = {
        let settings = context.settings.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let from: IpAddr = from.ip().to_canonical();
        let admitted = admit(&settings, &register, from, certificate.as_deref())?;
        let fill = fill(&settings, &admitted, told_root);
        let Admitted { specs, notes, .. } = admitted;
        let devices = register.devices.iter().map(|device| device.name.to_string()).collect();
        let known = Names { devices, notes };
        let Register { process, term, standby, .. } = register;
        let process = process.0;
        let newcomer = Newcomer { process, certificate, root, term, standby, specs, known };
        // While the lock is held: it is registered before other settings hold.
        context.grants.tell(Command::Register(Box::new(newcomer), answer));
        fill
    };
    let told = fill(place.await.map_err(|_| "the controller ends".to_owned())??);
    let (source, devices) = (told.source, told.classes.len());
    tracing::info!(source, %from, devices, software = %register.software.escape_debug(), "registered");
    told.notes.iter().for_each(|note| tracing::warn!(source, "{note}"));
    Ok(told)
}

/// Fills the answer with what the settings say; the rest is known when the source has its place.
fn fill(
    settings: &Settings,
    admitted: &Admitted,
    root: Option<Secret<32>>,
) -> impl FnOnce(Placed) -> Registered + use<> {
    let Admitted { path, specs, classes, notes } = admitted;
    let deadline_us = |spec: &DeviceSpec| {
        let class_ns = settings.classes[usize::from(spec.class.0)].deadline_ns;
        spec.deadline_ns.unwrap_or(class_ns) / 1000
    };
    let (lease_ns, chunk_bytes) = (settings.lease_ns, settings.chunk_bytes(*path));
    let (safe_part_bps, max_burst_ns) =
        (settings.safe_part_bps(*path), settings.max_burst_ns(*path));
    let (classes, ranks) = (classes.clone(), specs.iter().map(|spec| spec.class.0).collect());
    let deadlines_us = specs.iter().map(deadline_us).collect();
    let notes = notes.iter().map(|(_, note)| note.clone()).collect();
    move |Placed { number, term, safe_parts, mut small_bps, safe_ns }| {
        if small_bps.iter().all(|small_bps| *small_bps == 0) {
            // A source of an earlier version does not know the member.
            small_bps.clear();
        }
        Registered {
            source: number,
            term,
            lease_ns,
            chunk_bytes,
            safe_rate_bps: u64::from(safe_parts) * safe_part_bps,
            root,
            classes,
            ranks,
            deadlines_us,
            small_bps,
            max_burst_ns,
            safe_ns,
            notes,
        }
    }
}

/// Returns the root of the keys, and what the source must be told of it.
fn root(stream: &SecuredStream) -> Result<([u8; 32], Option<Secret<32>>), String> {
    match (stream.protection(), stream.secret()) {
        (Protection::Tls, Some(secret)) => Ok((*secret, None)),
        (Protection::Tls, None) => Err("TLS offers no exporter".to_owned()),
        (Protection::PlainLocal | Protection::PlainInsecure, _) => {
            let drawn = Secret::random().map_err(|_| "no random bytes".to_owned())?;
            Ok((drawn.0, Some(drawn)))
        }
    }
}

/// Passes the datagrams of a source on, which come as messages.
async fn carry_all(mut stream: SecuredStream, context: &Context, carrying: Arc<Semaphore>) {
    let peer = stream.peer().clone();
    let full = |_| format!("{CARRIED_MAX} sources already use a connection instead of UDP");
    let none = |error| format!("no socket for it: {error}");
    let place = carrying.try_acquire_owned().map_err(full);
    let taken =
        place.and_then(|place| Ok((place, socket_to(own(context.datagrams)).map_err(none)?)));
    let (_place, socket) = match taken {
        Ok(taken) => taken,
        Err(reason) => {
            let refused = Answer::Refused { reason, transient: true };
            let _ = stream.send(&refused, MESSAGE_BYTES_MAX).await;
            return;
        }
    };
    if stream.send(&Answer::Carrying {}, MESSAGE_BYTES_MAX).await.is_err() {
        return;
    }
    tracing::info!(%peer, "no datagrams pass: those of a source come over a connection");
    let own = socket.local_addr().ok();
    let carried = || context.grants.carried().lock().unwrap_or_else(PoisonError::into_inner);
    carried().extend(own);
    let ended = carry(stream, socket).await;
    own.iter().for_each(|own| _ = carried().remove(own));
    if let Err(error) = ended {
        tracing::info!(%peer, %error, "a connection with datagrams is over");
    }
}

/// Returns the address at which this host reaches one of its own.
fn own(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(any) if any.ip().is_unspecified() => {
            (Ipv4Addr::LOCALHOST, any.port()).into()
        }
        SocketAddr::V6(any) if any.ip().is_unspecified() => {
            (Ipv6Addr::LOCALHOST, any.port()).into()
        }
        one @ (SocketAddr::V4(_) | SocketAddr::V6(_)) => one,
    }
}
