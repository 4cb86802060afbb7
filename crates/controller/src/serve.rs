//! Registrations: a connection each, with one request and its answer.
use crate::admit::{Admitted, admit};
use crate::config::Settings;
use crate::grants::{Command, Handle, Names, Newcomer, Placed};
use catchment_control::admission::DeviceSpec;
use catchment_session::io::{Arriving, Peer, Place, SecuredStream, StreamListener};
use catchment_session::names::DeviceName;
use catchment_session::registration::{
    Answer, LABEL, MESSAGE_BYTES_MAX, Register, Registered, Request, Secret,
};
use catchment_session::tls::Protection;
use std::net::IpAddr;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::sync::oneshot;

/// Connections that are served at a time.
const CONNECTIONS_MAX: usize = 256;
/// Time from connecting to the answer.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) grants: Handle,
    pub(crate) settings: Arc<RwLock<Settings>>,
}

pub(crate) async fn accept_all(listener: StreamListener, context: Context) {
    let serve = |arriving: Arriving, place: Place| {
        let context = context.clone();
        async move {
            let _place = place;
            let peer = arriving.peer().clone();
            match tokio::time::timeout(LIMIT, serve(arriving, context)).await {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => tracing::info!(%peer, %reason, "not registered"),
                Err(_) => tracing::info!(%peer, limit = ?LIMIT, "nothing registered in time"),
            }
        }
    };
    listener.serve_each(CONNECTIONS_MAX, serve).await;
}

async fn serve(arriving: Arriving, context: Context) -> Result<(), String> {
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
        Request::Status {} => (status(&context).await, Ok(())),
        Request::Explain { device } => (explain(&context, device).await, Ok(())),
        Request::Register(register) => match registered(&context, End::of(&stream), register).await
        {
            Ok(registered) => (Answer::Registered(registered), Ok(())),
            Err(reason) => {
                // A change of its configuration may help.
                (Answer::Refused { reason: reason.clone(), transient: true }, Err(reason))
            }
        },
    };
    stream.send(&answer, MESSAGE_BYTES_MAX).await.map_err(|error| error.to_string())?;
    stream.close().await;
    log
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
    let (classes, ranks, notes, told) = {
        let settings = context.settings.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let from: IpAddr = from.ip().to_canonical();
        let admitted = admit(&settings, &register, from, certificate.as_deref())?;
        let safe_rate_bps = settings.safe_rate_bps(admitted.path);
        let Admitted { specs, classes, notes, .. } = admitted;
        let deadline_us = |spec: &DeviceSpec| {
            let class_ns = settings.classes[usize::from(spec.class.0)].deadline_ns;
            spec.deadline_ns.unwrap_or(class_ns) / 1000
        };
        let deadlines_us = specs.iter().map(deadline_us).collect();
        let told = (settings.lease_ns, settings.chunk_bytes, safe_rate_bps, deadlines_us);
        let ranks = specs.iter().map(|spec| spec.class.0).collect();
        let names = register.devices.iter().map(|device| device.name.to_string()).collect();
        let known = Names { devices: names, notes: notes.clone() };
        let Register { process, term, standby, .. } = register;
        let process = process.0;
        let newcomer = Newcomer { process, certificate, root, term, standby, specs, known };
        // While the lock is held: it is registered before other settings hold.
        context.grants.tell(Command::Register(Box::new(newcomer), answer));
        (classes, ranks, notes, told)
    };
    let Placed { number: source, term, is_safe, small_bps } =
        place.await.map_err(|_| "the controller ends".to_owned())??;
    // A source of an earlier version does not know the member.
    let small_bps =
        if small_bps.iter().all(|small_bps| *small_bps == 0) { Vec::new() } else { small_bps };
    let (lease_ns, chunk_bytes, safe_rate_bps, deadlines_us) = told;
    let safe_rate_bps = if is_safe { safe_rate_bps } else { 0 };
    let devices = classes.len();
    tracing::info!(source, %from, devices, software = %register.software.escape_debug(), "registered");
    let notes: Vec<String> = notes.into_iter().map(|(_, note)| note).collect();
    notes.iter().for_each(|note| tracing::warn!(source, "{note}"));
    Ok(Registered {
        source,
        term,
        lease_ns,
        chunk_bytes,
        safe_rate_bps,
        root: told_root,
        classes,
        ranks,
        deadlines_us,
        small_bps,
        notes,
    })
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
