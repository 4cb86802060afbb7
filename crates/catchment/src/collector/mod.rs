//! A collector: takes frames from any number of sources.
//!
//! ```text
//! listener ─ session (tokio) ─ ring in registered memory
//!                                   │ intake (thread of the session)
//!                                   ▼
//!                       in_order ─ stream ─ workers (threads) ─ device ─ sink
//! ```
mod block;
mod device;
mod engine;
mod intake;
mod ring;
mod session;
mod staging;
mod stream;
mod workers;

#[cfg(test)]
use crate::session::providers::Rnics;
use crate::{
    observe::{
        CollectorMetrics, CollectorSnapshot, Dashboard, DashboardConfig, DashboardError,
        network::Devices as NetworkDevices,
    },
    session::{
        host::{Host, HostError},
        io::{
            Address, AddressError, BindError, Listener, ListenerConfig, Rejected, ServerSecurity,
        },
        path::{PathError, PathRules},
        providers::{ProviderOptions, Providers},
        refusal::{Refusal, RefusalCode},
        tls::{TlsError, TlsFiles, server_config},
    },
    sink::{CallbackSink, NullSink, Sink},
};
pub(crate) use block::HeldBlock;
use catchment_provider_ibverbs::IbverbsOptions;
use catchment_provider_roce::RoceOptions;
use catchment_transfer::Naps;
use catchment_verbs::{ModifyError, VerbsError};
use device::Devices;
use engine::{Engine, Sessions};
use ring::RingBudget;
pub(crate) use staging::Staged;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use workers::Workers;

/// How long an ending collector waits for its sessions and sinks.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How often it looks whether an RDMA device has something to tell.
const LOOK_AT_DEVICES: Duration = Duration::from_millis(500);
/// The least that it gives to the sinks.
const SINKS_LIMIT: Duration = Duration::from_millis(500);

/// Describes a collector.
pub struct CollectorBuilder {
    listen: String,
    sink: Box<dyn Sink>,
    tls: Option<TlsFiles>,
    insecure: bool,
    dashboard: Option<SocketAddr>,
    workers: usize,
    lease: Duration,
    look_every: Duration,
    ring_bytes_max: u64,
    ring_bytes_total: u64,
    providers: ProviderOptions,
}

impl CollectorBuilder {
    /// Where the frames go. By default nowhere: they are verified and counted.
    #[must_use]
    pub fn sink(self, sink: impl Sink) -> CollectorBuilder {
        CollectorBuilder {
            sink: Box::new(sink),
            ..self
        }
    }

    /// Calls `function` with every frame; see [`CallbackSink`].
    #[must_use]
    pub fn on_frame(
        self,
        function: impl Fn(crate::Frame) + Send + Sync + 'static,
    ) -> CollectorBuilder {
        self.sink(CallbackSink::new(function))
    }

    /// Certificates for control connections; needed to listen off loopback.
    #[must_use]
    pub fn tls(self, files: TlsFiles) -> CollectorBuilder {
        CollectorBuilder {
            tls: Some(files),
            ..self
        }
    }

    /// Allows to listen off loopback without TLS: everybody who reaches the address can send.
    #[must_use]
    pub fn insecure(self, insecure: bool) -> CollectorBuilder {
        CollectorBuilder { insecure, ..self }
    }

    /// Serves the live page and the metrics there. Off by default.
    #[must_use]
    pub fn dashboard(self, listen: SocketAddr) -> CollectorBuilder {
        CollectorBuilder {
            dashboard: Some(listen),
            ..self
        }
    }

    /// Threads that carry frames to the sink, at least 1. By default one for each processor, at
    /// most 4.
    #[must_use]
    pub fn workers(self, workers: usize) -> CollectorBuilder {
        CollectorBuilder {
            workers: workers.max(1),
            ..self
        }
    }

    /// How long a source may be silent before it counts as dead, 100 ms to 10 min. By default 5 s.
    #[must_use]
    pub fn lease(self, lease: Duration) -> CollectorBuilder {
        let lease = lease.clamp(Duration::from_millis(100), Duration::from_secs(600));
        CollectorBuilder { lease, ..self }
    }

    /// How long it pauses at most between two looks for frames, while some come and the provider
    /// rings nobody when one does: RNICs do not. By default 1 ms, which costs about a hundredth of a
    /// processor for each source and half of it in latency. Zero: it looks all the time, which takes
    /// a processor for each source.
    #[must_use]
    pub fn look_every(self, pause: Duration) -> CollectorBuilder {
        CollectorBuilder {
            look_every: pause.min(Duration::from_secs(1)),
            ..self
        }
    }

    /// Most memory for the ring of one source. By default 1 GiB.
    #[must_use]
    pub fn ring_bytes_max(self, bytes: u64) -> CollectorBuilder {
        CollectorBuilder {
            ring_bytes_max: bytes,
            ..self
        }
    }

    /// Most memory for the rings of all sources together; a source that would need more is refused
    /// and tries again. As much again for frames that go over several blocks; a device that would
    /// need more waits. By default half of the host's memory.
    #[must_use]
    pub fn ring_bytes_total(self, bytes: u64) -> CollectorBuilder {
        CollectorBuilder {
            ring_bytes_total: bytes,
            ..self
        }
    }

    /// Which providers this side may use.
    #[must_use]
    pub fn path_rules(mut self, rules: PathRules) -> CollectorBuilder {
        self.providers.rules = rules;
        self
    }

    /// Settings of the RoCEv2 devices that it may open.
    #[must_use]
    pub fn roce(mut self, roce: RoceOptions) -> CollectorBuilder {
        self.providers.roce = roce;
        self
    }

    /// Settings of the RDMA devices that it may open.
    #[must_use]
    pub fn ibverbs(mut self, ibverbs: IbverbsOptions) -> CollectorBuilder {
        self.providers.ibverbs = ibverbs;
        self
    }

    /// Something else in the place of the machine's RDMA devices.
    #[cfg(test)]
    pub(crate) fn rnics(mut self, rnics: Arc<dyn Rnics>) -> CollectorBuilder {
        self.providers.rnics = Some(rnics);
        self
    }

    /// Listens, and returns when sources can connect.
    ///
    /// # Errors
    /// [`CollectorError`], with what to do.
    pub fn start(self) -> Result<Collector, CollectorError> {
        self.providers.rules.check()?;
        let address: Address = self.listen.parse()?;
        let tls = self.tls.as_ref().map(server_config).transpose()?;
        let security = ServerSecurity {
            tls,
            insecure: self.insecure,
        };
        let metrics = CollectorMetrics::new();
        let runtime = runtime()?;
        let rejected = on_rejected(metrics.clone());
        let bind = Listener::bind(&address, security, ListenerConfig::default(), rejected);
        let listener = runtime.block_on(bind)?;
        let local = listener.local().clone();
        let dashboard = self.start_dashboard(&metrics)?;
        let workers = Workers::start(self.workers)
            .map_err(|e| CollectorError::Os("start a worker thread", e))?;
        let engine = Arc::new(Engine {
            providers: Providers::new(self.providers),
            host: Host::read()?,
            lease: self.lease,
            look_every: self.look_every,
            ring_bytes_max: self.ring_bytes_max,
            rings: RingBudget::new(self.ring_bytes_total),
            staging: staging::Staging::new(self.ring_bytes_total),
            devices: Devices::new(self.sink, metrics.clone()),
            queue: workers.queue().clone(),
            metrics,
            sessions: Mutex::new(Sessions::default()),
        });
        let asked = Arc::downgrade(&engine);
        let network = move || {
            asked
                .upgrade()
                .map_or(Vec::new(), |e| e.providers.roce_counters())
        };
        engine.metrics.set_network(NetworkDevices::new(network));
        runtime.spawn(accept(listener, engine.clone()));
        runtime.spawn(watch_devices(engine.clone()));
        Ok(Collector {
            engine,
            workers: Some(workers),
            dashboard,
            local,
            runtime: Some(runtime),
        })
    }

    fn start_dashboard(
        &self,
        metrics: &Arc<CollectorMetrics>,
    ) -> Result<Option<Dashboard>, CollectorError> {
        let start = |listen| {
            let config = DashboardConfig {
                listen,
                ..DashboardConfig::default()
            };
            Dashboard::start(config, metrics.clone())
        };
        Ok(self.dashboard.map(start).transpose()?)
    }
}

/// Half of the memory that the kernel says it has, at least 1 GiB.
fn half_of_memory() -> u64 {
    let kib = || -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    (kib().unwrap_or(0) * 512).max(1 << 30)
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

async fn accept(mut listener: Listener, engine: Arc<Engine>) {
    while let Some(accepted) = listener.accept().await {
        tokio::spawn(session::run(engine.clone(), accepted));
    }
}

async fn watch_devices(engine: Arc<Engine>) {
    loop {
        tokio::time::sleep(LOOK_AT_DEVICES).await;
        engine.providers.look_at_devices();
    }
}

/// A running collector.
///
/// ```no_run
/// use catchment::{collector::Collector, sink::DirectorySink};
///
/// let collector = Collector::builder("127.0.0.1:7117")
///     .sink(DirectorySink::new("out"))
///     .dashboard("127.0.0.1:7118".parse()?)
///     .start()?;
/// println!("sources connect to {}", collector.local_addr());
/// std::thread::sleep(std::time::Duration::from_secs(60));
/// let report = collector.stop();
/// println!("{} frames, {} lost", report.totals.frames_received, report.totals.frames_lost);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Collector {
    engine: Arc<Engine>,
    workers: Option<Workers>,
    dashboard: Option<Dashboard>,
    local: Address,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Collector {
    /// Begins to describe a collector that listens at `listen`: `HOST:PORT` (port 0: the system
    /// chooses) or `unix:PATH`.
    pub fn builder(listen: impl Into<String>) -> CollectorBuilder {
        CollectorBuilder {
            listen: listen.into(),
            sink: Box::new(NullSink),
            tls: None,
            insecure: false,
            dashboard: None,
            workers: std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(4),
            lease: Duration::from_secs(5),
            look_every: Naps::default().most,
            ring_bytes_max: 1 << 30,
            ring_bytes_total: half_of_memory(),
            providers: ProviderOptions::default(),
        }
    }

    /// Where sources connect, with the port that the system chose.
    pub fn local_addr(&self) -> &Address {
        &self.local
    }

    /// Address of the live page, if there is one.
    pub fn dashboard_url(&self) -> Option<String> {
        self.dashboard.as_ref().map(Dashboard::url)
    }

    /// Live counters.
    pub fn metrics(&self) -> &Arc<CollectorMetrics> {
        &self.engine.metrics
    }

    /// Ends all sessions, gives what is committed to the sinks, and returns the final counters.
    /// Sources will look for a collector again.
    ///
    /// A sink that refuses frames or does not return is waited for at most 10 s. What it did not
    /// take is given up, which is logged; sources that live still have it and send it to the next
    /// collector. A call of a sink that never returns keeps its thread, and nothing else.
    pub fn stop(self) -> CollectorSnapshot {
        self.stop_within(END_LIMIT)
    }

    /// The same with another limit for sinks that do not take their frames.
    pub fn stop_within(mut self, limit: Duration) -> CollectorSnapshot {
        self.end(limit);
        self.engine.metrics.snapshot()
    }

    fn end(&mut self, limit: Duration) {
        let refusal = Refusal::new(
            RefusalCode::ShuttingDown,
            "the collector ends",
            "start it again; the source finds it by itself",
        );
        let deadline = Instant::now() + limit;
        while self.engine.running() > 0 && Instant::now() < deadline {
            self.engine.end_all(&refusal);
            // Sessions end on the control thread, which rings nobody: look again.
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(dashboard) = self.dashboard.take() {
            dashboard.stop();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(200));
        }
        if let Some(workers) = self.workers.take() {
            workers.end(deadline.max(Instant::now() + SINKS_LIMIT));
        }
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
    /// The live page cannot be served.
    #[error(transparent)]
    Dashboard(#[from] DashboardError),
    /// A rule names a provider that does not exist.
    #[error(transparent)]
    Path(#[from] PathError),
    /// This host does not tell who it is.
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
