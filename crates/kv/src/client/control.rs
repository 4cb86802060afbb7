//! A client's control connection: a thread that keeps the lease, answers questions and passes reports on.
use super::ClientConfig;
use crate::error::KvError;
use crate::layout::Table;
use crate::protocol::{
    BLOCKS_MAX, Connected, FromClient, FromServer, LABEL, MESSAGE_BYTES, VERSION, Why, decode,
    encode, endpoint,
};
use crate::store::{Counts, Report};
use catchment_providers::{Ends, Providers};
use catchment_session::host::Host;
use catchment_session::io::{SecuredStream, StreamReader, StreamWriter};
use catchment_session::lease::Lease;
use catchment_session::message::SessionPath;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Context, Endpoint};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// From connecting to the last message before operations.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// So long a report waits for more.
const REPORT_PERIOD: Duration = Duration::from_millis(100);

/// What the thread of operations and that of the control connection share.
pub(super) struct Shared {
    /// Odd while an operation runs; counted up when one begins and when it ends.
    turns: AtomicU64,
    /// The last question that operations know of.
    epoch: AtomicU32,
    /// The table that they begin at.
    table: AtomicU64,
    /// A question waits for the end of this turn; 0 if none does.
    awaited: AtomicU64,
    pub(super) report: Mutex<Report>,
    pub(super) lost: Arc<Mutex<Option<String>>>,
    pub(super) orders: mpsc::UnboundedSender<Order>,
}

/// What an operation begins with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning {
    pub(super) epoch: u32,
    pub(super) table: u64,
}

impl Shared {
    /// Notes that an operation begins.
    #[inline]
    pub(super) fn begin(&self) -> Beginning {
        self.turns.fetch_add(1, Ordering::SeqCst);
        let epoch = self.epoch.load(Ordering::SeqCst);
        Beginning { epoch, table: self.table.load(Ordering::SeqCst) }
    }

    /// Notes that it has ended and that what it did is in the report.
    #[inline]
    pub(super) fn end(&self) {
        let turn = self.turns.fetch_add(1, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst) == turn {
            self.awaited.store(0, Ordering::SeqCst);
            let _ = self.orders.send(Order::Answer { turn });
        }
    }

    /// Takes note of a question, for operations that begin from now on. Returns the turn of one that is running and
    /// began before; [`Order::Answer`] with it comes when it ends.
    fn hear(&self, epoch: u32, table: u64) -> Option<u64> {
        self.table.store(table, Ordering::SeqCst);
        self.epoch.store(epoch, Ordering::SeqCst);
        let turn = self.turns.load(Ordering::SeqCst);
        if turn.is_multiple_of(2) {
            return None;
        }
        self.awaited.store(turn, Ordering::SeqCst);
        // It may have ended before it could see that somebody waits.
        let ended = self.turns.load(Ordering::SeqCst) != turn;
        let answers_now = ended && self.awaited.swap(0, Ordering::SeqCst) == turn;
        (!answers_now).then_some(turn)
    }
}

/// What the thread of operations asks for.
pub(super) enum Order {
    /// The operation of this turn, for which a question waited, has ended.
    Answer {
        turn: u64,
    },
    /// Say what was done.
    Report,
    Take {
        units: u32,
        count: u32,
    },
    Grow {
        generation: u32,
    },
    Counts,
    /// The end, with a report.
    Goodbye,
    /// The end, at once.
    Abandon,
}

/// What comes back.
pub(super) enum Reply {
    Blocks { units: u32, blocks: Vec<u32>, why: Option<Why> },
    Counts(Counts, f64),
}

/// A connection on which client and server have agreed on a path.
pub(super) struct Greeted {
    reader: StreamReader,
    writer: StreamWriter,
    pub(super) context: Arc<dyn Context>,
    pub(super) path: SessionPath,
    pub(super) reason: String,
    lease: Duration,
}

fn lost(error: impl ToString) -> KvError {
    KvError::Lost(error.to_string())
}

async fn hear(reader: &mut StreamReader) -> Result<FromServer, KvError> {
    understand(&reader.recv(MESSAGE_BYTES).await.map_err(lost)?)
}

fn understand(bytes: &[u8]) -> Result<FromServer, KvError> {
    match decode(bytes).map_err(KvError::Lost)? {
        FromServer::Refused { reason, remedy } => Err(KvError::Refused { reason, remedy }),
        message @ (FromServer::Welcome { .. }
        | FromServer::Connected(_)
        | FromServer::Blocks { .. }
        | FromServer::Question { .. }
        | FromServer::Counts { .. }
        | FromServer::Ping {}) => Ok(message),
    }
}

async fn say(writer: &mut StreamWriter, message: &FromClient) -> Result<(), KvError> {
    writer.send(&encode(message), MESSAGE_BYTES).await.map_err(lost)
}

/// Connects and agrees on a path.
pub(super) async fn greet(config: &ClientConfig) -> Result<Greeted, KvError> {
    let stream = SecuredStream::connect(&config.server, &config.security, LABEL, HANDSHAKE).await?;
    let ends = Ends { local: stream.local_ip(), peer: stream.peer().ip() };
    let (mut reader, mut writer) = stream.split();
    let offers = Providers::new(&config.providers).for_source(ends);
    let hello = FromClient::Hello {
        version: VERSION,
        host: Host::read().map_err(lost)?,
        offers: offers.list(),
        missing: offers.missing.clone(),
        sided: config.sided,
    };
    say(&mut writer, &hello).await?;
    let FromServer::Welcome { path, reason, lease_ms } = hear(&mut reader).await? else {
        return Err(lost("the answer to hello is no welcome"));
    };
    let context = offers.context(&path).cloned();
    let context = context.ok_or_else(|| lost("the server chose what was not offered"))?;
    let lease = Duration::from_millis(lease_ms);
    Ok(Greeted { reader, writer, context, path, reason, lease })
}

impl Greeted {
    /// Returns the server's lease: who is silent for so long is gone.
    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    /// Tells the server of a queue pair; returns the server's, and its memory.
    pub(super) async fn connect(
        &mut self,
        ours: Endpoint,
    ) -> Result<(Endpoint, Connected, Table), KvError> {
        say(&mut self.writer, &FromClient::Connect { endpoint: ours.to_string() }).await?;
        let FromServer::Connected(connected) = hear(&mut self.reader).await? else {
            return Err(lost("no queue pair came after welcome"));
        };
        let theirs = endpoint(&connected.endpoint).map_err(KvError::Lost)?;
        let table = connected.table().ok_or_else(|| lost("the server's table is none"))?;
        Ok((self.path.agreed(theirs), connected, table))
    }

    /// Runs the connection until it ends.
    pub(super) async fn run(
        self,
        shared: Arc<Shared>,
        orders: mpsc::UnboundedReceiver<Order>,
        replies: std_mpsc::Sender<Reply>,
    ) {
        let (questions, asked) = mpsc::unbounded_channel();
        let lease = self.lease;
        let reason = tokio::select! {
            reason = read(self.reader, &questions, &replies, lease) => reason,
            reason = write(self.writer, &shared, orders, asked, lease) => reason,
        };
        // Operations stop before the server could think so.
        shared.lost.lock().get_or_insert(reason);
    }
}

async fn read(
    mut reader: StreamReader,
    questions: &mpsc::UnboundedSender<(u32, u64)>,
    replies: &std_mpsc::Sender<Reply>,
    time: Duration,
) -> String {
    let mut lease = Lease::new(Instant::now(), time);
    loop {
        let received = reader.recv_within(&mut lease, MESSAGE_BYTES).await;
        match received.map_err(lost).and_then(|bytes| understand(&bytes)) {
            Ok(FromServer::Question { epoch, table }) => {
                let _ = questions.send((epoch, table));
            }
            Ok(FromServer::Blocks { units, blocks, why }) => {
                let _ = replies.send(Reply::Blocks { units, blocks, why });
            }
            Ok(FromServer::Counts { counts, cpu_s }) => {
                let _ = replies.send(Reply::Counts(counts, cpu_s));
            }
            Ok(FromServer::Ping {}) => {}
            Ok(
                FromServer::Welcome { .. } | FromServer::Connected(_) | FromServer::Refused { .. },
            ) => return "it said welcome twice".to_owned(),
            Err(error) => return error.reason(),
        }
    }
}

/// Passes on what was done so far, in messages that are not too long.
async fn send_report(writer: &mut StreamWriter, shared: &Shared) -> Result<(), KvError> {
    let mut report = std::mem::take(&mut *shared.report.lock());
    while !report.is_empty() {
        let mut part = Report {
            inserted: std::mem::take(&mut report.inserted),
            deleted: std::mem::take(&mut report.deleted),
            revived: std::mem::take(&mut report.revived),
            ..Report::default()
        };
        let lists = [
            (&mut part.linked, &mut report.linked),
            (&mut part.superseded, &mut report.superseded),
            (&mut part.returned, &mut report.returned),
        ];
        for (part, all) in lists {
            *part = all.drain(..all.len().min(BLOCKS_MAX)).collect();
        }
        say(writer, &FromClient::Report(part)).await?;
    }
    Ok(())
}

enum Next {
    Order(Option<Order>),
    Question(Option<(u32, u64)>),
    Tick,
}

async fn write(
    mut writer: StreamWriter,
    shared: &Shared,
    mut orders: mpsc::UnboundedReceiver<Order>,
    mut questions: mpsc::UnboundedReceiver<(u32, u64)>,
    time: Duration,
) -> String {
    let period = Lease::new(Instant::now(), time).period();
    let mut pinged = Instant::now();
    let mut unanswered: Option<(u32, u64)> = None;
    loop {
        let tick = tokio::time::sleep(REPORT_PERIOD.min(period));
        let next = tokio::select! {
            order = orders.recv() => Next::Order(order),
            question = questions.recv() => Next::Question(question),
            () = tick => Next::Tick,
        };
        let message = match next {
            Next::Order(None | Some(Order::Goodbye)) | Next::Question(None) => {
                let _ = send_report(&mut writer, shared).await;
                let _ = say(&mut writer, &FromClient::Goodbye {}).await;
                writer.close().await;
                return "this client has said goodbye".to_owned();
            }
            Next::Order(Some(Order::Abandon)) => return "a request of it failed".to_owned(),
            // One of an earlier question may come late.
            Next::Order(Some(Order::Answer { turn })) => unanswered
                .take_if(|(_, awaited)| *awaited == turn)
                .map(|(epoch, _)| FromClient::Answer { epoch }),
            Next::Question(Some((epoch, table))) => {
                unanswered = shared.hear(epoch, table).map(|turn| (epoch, turn));
                unanswered.is_none().then_some(FromClient::Answer { epoch })
            }
            Next::Order(Some(Order::Report)) => None,
            Next::Order(Some(Order::Take { units, count })) => {
                Some(FromClient::Take { units, count })
            }
            Next::Order(Some(Order::Grow { generation })) => Some(FromClient::Grow { generation }),
            Next::Order(Some(Order::Counts)) => Some(FromClient::Counts {}),
            Next::Tick if pinged.elapsed() >= period => {
                pinged = Instant::now();
                Some(FromClient::Ping {})
            }
            Next::Tick => None,
        };
        let said = async {
            send_report(&mut writer, shared).await?;
            match &message {
                Some(message) => say(&mut writer, message).await,
                None => Ok(()),
            }
        };
        if let Err(error) = said.await {
            return error.reason();
        }
    }
}

/// Makes what both threads share.
pub(super) fn shared(
    connected: &Connected,
    lost: Arc<Mutex<Option<String>>>,
) -> (Arc<Shared>, mpsc::UnboundedReceiver<Order>) {
    let (orders, received) = mpsc::unbounded_channel();
    let shared = Shared {
        turns: AtomicU64::new(0),
        epoch: AtomicU32::new(connected.epoch),
        table: AtomicU64::new(connected.table),
        awaited: AtomicU64::new(0),
        report: Mutex::new(Report::default()),
        lost,
        orders,
    };
    (Arc::new(shared), received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, Server, ServerConfig};
    use catchment_provider_shm::seqpacket;
    use catchment_providers::ProviderSet;
    use catchment_session::io::ServerSecurity;
    use catchment_session::path::PathRules;
    use catchment_verbs::Gid;
    use catchment_verbs::provider::random_bytes;
    use sha2::{Digest as _, Sha256};

    fn quiet() -> (Arc<Shared>, mpsc::UnboundedReceiver<Order>) {
        let connected = Connected {
            endpoint: String::new(),
            addr: 0,
            rkey: 0,
            bytes: 0,
            seed: (0, 0),
            table: 1,
            epoch: 0,
            may_write: true,
        };
        shared(&connected, Arc::default())
    }

    #[test]
    fn a_client_whose_process_does_not_answer_holds_nobody_up() {
        let rules = PathRules { require: vec!["shm".to_owned()], ..PathRules::default() };
        let providers = ProviderSet::default().rules(rules);
        // Shorter than the time that an answer of a process may take.
        let server = Server::start(ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            memory_bytes: 4 << 20,
            lease: Duration::from_secs(2),
            providers: providers.clone(),
            security: ServerSecurity::default(),
        })
        .unwrap();
        let config = ClientConfig { providers, ..ClientConfig::new(server.local().clone()) };
        let mut other = Client::connect(&config).unwrap();

        // It stands still, as after SIGSTOP: the system accepts for it, and nobody answers.
        let gid = Gid(random_bytes().unwrap());
        let digest: [u8; 32] = Sha256::digest(gid.0).into();
        let name: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let address = seqpacket::abstract_address(&format!("catchment-shm-{name}")).unwrap();
        let _silent = seqpacket::listen(&address).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let refused = runtime.block_on(async {
            let mut greeted = greet(&config).await.unwrap();
            let ours = Endpoint { gid, qpn: 1, psn: 1, net: None };
            greeted.connect(ours).await.err().unwrap().to_string()
        });
        assert!(refused.contains("did not answer within 5s"), "{refused}");
        other.put(b"key", b"value").unwrap();
        assert_eq!(other.get(b"key").unwrap().unwrap().bytes, b"value");
    }

    #[test]
    fn a_question_waits_for_the_operation_that_runs_and_for_no_other() {
        let (shared, mut orders) = quiet();
        assert_eq!(shared.hear(1, 2), None);
        let began = shared.begin();
        assert_eq!((began.epoch, began.table), (1, 2));
        let awaited = shared.hear(2, 3);
        assert!(awaited.is_some() && orders.try_recv().is_err());
        shared.end();
        assert!(matches!(orders.try_recv(), Ok(Order::Answer { turn }) if Some(turn) == awaited));
        assert_eq!(shared.begin().epoch, 2);
        shared.end();
        assert!(orders.try_recv().is_err(), "nobody waited for it");
    }

    #[test]
    fn each_question_beside_operations_is_answered_once() {
        let (shared, mut orders) = quiet();
        let working = Arc::clone(&shared);
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let worker = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let began = working.begin();
                std::thread::yield_now();
                assert!(began.epoch <= working.epoch.load(Ordering::SeqCst));
                working.end();
            }
        });
        for epoch in 1..2000 {
            let Some(awaited) = shared.hear(epoch, 1) else { continue };
            loop {
                match orders.try_recv() {
                    Ok(Order::Answer { turn }) if turn == awaited => break,
                    _ => std::thread::yield_now(),
                }
            }
            assert_ne!(shared.turns.load(Ordering::SeqCst), awaited);
        }
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
    }
}
