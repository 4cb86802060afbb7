//! The server: memory, the books, and a control connection for each client.
mod port;
mod request;
mod session;

use crate::error::ServeError;
use crate::layout::{MEMORY_BYTES_MAX, MEMORY_BYTES_MIN};
use crate::memory::OwnMemory;
use crate::protocol::FromServer;
use crate::store::{Counts, Store, Urgency};
use catchment_providers::{ProviderSet, Providers};
use catchment_session::host::Host;
use catchment_session::io::{Address, Arriving, Place, ServerSecurity, StreamListener};
use catchment_verbs::mem::{Region, RegionOptions};
use catchment_verbs::provider::random_bytes;
use catchment_verbs::sync::Mutex;
use port::Ports;
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Groups of the first table, as a power of two.
const FIRST_LOG2_GROUPS: u32 = 7;
/// Words that are moved before other work has a turn.
const MOVES: usize = 2048;
/// Time between two questions that nobody waits for: each takes a message of every client, and a processor that clients share.
const PERIOD: Duration = Duration::from_millis(10);
/// Connections that make their handshake at a time.
const HANDSHAKES: usize = 256;

/// How to serve.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients connect.
    pub listen: Address,
    /// Bytes of the store, the index included. All of it is taken at once.
    pub memory_bytes: u64,
    /// A client that is silent for so long is gone.
    pub lease: Duration,
    /// What clients may reach the memory through.
    pub providers: ProviderSet,
    /// How control connections are protected.
    pub security: ServerSecurity,
}

/// The store's books, and how each client is told something.
struct Books {
    store: Store,
    tell: BTreeMap<u32, mpsc::UnboundedSender<FromServer>>,
    /// Whoever moves words and asks questions sleeps until there is a reason for it.
    keeper_sleeps: bool,
}

struct Shared {
    memory: OwnMemory,
    books: Mutex<Books>,
    ports: Ports,
    providers: Providers,
    host: Host,
    lease: Duration,
    /// There is something to move or to ask.
    attend: Notify,
}

impl Shared {
    /// Wakes whoever moves words and asks questions, if what was done to the books is a reason for it: to be woken takes
    /// as long as a PUT.
    fn wake_keeper(&self, mut books: MutexGuard<'_, Books>) {
        let wakes = match books.store.urgency() {
            Urgency::Now => true,
            Urgency::Soon => std::mem::take(&mut books.keeper_sleeps),
            Urgency::None => false,
        };
        drop(books);
        if wakes {
            self.attend.notify_one();
        }
    }
}

/// A running server. It ends when it is dropped; all that it stored is gone then.
pub struct Server {
    local: Address,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Takes the memory and listens.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(config: Config) -> Result<Self, ServeError> {
        if !(MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&config.memory_bytes) {
            return Err(ServeError::Size(config.memory_bytes));
        }
        let region = Region::alloc(config.memory_bytes as usize, RegionOptions::default())?;
        let memory = OwnMemory(Arc::clone(&region));
        let host = |error: String| ServeError::Host(error);
        let secret = || random_bytes().map(u64::from_ne_bytes);
        let seed = secret().and_then(|a| Ok((a, secret()?)));
        let seed = seed.map_err(|error| host(error.to_string()))?;
        let store = Store::new(&memory, seed, FIRST_LOG2_GROUPS);
        let store = store.ok_or(ServeError::Size(config.memory_bytes))?;
        let shared = Arc::new(Shared {
            memory,
            books: Mutex::new(Books { store, tell: BTreeMap::new(), keeper_sleeps: false }),
            ports: Ports::new(region),
            providers: Providers::new(&config.providers),
            host: Host::read().map_err(|error| host(error.to_string()))?,
            lease: config.lease,
            attend: Notify::new(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let bound = StreamListener::bind(&config.listen, config.security);
        let listener = runtime.block_on(bound)?;
        let local = listener.local().clone();
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("kv-server".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(&serving, listener) => {}
                    () = keep(&serving) => {}
                    _ = stopped => {}
                }
            });
            // A process that connects and stands still may keep one of its threads for seconds.
            runtime.shutdown_background();
        })?;
        Ok(Self { local, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns where it listens, with the port that the system chose.
    pub fn local(&self) -> &Address {
        &self.local
    }

    /// Returns numbers for people.
    pub fn counts(&self) -> Counts {
        self.shared.books.lock().store.counts()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.shared.ports.end();
    }
}

async fn accept(shared: &Arc<Shared>, listener: StreamListener) {
    let serve = |arriving: Arriving, place: Place| {
        let shared = Arc::clone(shared);
        async move { session::run(&shared, arriving, place).await }
    };
    listener.serve_each(HANDSHAKES, serve).await;
}

/// Moves words to a larger table, and asks clients what lets memory be used again.
async fn keep(shared: &Shared) {
    let mut due = Instant::now();
    loop {
        while shared.books.lock().grow(&shared.memory, MOVES) {
            tokio::task::yield_now().await;
        }
        let until = shared.books.lock().attend(&shared.memory, &mut due);
        match until {
            Until::Called => shared.attend.notified().await,
            Until::Due => drop(timeout_at(due, shared.attend.notified()).await),
            // However fast reasons come, clients have their turn.
            Until::Now => tokio::task::yield_now().await,
        }
    }
}

/// How long the keeper of the books sleeps.
enum Until {
    Called,
    Due,
    Now,
}

impl Books {
    /// Moves some words; returns whether there are more.
    fn grow(&mut self, memory: &OwnMemory, moves: usize) -> bool {
        (0..moves).all(|_| self.store.grow(memory))
    }

    /// Asks a question if one is due; returns when to look again.
    fn attend(&mut self, memory: &OwnMemory, due: &mut Instant) -> Until {
        let now = Instant::now();
        let urgency = self.store.urgency();
        self.keeper_sleeps = urgency == Urgency::None;
        match urgency {
            Urgency::None => Until::Called,
            Urgency::Soon if now < *due => Until::Due,
            Urgency::Soon | Urgency::Now => {
                self.ask(memory);
                *due = now + PERIOD;
                Until::Now
            }
        }
    }

    /// Asks the next question, if there is one.
    fn ask(&mut self, memory: &OwnMemory) {
        while let Some(question) = self.store.ask(memory) {
            let (epoch, table) = (question.epoch, question.table.encode());
            for tell in self.tell.values() {
                let _ = tell.send(FromServer::Question { epoch, table });
            }
            if !self.tell.is_empty() {
                break;
            }
        }
    }
}
