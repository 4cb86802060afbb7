//! A collector: receives frames from any number of sources.
//!
//! In: connections of sources, at a listener, and blocks, in rings that the sources write. Out:
//! frames, to a [`Sink`], which gets those of a device in order and once.
//! A source that dies, lies or stalls, and a sink that refuses or does not return, affect no other.
//! The number of threads does not depend on the number of sources, and a block takes no lock.
//!
//! ```text
//! listener ─ session (a task each) ─ ring in registered memory
//!                                      │ receive (a few threads for all)
//!                                      ▼
//!                                  order ─ stream ─ workers (threads) ─ device ─ sink
//! ```
//!
//! | file | |
//! |---|---|
//! | `state` | what all sessions share, and which of them has which device |
//! | `session`, `vitals` | one session from Hello to its end, and what must wake its task |
//! | `ring`, `limits` | registered memory and queue pair of a session; what they may take |
//! | `receive` | takes blocks out of all rings, puts them in order |
//! | `stream`, `growing`, `handover` | one device in one session: how its blocks get to a worker |
//! | `ready`, `workers`, `resting` | streams that wait for a worker, the threads that call the sinks, streams whose sink refused |
//! | `devices`, `device` | devices across sessions |
//! | `owners` | which certificate may send which device |
//! | `again` | how often a damaged frame is asked for again |
//! | `refusals` | what a session is refused for, with the remedy |
mod again;
mod device;
mod devices;
mod growing;
#[cfg(test)]
mod growing_test;
mod handover;
#[cfg(test)]
mod handover_test;
mod limits;
mod owners;
mod primitives;
mod ready;
mod receive;
mod refusals;
mod resting;
mod ring;
mod session;
mod state;
mod stream;
mod vitals;
mod workers;

pub use owners::{AllowRule, AllowRuleError, OwnersError, forget_owner};

use crate::in_clear::InClear;
use crate::observe::{CollectorMetrics, CollectorSnapshot};
use crate::providers::{KEYS_IN_CLEAR, ProviderOptions, ProviderSet, Providers};
use crate::session::host::{Host, HostError};
use crate::session::io::{
    Address, AddressError, BindError, Listener, ListenerConfig, Rejected, ServerSecurity,
    raise_descriptor_limit,
};
use crate::session::path::{PathError, PathRules};
use crate::session::refusal::{Refusal, RefusalCode};
use crate::session::reread::ServerTls;
use crate::session::tls::{TlsError, TlsFiles};
use crate::sink::{CallbackSink, NullSink, Sink, SinkError, Staging};
use catchment_verbs::sync::Mutex;
use catchment_verbs::wait::BackoffPolicy;
use catchment_verbs::{ModifyError, VerbsError};
use devices::{Devices, OF_ONE_SOURCE};
use owners::Owners;
use receive::ReceiveThreads;
use ring::RingBudget;
use state::{CollectorState, Sessions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use workers::Workers;

/// How long [`Collector::stop`] waits for sessions and sinks at most.
pub const END_LIMIT: Duration = Duration::from_secs(10);
/// How often it checks whether devices have something to report, and whether sessions need
/// attention.
const CHECK_SESSIONS: Duration = Duration::from_millis(100);
/// Threads of a kind that it starts at most by itself.
const THREADS_MOST: usize = 4;
/// Minimum time for the sinks.
const SINKS_LIMIT: Duration = Duration::from_millis(500);

/// Describes a collector.
pub struct CollectorBuilder {
    listen: String,
    sink: Box<dyn Sink>,
    tls: Option<TlsFiles>,
    insecure: bool,
    workers: usize,
    receive_threads: usize,
    lease: Duration,
    gap_limit: Duration,
    look_every: Duration,
    ring_bytes_max: u64,
    ring_bytes_total: u64,
    providers: ProviderSet,
    devices_max: usize,
    allowed: Vec<AllowRule>,
    owners: Option<PathBuf>,
}

impl CollectorBuilder {
    /// Sets where the frames go. By default nowhere: they are verified and counted.
    #[must_use]
    pub fn sink(mut self, sink: impl Sink) -> Self {
        self.sink = Box::new(sink);
        self
    }

    /// Calls `function` with every frame; see [`CallbackSink`].
    #[must_use]
    pub fn on_frame(self, function: impl Fn(crate::Frame) + Send + Sync + 'static) -> Self {
        self.sink(CallbackSink::new(function))
    }

    /// Sets the certificates for control connections; needed to listen off loopback. They are read again
    /// when the files change, for connections from then on.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Allows listening off loopback without TLS: anyone who reaches the address can send.
    #[must_use]
    pub fn insecure(self, insecure: bool) -> Self {
        Self { insecure, ..self }
    }

    /// Sets the number of threads that deliver frames to the sink, at least 1. By default one per
    /// processor, at most 4.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Sets the number of threads that take blocks out of all rings, at least 1. By default one per two
    /// processors, at most 4.
    #[must_use]
    pub fn receive_threads(mut self, threads: usize) -> Self {
        self.receive_threads = threads.max(1);
        self
    }

    /// Sets how long a source may be silent before it counts as dead, 100 ms to 10 min. By default 10 s.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        let lease = lease.clamp(Duration::from_millis(100), Duration::from_secs(600));
        Self { lease, ..self }
    }

    /// Sets how long frames may wait for an earlier one of their device that has not come, before it is asked for
    /// again as damaged beyond recognition; 100 ms to 10 min. By default a minute: where a controller grants the right to
    /// send, a frame that is too late waits while newer ones pass it.
    #[must_use]
    pub fn gap_limit(self, limit: Duration) -> Self {
        let gap_limit = limit.clamp(Duration::from_millis(100), Duration::from_secs(600));
        Self { gap_limit, ..self }
    }

    /// Sets the longest pause between two polls for frames, while frames arrive and the provider has no
    /// doorbell, as RNICs have none. By default 1 ms, which costs about a hundredth of a processor per
    /// source, and half of it in latency. Zero: the receive threads poll all the time, which takes a
    /// processor each.
    #[must_use]
    pub fn look_every(mut self, pause: Duration) -> Self {
        self.look_every = pause.min(Duration::from_secs(1));
        self
    }

    /// Sets the maximum memory for the ring of one source. By default 1 GiB.
    #[must_use]
    pub fn ring_bytes_max(mut self, bytes: u64) -> Self {
        self.ring_bytes_max = bytes;
        self
    }

    /// Sets the maximum memory for the rings of all sources together; a source that would need more is
    /// refused and retries. The same limit applies to frames of several blocks; a device that would need
    /// more waits. By default half of the host's memory.
    #[must_use]
    pub fn ring_bytes_total(mut self, bytes: u64) -> Self {
        self.ring_bytes_total = bytes;
        self
    }

    /// Sets how many devices one source may have, and all sources of one certificate together. By default
    /// 4,096.
    #[must_use]
    pub fn devices_max(mut self, devices: usize) -> Self {
        self.devices_max = devices;
        self
    }

    /// Lets only those certificates send a device that a rule allows. By default a device name belongs to
    /// the first certificate that sent a frame of it. Without certificates everybody may use every name.
    #[must_use]
    pub fn allow(mut self, rules: impl IntoIterator<Item = AllowRule>) -> Self {
        self.allowed.extend(rules);
        self
    }

    /// Sets the file that keeps over restarts whose device names are. By default there is none.
    #[must_use]
    pub fn owners_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.owners = Some(path.into());
        self
    }

    /// Sets which providers this side may use, with which settings and rules. By default all, with their
    /// default settings.
    #[must_use]
    pub fn providers(self, providers: ProviderSet) -> Self {
        Self { providers, ..self }
    }

    /// Sets which providers this side may use.
    #[must_use]
    pub fn path_rules(mut self, rules: PathRules) -> Self {
        self.providers.rules = rules;
        self
    }

    /// Sets the options of a provider, such as [`RoceOptions`](crate::roce::RoceOptions) or
    /// [`IbverbsOptions`](crate::ibverbs::IbverbsOptions); or adds a provider of another crate.
    #[must_use]
    pub fn provider(mut self, options: impl ProviderOptions + 'static) -> Self {
        self.providers.set(options);
        self
    }

    /// Listens, and returns when sources can connect.
    ///
    /// # Errors
    /// [`CollectorError`], with what to do.
    pub fn start(self) -> Result<Collector, CollectorError> {
        self.providers.rules.check(&self.providers.known())?;
        if self.providers.authenticates() && self.tls.is_none() {
            return Err(CollectorError::KeysInClear);
        }
        let address: Address = self.listen.parse()?;
        let tls = self.tls.map(ServerTls::open).transpose()?;
        let security = ServerSecurity { tls: tls.clone(), insecure: self.insecure };
        self.sink.begin()?;
        let owners = Owners::new(self.allowed, self.owners)?;
        let metrics = CollectorMetrics::new();
        raise_descriptor_limit();
        let runtime = runtime()?;
        let rejected = on_rejected(metrics.clone());
        let bind = Listener::bind(&address, security, ListenerConfig::default(), rejected);
        let listener = runtime.block_on(bind)?;
        let local = listener.local().clone();
        let workers = Workers::start(self.workers)
            .map_err(|e| CollectorError::Os("start a worker thread", e))?;
        let (receive, receiving) =
            ReceiveThreads::start(self.receive_threads, workers.queue().clone(), self.look_every)
                .map_err(|e| CollectorError::Os("start a receive thread", e))?;
        let state = Arc::new(CollectorState {
            providers: Providers::new(&self.providers),
            host: Host::read()?,
            lease: self.lease,
            gap_limit: self.gap_limit,
            ring_bytes_max: self.ring_bytes_max,
            rings: RingBudget::new(self.ring_bytes_total),
            staging: Staging::new(self.ring_bytes_total),
            devices: Arc::new(Devices::new(self.sink, metrics.clone(), self.devices_max, owners)),
            receive,
            metrics,
            sessions: Mutex::new(Sessions::default()),
            unsettled: Arc::default(),
            in_clear: InClear::default(),
        });
        let asked = Arc::downgrade(&state);
        let network = move || asked.upgrade().map_or(Vec::new(), |e| e.providers.counters());
        state.metrics.set_network(network);
        runtime.spawn(accept(listener, state.clone()));
        runtime.spawn(watch_sessions(state.clone()));
        Ok(Collector {
            state,
            receiving: Some(receiving),
            workers: Some(workers),
            local,
            tls,
            runtime: Some(runtime),
        })
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, CollectorError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("catchment-ctl")
        .enable_all()
        .build()
        .map_err(|e| CollectorError::Os("start the control thread", e))
}

fn on_rejected(metrics: Arc<CollectorMetrics>) -> crate::session::io::OnRejected {
    Arc::new(move |rejected: &Rejected| metrics.session_refused(rejected.reason.label()))
}

async fn accept(mut listener: Listener, state: Arc<CollectorState>) {
    while let Some(accepted) = listener.accept().await {
        tokio::spawn(session::run(state.clone(), accepted));
    }
}

async fn watch_sessions(state: Arc<CollectorState>) {
    loop {
        tokio::time::sleep(CHECK_SESSIONS).await;
        state.check_sessions();
    }
}

/// A running collector.
///
/// ```no_run
/// use catchment::collector::Collector;
/// use catchment::observe::{Dashboard, DashboardConfig};
/// use catchment::sink::DirectorySink;
///
/// let collector = Collector::builder("127.0.0.1:7117")
///     .sink(DirectorySink::new("out"))
///     .start()?;
/// println!("sources connect to {}", collector.local_addr());
/// let page = Dashboard::start(DashboardConfig::default(), collector.metrics().clone())?;
/// println!("live page: {}", page.url());
/// std::thread::sleep(std::time::Duration::from_secs(60));
/// let report = collector.stop();
/// println!("{} frames, {} lost", report.totals.frames_received, report.totals.frames_lost);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Collector {
    state: Arc<CollectorState>,
    receiving: Option<receive::Running>,
    workers: Option<Workers>,
    local: Address,
    tls: Option<Arc<ServerTls>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Collector {
    /// Begins to describe a collector that listens at `listen`: `HOST:PORT` (port 0: the system
    /// chooses) or `unix:PATH`.
    pub fn builder(listen: impl Into<String>) -> CollectorBuilder {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        CollectorBuilder {
            listen: listen.into(),
            sink: Box::new(NullSink),
            tls: None,
            insecure: false,
            workers: cores.min(THREADS_MOST),
            receive_threads: (cores / 2).clamp(1, THREADS_MOST),
            lease: Duration::from_secs(10),
            gap_limit: Duration::from_secs(60),
            look_every: BackoffPolicy::default().longest,
            ring_bytes_max: 1 << 30,
            ring_bytes_total: limits::half_of_memory(),
            providers: ProviderSet::default(),
            devices_max: OF_ONE_SOURCE,
            allowed: Vec::new(),
            owners: None,
        }
    }

    /// Returns where sources connect, with the port that the system chose.
    pub fn local_addr(&self) -> &Address {
        &self.local
    }

    /// Returns the certificates that it presents, if it has any: to read them again, or for a page to present
    /// them as well.
    pub fn tls(&self) -> Option<&Arc<ServerTls>> {
        self.tls.as_ref()
    }

    /// Returns the live counters, for a page or a log.
    pub fn metrics(&self) -> &Arc<CollectorMetrics> {
        &self.state.metrics
    }

    /// Returns the devices whose frames the sink refuses now, by name, and why.
    pub fn refusing(&self) -> Vec<(Arc<str>, String)> {
        self.state.devices.refusing()
    }

    /// Ends all sessions, delivers committed frames to the sinks, and returns the final counters.
    /// Sources will reconnect.
    ///
    /// A sink that refuses frames or does not return is waited for at most 10 s. Frames it did not take
    /// are abandoned, which is logged; living sources still have them and send them to the next
    /// collector. A sink call that never returns keeps its thread, and nothing else.
    pub fn stop(self) -> CollectorSnapshot {
        self.stop_within(END_LIMIT)
    }

    /// Stops as [`Collector::stop`] does, with another limit for sinks that do not take their frames.
    pub fn stop_within(mut self, limit: Duration) -> CollectorSnapshot {
        self.end(limit);
        self.state.metrics.snapshot()
    }

    fn end(&mut self, limit: Duration) {
        let refusal = Refusal::new(
            RefusalCode::ShuttingDown,
            "the collector is shutting down",
            "restart it; the source reconnects automatically",
        );
        let deadline = Instant::now() + limit;
        while self.state.running() > 0 && Instant::now() < deadline {
            self.state.end_all(&refusal);
            // Sessions end on the control thread, which sends no notification: poll.
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(200));
        }
        if let Some(receiving) = self.receiving.take() {
            receiving.end();
        }
        if let Some(workers) = self.workers.take() {
            let given_up = workers.end(deadline.max(Instant::now() + SINKS_LIMIT));
            self.state.metrics.frames_given_up(given_up + self.state.devices.left());
        }
        self.state.metrics.network_ends();
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if self.runtime.is_some() {
            self.end(END_LIMIT);
        }
    }
}

/// A collector cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectorError {
    /// The address to listen on is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// It cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Packets are to be authenticated, and their keys would go in clear.
    #[error("{KEYS_IN_CLEAR}")]
    KeysInClear,
    /// A rule names a provider that does not exist.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The sink cannot work.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The file of owners cannot be used.
    #[error(transparent)]
    Owners(#[from] OwnersError),
    /// The identity of this host cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The provider of verbs failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A queue pair did not go where it should.
    #[error(transparent)]
    QueuePair(#[from] ModifyError),
    /// The operating system refused.
    #[error("cannot {0}: {1}")]
    Os(&'static str, #[source] std::io::Error),
}
