//! The agent: it owns the queue pairs and the registrations of the applications of a host.
mod address_handles;
mod calls;
mod checks;
mod connection;
mod engine;
mod holdings;
mod inbox;
mod maker;
mod memory;
mod memory_chunks;
mod messages;
mod monitor;
mod own;
mod send;
mod share;
mod shared;
mod shared_qp;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod shared_qp_tests;
mod shared_qps;
mod status;

use crate::entry::MAX_INLINE_BYTES;
use crate::peer::{Brought, Change, PeerError, PeerSecurity, Peers, SlotNews, Wiring};
use crate::policy::{Below, Mode, Policy, PolicyError};
use crate::protocol;
use crate::services::Services;
use catchment_provider_ibverbs::{IbverbsOptions, IbverbsProvider};
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_provider_shm::{DEVICE, ShmProvider, seqpacket};
use catchment_session::io::Address;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{CompletionChannel, Context, Provider as _, VerbsError, event};
use engine::{Command, Engine};
use maker::{Maker, Parts, Work};
use memory_chunks::MemoryChunks;
use rustix::event::{PollFd, PollFlags};
pub use shared_qps::{Posted, SharedQps};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// What the threads of an agent share.
struct Shared {
    policy: Mutex<Arc<Policy>>,
    port: Port,
    /// Sessions with other agents, where the policy has any.
    peers: Option<Peers>,
    /// To tell the agent of sessions of connections.
    news: Option<UnboundedSender<Change>>,
    /// What applications offer by name.
    services: Arc<Services>,
    /// Where connections share queue pairs.
    parts: Option<Parts>,
    /// After the sessions, which ask it.
    _maker: Option<Maker>,
    /// Memory for regions of applications.
    chunks: MemoryChunks,
    /// Wakes the engine.
    bell: Arc<OwnedFd>,
    commands: Mutex<Sender<Command>>,
    keys: AtomicU64,
    stop: AtomicBool,
    /// Wakes the listener.
    stop_bell: OwnedFd,
}

impl Shared {
    /// Tells the engine; lost if it has ended.
    fn tell(&self, command: Command) {
        let _ = self.commands.lock().send(command);
        event::ring(&*self.bell);
    }

    /// Asks the engine, and waits for its answer; `None` if it has ended.
    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (sender, answer) = mpsc::channel();
        self.tell(command(sender));
        answer.recv().ok()
    }

    /// Returns the policy of now.
    fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.lock())
    }

    fn next_key(&self) -> u64 {
        self.keys.fetch_add(1, Ordering::Relaxed)
    }
}

/// Far enough in the future.
fn forever() -> Instant {
    event::deadline(Duration::from_secs(1 << 20))
}

/// A running agent. Dropping it ends it: the queue pairs of all applications with it.
pub struct Agent {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// An open device, and what its completion queues notify.
#[derive(Clone)]
struct Port {
    context: Arc<dyn Context>,
    channel: Arc<dyn CompletionChannel>,
    /// RDMA hardware: it has no memory windows as [`Pd::bind`](catchment_verbs::Pd::bind) makes them, and does not tell of each
    /// failure.
    is_hardware: bool,
}

/// Opens the device of a policy.
pub(crate) fn open_device(below: &Below) -> Result<Arc<dyn Context>, VerbsError> {
    match below {
        Below::Shm => ShmProvider::new().open(DEVICE),
        Below::Roce(address) => {
            let options = RoceOptions { other_port: true, ..RoceOptions::default() };
            RoceProvider::new(options).open(&address.to_string())
        }
        Below::Ibverbs(device) => IbverbsProvider::new(IbverbsOptions::default()).open(device),
    }
}

fn open(below: &Below) -> Result<Port, VerbsError> {
    let context = open_device(below)?;
    let (has, needs) = (context.caps().max_inline_bytes, MAX_INLINE_BYTES as u32);
    if has < needs {
        return Err(VerbsError::Invalid(format!(
            "the device takes {has} bytes inline, and an agent passes on up to {needs}"
        )));
    }
    let is_hardware = matches!(below, Below::Ibverbs(_));
    Ok(Port { channel: context.create_channel()?, context, is_hardware })
}

/// Returns what shared queue pairs are made of, if the policy has any.
fn make_parts(policy: &Policy, port: &Port) -> Result<Option<Parts>, VerbsError> {
    if !policy.connects() {
        return Ok(None);
    }
    let entries = 2 * policy.between.queue_pairs * (shared_qp::CHUNKS + inbox::INBOX);
    let entries = entries.min(port.context.caps().max_cqe);
    let cq = port.context.create_cq(entries, Some(Arc::clone(&port.channel)))?;
    Ok(Some(Parts { pd: port.context.alloc_pd()?, cq }))
}

/// What agents of other hosts need here.
struct Abroad {
    peers: Peers,
    maker: Maker,
    news: UnboundedSender<Change>,
    brought: Brought,
}

/// Starts the sessions with other agents, if the policy has any.
fn start_peers(
    policy: &Policy,
    port: &Port,
    security: PeerSecurity,
    (parts, services): (Option<&Parts>, &Arc<Services>),
    (commands, bell): (Sender<Command>, Arc<OwnedFd>),
) -> Result<Option<Abroad>, PeerError> {
    if !policy.between.is_used() {
        return Ok(None);
    }
    let (news, changes) = unbounded_channel();
    let work = Work {
        context: Arc::clone(&port.context),
        parts: parts.cloned(),
        commands: commands.clone(),
        bell: Arc::clone(&bell),
        news: news.clone(),
        ends: BTreeMap::new(),
        slots: BTreeMap::new(),
    };
    let tell = Box::new(move |verdict| {
        let _ = commands.send(Command::Verdict(verdict));
        event::ring(&*bell);
    });
    let (asks, asked) = mpsc::channel();
    let make = Box::new(move |make| drop(asks.send(make)));
    let brought = Brought::default();
    let gid = port.context.gid();
    let (back, services) = (news.downgrade(), Arc::clone(services));
    let wiring = Wiring { gid, changes, back, services, brought: brought.clone(), tell, make };
    let peers = Peers::start(policy, security, wiring)?;
    Ok(Some(Abroad { peers, maker: Maker::start(asked, work)?, news, brought }))
}

impl Agent {
    /// Opens the device of the policy, listens under its name, and serves applications.
    ///
    /// # Errors
    /// When the device cannot be opened, or another agent has the name.
    pub fn start(policy: Policy) -> Result<Self, VerbsError> {
        Self::start_secured(policy, PeerSecurity::default())
    }

    /// As [`Agent::start`], with certificates for sessions with the agents of other hosts.
    ///
    /// # Errors
    /// As [`Agent::start`]; where the policy's peers cannot be listened to.
    pub fn start_secured(policy: Policy, security: PeerSecurity) -> Result<Self, VerbsError> {
        let os = |what: &str| {
            let what = what.to_owned();
            move |error: std::io::Error| VerbsError::os(what, error)
        };
        if policy.mode == Mode::Justitia && policy.justitia.is_none() {
            let needed = "the mode \"justitia\" needs \"justitia\" in the policy: line_bytes_per_s, target_us";
            return Err(VerbsError::Invalid(needed.to_owned()));
        }
        let listening = format!("listening as agent {:?}", policy.name);
        let address = protocol::address(&policy.name).map_err(os(&listening))?;
        let listener = seqpacket::listen(&address).map_err(os(&listening))?;
        let port = open(&policy.device)?;
        let bell = Arc::new(event::event_fd().map_err(os("eventfd"))?);
        let (sender, commands) = mpsc::channel();
        let wires = (sender.clone(), Arc::clone(&bell));
        let parts = make_parts(&policy, &port)?;
        let mut stock = policy.memory_chunks;
        if port.is_hardware {
            // Nobody could use them.
            stock.ahead = 0;
        }
        let chunks = MemoryChunks::start(port.context.alloc_pd()?, stock);
        let chunks = chunks.map_err(os("starting a thread"))?;
        let services = Arc::new(Services::default());
        let within = (parts.as_ref(), &services);
        let abroad = start_peers(&policy, &port, security, within, wires);
        let abroad = abroad.map_err(|error| VerbsError::Invalid(error.to_string()))?;
        let news = abroad.as_ref().map(|abroad| abroad.news.clone());
        let has_groups = policy.mode == Mode::Share;
        let cq = parts.as_ref().map(|parts| Arc::clone(&parts.cq));
        let shared_qps = SharedQps::new(cq, has_groups);
        let brought = abroad.as_ref().map(|abroad| abroad.brought.clone());
        let between = (news.clone().zip(brought), shared_qps);
        let engine = Engine::new(port.clone(), Arc::clone(&bell), commands, &policy, between);
        let (peers, maker) = abroad.map(|abroad| (abroad.peers, abroad.maker)).unzip();
        let shared = Arc::new(Shared {
            policy: Mutex::new(Arc::new(policy)),
            port,
            peers,
            news,
            services,
            parts,
            _maker: maker,
            chunks,
            bell,
            commands: Mutex::new(sender),
            keys: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            stop_bell: event::event_fd().map_err(os("eventfd"))?,
        });
        let mut agent = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        agent.spawn("agent", move || engine.run())?;
        agent.spawn("agent-listen", move || listen(&shared, &listener))?;
        Ok(agent)
    }

    /// Returns where it listens for the agents of other hosts, with the port that the system chose.
    #[must_use]
    pub fn local(&self) -> Option<&Address> {
        self.shared.peers.as_ref().and_then(Peers::local)
    }

    /// Goes over to another policy, whose `applications` may differ: weights at once, memory for what is registered from
    /// now on; those that it does not serve any more are disconnected. Nothing changes on an error.
    ///
    /// # Errors
    /// As [`Policy::check_change`].
    pub fn reload(&self, policy: Policy) -> Result<(), PolicyError> {
        let mut now = self.shared.policy.lock();
        now.check_change(&policy)?;
        let policy = Arc::new(policy);
        *now = Arc::clone(&policy);
        let may_offer = |application: &str, service: &str| {
            policy.rule(application).is_some_and(|rule| rule.may_offer(service))
        };
        self.shared.services.keep(may_offer);
        self.shared.tell(Command::Policy(policy));
        Ok(())
    }

    /// Makes shared queue pairs fail, as a device may. For tests.
    #[doc(hidden)]
    pub fn break_shared_queue_pairs(&self) {
        self.shared.tell(Command::BreakSharedQps);
    }

    /// Makes the queue pairs fail by which messages of rounds are written to other agents. For tests.
    #[doc(hidden)]
    pub fn break_slots(&self) {
        if let Some(news) = &self.shared.news {
            let _ = news.send(Change::Slots(SlotNews::Break));
        }
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), VerbsError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads.push(thread.map_err(|error| VerbsError::os("starting a thread", error))?);
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        event::ring(&self.shared.stop_bell);
        self.shared.tell(Command::Stop);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Accepts applications, each with a thread of its own, until the agent ends; then hangs up on all.
fn listen(shared: &Arc<Shared>, listener: &OwnedFd) {
    let mut served: Vec<(JoinHandle<()>, Weak<OwnedFd>)> = Vec::new();
    // Given up to hang up on those for whom no descriptor is left: else they would wait for an answer.
    let mut reserve = event::event_fd().ok();
    while !shared.stop.load(Ordering::Acquire) {
        let mut fds =
            [PollFd::new(listener, PollFlags::IN), PollFd::new(&shared.stop_bell, PollFlags::IN)];
        let _ = rustix::event::poll(&mut fds, None);
        served.retain(|(thread, _)| !thread.is_finished());
        match seqpacket::accept(listener).map_err(std::io::Error::from) {
            Ok(fd) => served.extend(start_monitor(shared, fd)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept an application");
                drop(reserve.take());
                drop(seqpacket::accept(listener));
                reserve = event::event_fd().ok();
            }
        }
    }
    shared.services.end();
    for (thread, fd) in served {
        if let Some(fd) = fd.upgrade() {
            let _ = rustix::net::shutdown(&*fd, rustix::net::Shutdown::Both);
        }
        let _ = thread.join();
    }
}

fn start_monitor(shared: &Arc<Shared>, fd: OwnedFd) -> Option<(JoinHandle<()>, Weak<OwnedFd>)> {
    let fd = Arc::new(fd);
    let (shared, ours) = (Arc::clone(shared), Arc::downgrade(&fd));
    let thread = std::thread::Builder::new().name("agent-app".to_owned());
    let thread = thread.spawn(move || monitor::serve(&shared, &fd));
    let thread = thread.inspect_err(|error| tracing::warn!(%error, "application")).ok()?;
    Some((thread, ours))
}
