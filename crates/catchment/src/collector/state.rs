//! What all sessions of a collector share.
use super::devices::{Asked, Devices};
use super::receive::ReceiveThreads;
use super::refusals::not_opened;
use super::ring::{Ring, RingBudget};
use super::vitals::Vitals;
use crate::in_clear::InClear;
use crate::observe::CollectorMetrics;
use crate::providers::{Ends, Providers};
use crate::session::host::Host;
use crate::session::message::{self, FailedPath, Hello, StreamGrant};
use crate::session::path::{PathChoice, SourceFacts};
use crate::session::refusal::{Refusal, RefusalCode};
use crate::session::registry::{Registry, superseded_refusal};
use crate::sink::Staging;
use catchment_transfer::RingLayout;
use catchment_verbs::Context;
use catchment_verbs::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a new session waits for one that has its devices: for the last frames of its own older one,
/// or for a sign that another source lives. Its source waits a little longer for the answer.
const HAND_OVER: Duration = Duration::from_secs(3);
const HAND_OVER_POLL: Duration = Duration::from_millis(5);
const IN_USE_POLL: Duration = Duration::from_millis(50);
/// A source that is heard this long after another one asked for its devices lives: what it sent before its
/// death has come by then.
const STILL_ALIVE: Duration = Duration::from_millis(250);
/// Sessions at once: each has some descriptors.
const SESSIONS_MAX: usize = 4096;

pub(super) struct CollectorState {
    pub(super) providers: Providers,
    pub(super) host: Host,
    pub(super) lease: Duration,
    pub(super) gap_limit: Duration,
    pub(super) ring_bytes_max: u64,
    /// For the rings of all sources together.
    pub(super) rings: RingBudget,
    /// For frames over several blocks, of all sources together.
    pub(super) staging: Arc<Staging>,
    pub(super) devices: Arc<Devices>,
    pub(super) receive: ReceiveThreads,
    pub(super) metrics: Arc<CollectorMetrics>,
    pub(super) sessions: Mutex<Sessions>,
    /// Set while blocks of some session wait for earlier ones.
    pub(super) unsettled: Arc<AtomicBool>,
    pub(super) in_clear: InClear,
}

/// A path, and this side's device for it.
pub(super) struct Chosen {
    choice: PathChoice,
    context: Arc<dyn Context>,
}

#[derive(Default)]
pub(super) struct Sessions {
    registry: Registry,
    running: HashMap<u64, Running>,
    vitals: HashMap<u64, Arc<Vitals>>,
    /// Those among them whose device must be asked whether the queue pair has failed.
    asked: HashMap<u64, Arc<Vitals>>,
    begun: u64,
}

/// A session that has not ended.
struct Running {
    end: watch::Sender<Option<Refusal>>,
    /// When its source sent a message last.
    heard: Arc<Mutex<Instant>>,
}

/// A session's place in the state, freed by [`Registration::release`] or dropping.
pub(super) struct Registration {
    state: Arc<CollectorState>,
    id: u64,
    end: watch::Receiver<Option<Refusal>>,
    heard: Arc<Mutex<Instant>>,
}

impl Registration {
    /// Waits until the session must end, and returns why.
    pub(super) async fn end_requested(&mut self) -> Refusal {
        loop {
            if let Some(refusal) = self.end.borrow_and_update().clone() {
                return refusal;
            }
            if self.end.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Notes that the source lives.
    pub(super) fn heard(&self) {
        *self.heard.lock() = Instant::now();
    }

    /// Frees the devices.
    pub(super) fn release(self) {}
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut sessions = self.state.sessions.lock();
        sessions.registry.release(self.id);
        sessions.running.remove(&self.id);
        sessions.vitals.remove(&self.id);
        sessions.asked.remove(&self.id);
    }
}

impl Sessions {
    /// Assigns the devices of the Hello to session `id`, unless another one still has some. One of the
    /// same source process is asked to end, and keeps them until then: its last frames may not have
    /// reached the sinks yet.
    fn try_claim(&mut self, id: u64, hello: &Hello, came: Instant) -> Result<(), Refusal> {
        if self.running.len() > SESSIONS_MAX {
            let reason = format!("{SESSIONS_MAX} sessions are open, which is the limit");
            return Err(Refusal::new(RefusalCode::Busy, reason, "try again later"));
        }
        let older = self.registry.in_the_way(id, hello).map_err(|refusal| {
            let owner = self.registry.other_owner(hello).and_then(|id| self.running.get(&id));
            let lives = owner.is_some_and(|owner| *owner.heard.lock() > came + STILL_ALIVE);
            if lives { refusal.permanent() } else { refusal }
        })?;
        if older.is_empty() {
            return self.registry.claim(id, hello).map(|_| ());
        }
        for session in older.iter().filter_map(|id| self.running.get(id)) {
            session.end.send_if_modified(|refusal| {
                let first = refusal.is_none();
                refusal.get_or_insert_with(superseded_refusal);
                first
            });
        }
        Err(Refusal::new(
            RefusalCode::Busy,
            "the source's older session still delivers frames",
            "wait; if it lasts, check why the collector's sink does not take frames",
        ))
    }
}

impl CollectorState {
    /// A place for a new session.
    pub(super) fn register(self: &Arc<Self>) -> Registration {
        let (sender, end) = watch::channel(None);
        let heard = Arc::new(Mutex::new(Instant::now()));
        let mut sessions = self.sessions.lock();
        sessions.begun += 1;
        let id = sessions.begun;
        sessions.running.insert(id, Running { end: sender, heard: heard.clone() });
        Registration { state: self.clone(), id, end, heard }
    }

    /// Asks all sessions to end.
    pub(super) fn end_all(&self, refusal: &Refusal) {
        for session in self.sessions.lock().running.values() {
            session.end.send_replace(Some(refusal.clone()));
        }
    }

    /// Checks this session, which goes over `provider`, until its registration is released.
    pub(super) fn watch(&self, registration: &Registration, provider: &str, vitals: &Arc<Vitals>) {
        let mut sessions = self.sessions.lock();
        sessions.vitals.insert(registration.id, vitals.clone());
        if !self.providers.reports_failures(provider) {
            sessions.asked.insert(registration.id, vitals.clone());
        }
        // It may have failed before it was known here.
        self.unsettled.store(true, Ordering::Release);
    }

    /// Wakes the tasks of the sessions that need it. Checks all of them only after an event, since
    /// thousands may be idle.
    pub(super) fn check_sessions(&self) {
        let something = self.providers.take_events() | self.unsettled.swap(false, Ordering::AcqRel);
        let sessions = self.sessions.lock();
        let checked = if something { &sessions.vitals } else { &sessions.asked };
        let unsettled = checked.values().fold(false, |any, vitals| vitals.check() | any);
        self.unsettled.fetch_or(unsettled, Ordering::AcqRel);
    }

    /// Sessions that have not ended.
    pub(super) fn running(&self) -> usize {
        self.sessions.lock().running.len()
    }

    /// Assigns the devices of the Hello to the session. Waits for an older session of the same source
    /// process to end, and for the end or a sign of life of another source that has one of them.
    pub(super) async fn claim(
        &self,
        registration: &Registration,
        hello: &Hello,
    ) -> Result<(), Refusal> {
        let came = Instant::now();
        loop {
            let claimed = self.sessions.lock().try_claim(registration.id, hello, came);
            let Err(refusal) = claimed else { return Ok(()) };
            let in_use = refusal.code == RefusalCode::DeviceInUse;
            let settled = refusal.code == RefusalCode::Superseded || refusal.is_permanent();
            if settled || came.elapsed() >= HAND_OVER {
                return Err(refusal);
            }
            tokio::time::sleep(if in_use { IN_USE_POLL } else { HAND_OVER_POLL }).await;
        }
    }

    /// Chooses the path to a source whose control connection has these ends, and its device.
    pub(super) fn choose_path(
        &self,
        hello: &Hello,
        failed: &[FailedPath],
        ends: Ends,
    ) -> Result<Chosen, Refusal> {
        let source = SourceFacts {
            host: &hello.host,
            offers: &hello.providers,
            missing: &hello.missing,
            failed,
            seen: ends.peer,
        };
        let (choice, context) = self.providers.choose(&self.host, &source, ends)?;
        Ok(Chosen { choice, context })
    }

    /// Allocates memory and queue pair for the chosen path. If an RNIC cannot provide them (not enough
    /// memory may be locked, for example), the next path is taken.
    pub(super) async fn make_ring(
        &self,
        mut chosen: Chosen,
        hello: &Hello,
        ends: Ends,
    ) -> Result<(PathChoice, Ring), Refusal> {
        let mut failed = hello.failed.clone();
        loop {
            let Chosen { choice, context } = chosen;
            let refusal = match self.allocate_ring(context, hello).await {
                Ok(ring) => return Ok((choice, ring)),
                Err(refusal) => refusal,
            };
            let other = refusal.code == RefusalCode::NoResource
                && self.providers.known().is_hardware(&choice.collector.name);
            if !other {
                return Err(refusal);
            }
            tracing::warn!(reason = %refusal.reason, "no memory or queue pair with an RDMA device, looking for another path");
            failed.push(choice.path.failed(None, &refusal.reason));
            chosen = self.choose_path(hello, &failed, ends)?;
        }
    }

    /// Looks up the devices of the Hello, for the source with this certificate.
    pub(super) async fn look_up_devices(
        &self,
        hello: &Hello,
        certificate: Option<String>,
    ) -> Result<Asked, Refusal> {
        let devices = self.devices.clone();
        let wanted: Vec<_> = hello
            .devices
            .iter()
            .map(|d| (d.name.to_string(), d.format.clone().unwrap_or_default()))
            .collect();
        let look_up = move || devices.look_up(wanted, certificate.as_deref());
        let found = tokio::task::spawn_blocking(look_up).await;
        found
            .map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string(), "report this"))?
            .map_err(|error| not_opened(&error))
    }

    pub(super) fn grants(hello: &Hello, devices: &Asked) -> Vec<StreamGrant> {
        let wanted = hello.devices.iter().zip(devices.next_packets());
        let grant = |((wanted, next_packet), stream): ((&message::Device, Option<u64>), u32)| {
            StreamGrant { device: wanted.name.clone(), stream, next_packet }
        };
        wanted.zip(0..).map(grant).collect()
    }

    pub(super) fn lease_ms(&self) -> u32 {
        u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX)
    }

    /// Memory and queue pair as the source wishes, as far as this collector allows.
    pub(super) async fn allocate_ring(
        &self,
        context: Arc<dyn Context>,
        hello: &Hello,
    ) -> Result<Ring, Refusal> {
        let wish = hello.wish;
        let fit = self.ring_bytes_max / u64::from(wish.block_bytes);
        let blocks = u64::from(wish.blocks).min(fit) as u32;
        let layout = RingLayout::new(blocks, wish.block_bytes).map_err(|error| {
            let reason = format!(
                "a ring of {} blocks of {} bytes, cut to {blocks} by the limit of {} bytes: {error}",
                wish.blocks, wish.block_bytes, self.ring_bytes_max
            );
            let remedy = "ask for smaller blocks, or raise --ring-bytes at the collector";
            Refusal::new(RefusalCode::BadRing, reason, remedy)
        })?;
        let bytes = layout.total_bytes() as u64;
        let reserved = self.rings.reserve(bytes).map_err(|full| {
            let remedy = "wait for other sources to end, or give the collector more memory";
            Refusal::new(RefusalCode::NoResource, full.to_string(), remedy)
        })?;
        let allocated = tokio::task::spawn_blocking(move || Ring::allocate(&context, layout)).await;
        let failed = |error: &dyn std::fmt::Display| {
            let reason =
                format!("cannot allocate a ring of {} bytes: {error}", layout.total_bytes());
            let remedy = "ask for fewer or smaller blocks, or give the collector more memory";
            Refusal::new(RefusalCode::NoResource, reason, remedy)
        };
        match allocated {
            Ok(Ok(ring)) => {
                reserved.use_for(&ring.mr);
                Ok(ring)
            }
            Ok(Err(error)) => Err(failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }
}
