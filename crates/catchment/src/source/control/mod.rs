//! The control thread of a source: connects to the collector, keeps the session, reconnects.
mod session;

use super::shared::Shared;
use super::wish::Wish;
use super::{SourceBuilder, SourceError};
use crate::in_clear::InClear;
use crate::providers::{Ends, Offers, Providers};
use crate::session::SOFTWARE;
use crate::session::backoff::Backoff;
use crate::session::host::Host;
use crate::session::identity::Identity;
use crate::session::io::{Address, ClientSecurity, Connection, drive};
use crate::session::message::{Device, FAILED_MAX, FailedPath, Hello, ProtocolRange, WhyNot};
use crate::session::refusal::RefusalCode;
use crate::session::reread::ClientTls;
use crate::session::source_side::{Ended, Retry, SourceSide, SourceSideConfig};
use catchment_transfer::Permit;
use session::Session;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit to connect to a collector.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Starts the thread, and the one that a controller grants leave to. The description has been checked.
pub(super) fn start(
    builder: &SourceBuilder,
    shared: Arc<Shared>,
) -> Result<Vec<JoinHandle<()>>, SourceError> {
    let config = |error: &dyn std::fmt::Display| SourceError::Config(error.to_string());
    let tls = builder.tls.clone().map(ClientTls::open).transpose();
    let providers = Arc::new(Providers::new(&builder.providers));
    let asked = Arc::downgrade(&providers);
    let network = move || asked.upgrade().map_or(Vec::new(), |p| p.counters());
    shared.metrics.set_network(network);
    let security = ClientSecurity { tls: tls.map_err(|e| config(&e))?, insecure: builder.insecure };
    let granting = builder.start_granting(&security, &shared)?;
    let control = Control {
        address: builder.collector.parse().map_err(|e| config(&e))?,
        security,
        identity: Identity::random().map_err(|e| config(&e))?,
        attempts: AtomicU64::new(0),
        host: Host::read().map_err(|e| config(&e))?,
        providers: providers.clone(),
        wish: builder.wish(),
        in_place: builder.in_place,
        permit: builder.permit.clone(),
        in_clear: InClear::default(),
        shared,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| config(&e))?;
    let thread = std::thread::Builder::new()
        .name("catchment-ctl".to_owned())
        .spawn(move || {
            let metrics = control.shared.metrics.clone();
            runtime.block_on(control.run());
            metrics.network_ends();
            // Until then its devices were there to be asked.
            drop(providers);
        })
        .map_err(|e| config(&e))?;
    Ok(granting.into_iter().chain([thread]).collect())
}

/// Returns when this host was booted, the same instant in all its processes.
fn boot_time() -> Option<Instant> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let up = Duration::try_from(time).ok()?;
    Instant::now().checked_sub(up)
}

struct Control {
    address: Address,
    security: ClientSecurity,
    /// The key pair of this source process.
    identity: Identity,
    /// How often it was tried to open a session.
    attempts: AtomicU64,
    host: Host,
    providers: Arc<Providers>,
    wish: Wish,
    in_place: bool,
    permit: Option<Arc<dyn Permit>>,
    in_clear: InClear,
    shared: Arc<Shared>,
}

/// Why there is no session, or no longer one, although a retry may help.
struct Setback {
    /// Whether frames could be sent.
    was_ready: bool,
    /// For logs and errors.
    reason: String,
    /// Shortest pause before the next attempt.
    pause: Duration,
    lesson: Lesson,
}

impl Setback {
    /// Creates a setback that passes by itself.
    fn new(reason: String) -> Self {
        Self { was_ready: false, reason, pause: Duration::ZERO, lesson: Lesson::Nothing }
    }
}

/// What an attempt showed about paths.
enum Lesson {
    Nothing,
    /// This path does not work.
    Failed(FailedPath),
    /// The collector finds no path: those that failed may work by now.
    Forget,
}

/// Paths that failed since the last session, to be reported in the next Hello.
#[derive(Default)]
struct Failed(Vec<FailedPath>);

impl Failed {
    /// Notes what an attempt showed. Returns whether to try another path at once.
    fn learn(&mut self, was_ready: bool, lesson: Lesson) -> bool {
        if was_ready {
            self.0.clear();
        }
        match lesson {
            Lesson::Nothing => false,
            Lesson::Forget => {
                self.0.clear();
                false
            }
            Lesson::Failed(failed) => {
                // If the collector chooses the same path again, the usual pauses apply.
                let is_new = self.0.iter().all(|known| known.path != failed.path);
                self.0.truncate(FAILED_MAX - 1);
                self.0.push(failed);
                is_new
            }
        }
    }
}

impl Control {
    async fn run(self) {
        let backoff = Backoff::new(self.identity.instance().number());
        let mut failures = 0;
        let mut said = None;
        let mut failed = Failed::default();
        let mut had_session = false;
        while !self.shared.life.is_stopped() {
            let attempt = Box::pin(self.attempt(&failed, had_session)).await;
            if self.shared.life.is_finished() {
                return;
            }
            let Setback { was_ready, reason, pause, lesson } = match attempt {
                Ok(setback) => setback,
                Err(error) => return self.shared.life.end(error),
            };
            // Its end is the source's own, not a break.
            if self.shared.life.is_stopped() {
                return self.shared.life.connect_failed(reason);
            }
            had_session |= was_ready;
            if was_ready {
                failures = 0;
                self.shared.metrics.reconnected();
                tracing::warn!(collector = %self.address, reason, "session lost; reconnecting");
            } else {
                if said.as_ref() != Some(&reason) {
                    tracing::warn!(collector = %self.address, reason, "not connected yet; retrying");
                }
                said = Some(reason.clone());
            }
            self.shared.life.connect_failed(reason);
            if failed.learn(was_ready, lesson) {
                continue;
            }
            let delay = backoff.delay(failures, pause);
            failures += 1;
            self.pause(delay).await;
        }
    }

    /// Sleeps, unless the source is stopped.
    async fn pause(&self, delay: Duration) {
        let until = tokio::time::Instant::now() + delay;
        while !self.shared.life.is_stopped() {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                () = self.shared.life.control.notified() => {}
            }
        }
    }

    /// Runs one session to its end, or finds out why there is none.
    ///
    /// # Errors
    /// A retry would not help.
    async fn attempt(&self, failed: &Failed, had_session: bool) -> Result<Setback, SourceError> {
        let connecting = Connection::connect(&self.address, &self.security, CONNECT_LIMIT);
        let connected = tokio::select! {
            connected = connecting => connected,
            () = self.stopped() => return Err(SourceError::Closed),
        };
        let mut connection = match connected {
            Ok(connection) => connection,
            // What worked before may again: certificates are renewed while a source runs.
            Err(error) if error.is_transient() || had_session => {
                return Ok(Setback::new(error.to_string()));
            }
            Err(error) => return Err(SourceError::Config(error.to_string())),
        };
        let ends = Ends::of(&connection);
        let offers = self.providers.for_source(ends);
        let hello = match self.hello(&offers, failed, connection.round_trip()) {
            Ok(hello) => hello,
            // The settings worked before: a link that is down may come up again.
            Err(error) if had_session && self.providers.may_return(ends) => {
                return Ok(Setback::new(error.to_string()));
            }
            Err(error) => return Err(error),
        };
        let config = SourceSideConfig {
            ping_origin: boot_time(),
            ..SourceSideConfig::new(self.providers.known().clone(), self.identity.clone())
        };
        let mut side = SourceSide::new(Instant::now(), config, hello);
        let mut session = Session::new(self, offers, connection.round_trip());
        let ended = drive(&mut side, &mut connection, &mut session).await;
        session.close_link();
        match session.setback(&ended) {
            Some(setback) => Ok(setback),
            None => self.after(&ended, session, had_session),
        }
    }

    /// Returns once the source must end.
    async fn stopped(&self) {
        while !self.shared.life.is_stopped() {
            self.shared.life.control.notified().await;
        }
    }

    fn after(
        &self,
        ended: &Ended,
        session: Session<'_>,
        had_session: bool,
    ) -> Result<Setback, SourceError> {
        let collector = self.address.to_string();
        let (was_ready, lost) = (session.was_ready, session.lost);
        if let Some(lost) = &lost
            && lost.is_final()
            && !had_session
        {
            return Err(SourceError::Config(format!("no session with {collector}: {lost}")));
        }
        let pause = match (ended.retry(), ended) {
            (Retry::After(pause), _) => pause,
            (Retry::Never, Ended::Refused(refusal) | Ended::Revoked(refusal)) => {
                return Err(SourceError::Refused { collector, refusal: refusal.clone() });
            }
            (Retry::Never, Ended::Misbehaved(refusal) | Ended::Withdrawn(refusal)) => {
                return Err(SourceError::Incompatible { collector, refusal: refusal.clone() });
            }
            (Retry::Never, _) => return Err(SourceError::Closed),
        };
        let no_path =
            ended.peer_refusal().is_some_and(|refusal| refusal.code == RefusalCode::NoPath);
        let reason = match (ended, lost) {
            (Ended::Disconnected(_), Some(lost)) => format!("{ended}: {lost}"),
            _ => ended.to_string(),
        };
        let lesson = if no_path { Lesson::Forget } else { Lesson::Nothing };
        Ok(Setback { was_ready, reason, pause, lesson })
    }

    /// Describes this source.
    fn hello(
        &self,
        offers: &Offers,
        failed: &Failed,
        round_trip: Duration,
    ) -> Result<Hello, SourceError> {
        let providers = offers.list();
        if providers.is_empty() {
            let whys: Vec<String> = offers.missing.iter().map(WhyNot::to_string).collect();
            let reason = format!("no provider can be used: {}", whys.join("; "));
            return Err(SourceError::Config(reason));
        }
        let device = |state: &Arc<super::shared::DeviceState>| Device {
            name: state.name.clone(),
            format: state.format.clone(),
            policy: state.policy,
            next_packet: state.next_packet(),
        };
        Ok(Hello {
            protocol: ProtocolRange::OURS,
            software: SOFTWARE.to_owned(),
            instance: self.identity.instance(),
            attempt: self.attempts.fetch_add(1, Ordering::Relaxed) + 1,
            host: self.host.clone(),
            devices: self.shared.devices.iter().map(device).collect(),
            providers,
            missing: offers.missing.clone(),
            failed: failed.0.clone(),
            wish: self.wish.at(round_trip),
        })
    }
}
