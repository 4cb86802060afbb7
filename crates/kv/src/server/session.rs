//! One client: from its first message to its end.
use super::Shared;
use super::port::Port;
use crate::layout::{CLASSES, class_units};
use crate::protocol::{
    BLOCKS_MAX, Connected, FromClient, FromServer, LABEL, MESSAGE_BYTES, Sided, VERSION, Why,
    decode, encode, endpoint,
};
use crate::store::NoBlock;
use catchment_perf::process_cpu_time;
use catchment_providers::Ends;
use catchment_session::io::{Arriving, Place, SecuredStream, StreamReader, StreamWriter};
use catchment_session::lease::Lease;
use catchment_session::message::SessionPath;
use catchment_session::path::SourceFacts;
use catchment_verbs::{Context, Endpoint};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// From accepting a connection to its last message before operations.
const HANDSHAKE: Duration = Duration::from_secs(10);

struct Refused {
    reason: String,
    remedy: String,
}

impl Refused {
    fn new(reason: impl Into<String>, remedy: &str) -> Self {
        Self { reason: reason.into(), remedy: remedy.to_owned() }
    }
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self::new(reason, "use the same release on both sides")
    }
}

/// A client in the books, with its queue pair. Dropping it lets the client go.
struct Member {
    shared: Arc<Shared>,
    port: Arc<Port>,
    number: u32,
    runtime: Handle,
}

impl Member {
    /// Takes a client into the books and connects its queue pair. Waits for the client's process.
    fn admit(
        shared: &Arc<Shared>,
        context: &Arc<dyn Context>,
        theirs: Endpoint,
        sided: Sided,
        is_software: bool,
    ) -> Result<(Self, Connected, Outbox), String> {
        let port = shared.ports.of(context, shared)?;
        let may_write = is_software && context.caps().atomics && sided == Sided::One;
        let (tell, outbox) = mpsc::unbounded_channel();
        let (number, table, epoch, seed) = {
            let mut books = shared.books.lock();
            let number = books.store.join();
            books.tell.insert(number, tell);
            let store = &books.store;
            (number, store.table().encode(), store.epoch(), store.seed())
        };
        let (shared, runtime) = (Arc::clone(shared), Handle::current());
        let member = Self { shared, port, number, runtime };
        let lease = member.shared.lease;
        let ours = member.port.connect(number, theirs, sided, may_write, lease);
        let endpoint = ours.map_err(|error| error.to_string())?.to_string();
        let (addr, rkey, bytes) = member.port.region();
        let connected = Connected { endpoint, addr, rkey, bytes, seed, table, epoch, may_write };
        Ok((member, connected, outbox))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let (shared, port) = (Arc::clone(&self.shared), Arc::clone(&self.port));
        let number = self.number;
        shared.books.lock().store.expect_leave(number);
        // Another thread may hold the queue pair, to answer.
        self.runtime.spawn_blocking(move || {
            // First nothing of it arrives any more, then its blocks are taken.
            port.disconnect(number);
            let mut books = shared.books.lock();
            books.tell.remove(&number);
            books.store.leave(number);
            shared.wake_keeper(books);
        });
    }
}

type Outbox = mpsc::UnboundedReceiver<FromServer>;

/// A client that may begin.
struct Admitted {
    member: Member,
    path: SessionPath,
    outbox: Outbox,
}

/// Does what may wait for a device, an agent or a peer: the server's thread has other clients.
async fn apart<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
    refused: impl Fn(E) -> Refused,
) -> Result<T, Refused>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| local(error.to_string()))?.map_err(refused)
}

fn local(error: String) -> Refused {
    Refused::new(error, "look at the server's log")
}

/// Serves a connection to its end.
pub(super) async fn run(shared: &Arc<Shared>, arriving: Arriving, place: Place) {
    let peer = arriving.peer().to_string();
    let secured = timeout(HANDSHAKE, arriving.secure(LABEL)).await;
    let stream = match secured.unwrap_or_else(|_| Err("no handshake in time".to_owned())) {
        Ok(stream) => stream,
        Err(reason) => return tracing::warn!(peer, reason, "a client was turned away"),
    };
    let ends = Ends { local: stream.local_ip(), peer: stream.peer().ip() };
    let (mut reader, mut writer) = split(stream);
    let admitted = timeout(HANDSHAKE, admit(shared, ends, &mut reader, &mut writer)).await;
    let admitted = admitted.unwrap_or_else(|_| Err(Refused::new("it said too little in time", "")));
    drop(place);
    match admitted {
        Ok(admitted) => {
            let number = admitted.member.number;
            let reason = serve(shared, admitted, reader, writer).await;
            tracing::info!(peer, number, reason, "a client is gone");
        }
        Err(Refused { reason, remedy }) => {
            tracing::warn!(peer, reason, "a client was refused");
            let refused = encode(&FromServer::Refused { reason, remedy });
            let _ = writer.send(&refused, MESSAGE_BYTES).await;
            writer.close().await;
        }
    }
}

fn split(stream: SecuredStream) -> (StreamReader, StreamWriter) {
    stream.split()
}

async fn hear(reader: &mut StreamReader) -> Result<FromClient, String> {
    let bytes = reader.recv(MESSAGE_BYTES).await.map_err(|error| error.to_string())?;
    decode(&bytes)
}

async fn say(writer: &mut StreamWriter, message: &FromServer) -> Result<(), String> {
    writer.send(&encode(message), MESSAGE_BYTES).await.map_err(|error| error.to_string())
}

async fn admit(
    shared: &Arc<Shared>,
    ends: Ends,
    reader: &mut StreamReader,
    writer: &mut StreamWriter,
) -> Result<Admitted, Refused> {
    let FromClient::Hello { version, host, offers, missing, sided } = hear(reader).await? else {
        return Err("the first message is no hello".to_owned().into());
    };
    if version != VERSION {
        return Err(format!("the client speaks version {version}, this is {VERSION}").into());
    }
    let choosing = Arc::clone(shared);
    let choose = move || {
        let (offers, missing) = (&offers, &missing);
        let source = SourceFacts { host: &host, offers, missing, failed: &[], seen: ends.peer };
        choosing.providers.choose(&choosing.host, &source, ends)
    };
    let (choice, context) =
        apart(choose, |refusal| Refused::new(refusal.reason, &refusal.remedy)).await?;
    let path = choice.path.clone();
    let lease_ms = shared.lease.as_millis() as u64;
    say(writer, &FromServer::Welcome { path: choice.path, reason: choice.reason, lease_ms })
        .await?;
    let FromClient::Connect { endpoint: theirs } = hear(reader).await? else {
        return Err("no queue pair came after hello".to_owned().into());
    };
    let theirs = path.agreed(endpoint(&theirs)?);
    let is_software = !shared.providers.known().is_hardware(&path.collector);
    let admitting = Arc::clone(shared);
    let admit = move || Member::admit(&admitting, &context, theirs, sided, is_software);
    let (member, connected, outbox) = apart(admit, local).await?;
    say(writer, &FromServer::Connected(connected)).await?;
    Ok(Admitted { member, path, outbox })
}

async fn serve(
    shared: &Arc<Shared>,
    admitted: Admitted,
    reader: StreamReader,
    writer: StreamWriter,
) -> String {
    let Admitted { member, path, outbox } = admitted;
    // Within a host, a process that was stopped may go on in the middle of a copy: docs/spec/kv.md, 3.5.
    let ends_by_silence = path.is_network();
    tokio::select! {
        reason = read(shared, member.number, reader, ends_by_silence) => reason,
        reason = write(writer, outbox, shared.lease) => reason,
    }
}

async fn write(
    mut writer: StreamWriter,
    mut outbox: mpsc::UnboundedReceiver<FromServer>,
    lease: Duration,
) -> String {
    let period = Lease::new(Instant::now(), lease).period();
    loop {
        let next = timeout(period, outbox.recv()).await;
        let message = match next {
            Ok(Some(message)) => message,
            Ok(None) => return "the server has nothing to say to it any more".to_owned(),
            Err(_) => FromServer::Ping {},
        };
        match timeout(lease, say(&mut writer, &message)).await {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => return reason,
            Err(_) => return format!("it has read nothing for {lease:?}"),
        }
    }
}

async fn read(
    shared: &Arc<Shared>,
    number: u32,
    mut reader: StreamReader,
    ends_by_silence: bool,
) -> String {
    let mut lease = Lease::new(Instant::now(), shared.lease);
    loop {
        let received = if ends_by_silence {
            reader.recv_within(&mut lease, MESSAGE_BYTES).await
        } else {
            reader.recv(MESSAGE_BYTES).await
        };
        let understood = received.map_err(|e| e.to_string()).and_then(|bytes| decode(&bytes));
        let message = match understood {
            Ok(message) => message,
            Err(reason) => return reason,
        };
        if let Some(reason) = obey(shared, number, message) {
            return reason;
        }
    }
}

/// Does what a client asks for; returns why it is the last.
fn obey(shared: &Shared, number: u32, message: FromClient) -> Option<String> {
    let mut books = shared.books.lock();
    let answer = match message {
        FromClient::Take { units, count } => {
            if units == 0 || units > class_units(CLASSES - 1) {
                return Some(format!("it asked for a block of {units} units"));
            }
            let count = (count as usize).clamp(1, BLOCKS_MAX);
            let (blocks, why) = match books.store.take(number, units, count) {
                Ok(blocks) => (blocks, None),
                Err(NoBlock::Later) => (Vec::new(), Some(Why::Later)),
                Err(NoBlock::Full) => (Vec::new(), Some(Why::Full)),
            };
            Some(FromServer::Blocks { units, blocks, why })
        }
        FromClient::Report(report) => {
            books.store.report(number, &report);
            None
        }
        FromClient::Answer { epoch } => {
            books.store.answer(number, epoch);
            None
        }
        FromClient::Grow { generation } => {
            books.store.ask_growth(generation);
            None
        }
        FromClient::Counts {} => {
            let cpu_s = process_cpu_time().as_secs_f64();
            Some(FromServer::Counts { counts: books.store.counts(), cpu_s })
        }
        FromClient::Ping {} => None,
        FromClient::Goodbye {} => return Some("it said goodbye".to_owned()),
        FromClient::Hello { .. } | FromClient::Connect { .. } => {
            return Some("it said hello twice".to_owned());
        }
    };
    if let (Some(answer), Some(tell)) = (answer, books.tell.get(&number)) {
        let _ = tell.send(answer);
    }
    shared.wake_keeper(books);
    None
}
