//! The controller's process: listener, thread, settings that can change.
use crate::config::Settings;
use crate::grants::{Command, Grants, Handle};
use crate::reload::{ReloadError, Reloaded};
use crate::serve::{Context, accept_all};
use crate::status::{Status, StreamStatus};
use crate::{admin, term};
use catchment_session::datagrams::{go_first, hold_bursts};
use catchment_session::io::{Address, BindError, ServerSecurity, StreamListener};
use catchment_session::names::DeviceName;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// How often another port is tried, when the system chooses it.
const PORT_TRIES: usize = 16;
/// Time for registrations that are under way to end with the controller.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// The controller cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The UDP socket cannot be made.
    #[error("cannot use UDP at {address}: {source}; is the port free?")]
    Udp {
        /// The address.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// The address is not one of TCP.
    #[error("a controller listens at HOST:PORT, not at {0}")]
    NoHost(Address),
    /// The settings contradict themselves.
    #[error("{0}")]
    Settings(String),
    /// The system refuses a thread or a descriptor.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// A controller that runs. Dropping it ends it; windows that it granted run out.
pub struct Service {
    term: AtomicU32,
    handle: ServiceHandle,
    security: ServerSecurity,
    thread: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

/// Asks and changes a [`Service`] without keeping it: that ends when its owner drops it, and answers nothing from then on.
#[derive(Clone)]
pub struct ServiceHandle {
    local: Address,
    context: Context,
}

impl ServiceHandle {
    /// Returns where the service listens, with the port that the system chose.
    #[must_use]
    pub const fn local(&self) -> &Address {
        &self.local
    }

    /// Returns how the service stands; `None` when it has ended.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let (answer, status) = oneshot::channel();
        self.context.grants.tell(Command::Status(answer));
        status.blocking_recv().ok()
    }

    /// Returns what the streams of a device wait for, one of each source that has it; `None` when the service has ended.
    #[must_use]
    pub fn explain(&self, device: DeviceName) -> Option<Vec<StreamStatus>> {
        let (answer, streams) = oneshot::channel();
        self.context.grants.tell(Command::Explain(device, answer));
        streams.blocking_recv().ok()
    }

    /// Takes over other settings: links and what they carry, paths, classes, the policy, and who may do what. What is granted
    /// stands; where links, paths or classes are others, sources register again once most of it is over.
    ///
    /// # Errors
    /// [`ReloadError`]: something else differs, and nothing has changed.
    pub fn reload(&self, new: Settings) -> Result<Reloaded, ReloadError> {
        self.context.reload(new)
    }
}

impl Service {
    /// Begins. Takes up to a quarter of a second, so that no two processes have one term.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(settings: Settings, security: &ServerSecurity) -> Result<Self, StartError> {
        let (term, wait) = term::next(SystemTime::now());
        Self::begin(settings, security, term, Instant::now() + wait)
    }

    /// Begins to stand by: sources may register, and nothing is granted before [`Service::lead`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn stand_by(settings: Settings, security: &ServerSecurity) -> Result<Self, StartError> {
        Self::begin(settings, security, 0, Instant::now())
    }

    /// Leads from now on, in a term that nobody else has, as [`leader`](crate::leader) makes sure. `left` is how long what
    /// the leader before has granted may still be used, where that one said so.
    ///
    /// # Errors
    /// [`StartError`]: the address of its settings for `admin` cannot be used; it stands by as before.
    pub fn lead(&self, term: u32, left: Option<Duration>) -> Result<(), StartError> {
        self.listen_to_admin()?;
        self.term.store(term, Ordering::Relaxed);
        let left_ns = left.map(|left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        self.handle.context.grants.tell(Command::Lead(term, left_ns));
        Ok(())
    }

    /// Grants nothing from now on; returns how long what it granted may still be used, if it knows.
    pub fn give_up(&self) -> Option<Duration> {
        let (answer, left) = oneshot::channel();
        self.handle.context.grants.tell(Command::GiveUp(answer));
        left.blocking_recv().ok().flatten().map(Duration::from_nanos)
    }

    fn listen_to_admin(&self) -> Result<(), StartError> {
        let settings = self.handle.context.settings.read().unwrap_or_else(PoisonError::into_inner);
        let (Some(address), Some(runtime)) = (&settings.admin, &self.runtime) else {
            return Ok(());
        };
        let listener = runtime.block_on(StreamListener::bind(address, self.security.clone()))?;
        runtime.spawn(admin::accept_all(listener, self.handle.context.clone()));
        Ok(())
    }

    /// Takes the port, and says nothing before the term is its own. Who had the port before grants nothing from then on, so
    /// the time in which those windows run out counts from there.
    fn begin(
        settings: Settings,
        security: &ServerSecurity,
        term: u32,
        first_use: Instant,
    ) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("catchment-reg")
            .enable_all()
            .build()?;
        let (listener, socket) = runtime.block_on(bind(&settings.listen, security))?;
        let (grants, commands) = Handle::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?,
        );
        let (local, datagrams) = (listener.local().clone(), socket.local_addr()?);
        let machine = Grants::new(&settings, term, socket, &grants, commands)
            .map_err(|error| StartError::Settings(error.to_string()))?;
        // Until the quarter of a second is there for which the term stands.
        std::thread::sleep(first_use.saturating_duration_since(Instant::now()));
        let thread = std::thread::Builder::new()
            .name("catchment-grant".to_owned())
            .spawn(move || machine.run())?;
        let context = Context { grants, settings: Arc::new(RwLock::new(settings)), datagrams };
        runtime.spawn(accept_all(listener, context.clone()));
        let (thread, runtime) = (Some(thread), Some(runtime));
        let (security, stands_by) = (security.clone(), term == 0);
        let handle = ServiceHandle { local, context };
        let service = Self { term: AtomicU32::new(term), handle, security, thread, runtime };
        if !stands_by {
            service.listen_to_admin()?;
        }
        Ok(service)
    }

    /// Returns where it listens, with the port that the system chose.
    #[must_use]
    pub const fn local(&self) -> &Address {
        &self.handle.local
    }

    /// Returns its term; 0 while it stands by.
    #[must_use]
    pub fn term(&self) -> u32 {
        self.term.load(Ordering::Relaxed)
    }

    /// Returns a handle that does not keep this service.
    #[must_use]
    pub fn handle(&self) -> ServiceHandle {
        self.handle.clone()
    }

    /// Returns how it stands; `None` only when its thread has ended.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.handle.status()
    }

    /// As [`ServiceHandle::reload`].
    ///
    /// # Errors
    /// As there.
    pub fn reload(&self, new: Settings) -> Result<Reloaded, ReloadError> {
        self.handle.reload(new)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.handle.context.grants.tell(Command::Stop);
        if let Some(runtime) = self.runtime.take() {
            // The next one may listen at the same port as soon as this returns.
            runtime.shutdown_timeout(SHUTDOWN);
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that grants panicked");
        }
    }
}

/// Binds one port for TCP and UDP.
async fn bind(
    address: &Address,
    security: &ServerSecurity,
) -> Result<(StreamListener, UdpSocket), StartError> {
    let Address::Tcp { port, .. } = address else {
        return Err(StartError::NoHost(address.clone()));
    };
    let mut tries = if *port == 0 { PORT_TRIES } else { 1 };
    loop {
        let listener = StreamListener::bind(address, security.clone()).await?;
        let local = listener.local().clone();
        let at = local.to_string().parse::<SocketAddr>();
        let at = at.map_err(|_| StartError::NoHost(local.clone()))?;
        tries -= 1;
        match UdpSocket::bind(at) {
            Ok(socket) => {
                socket.set_nonblocking(true)?;
                hold_bursts(&socket);
                go_first(&socket, at);
                return Ok((listener, socket));
            }
            Err(source) if tries == 0 => return Err(StartError::Udp { address: local, source }),
            Err(_) => {}
        }
    }
}
