//! The agents of other hosts: one session with each, over TCP with the session's rules of protection.
//!
//! A thread of its own accepts and dials, and moves messages; what they say about rates is for the hub.
mod alarm;
mod calls;
mod capacity;
mod carried;
mod groups;
mod hub;
mod hub_calls;
mod hub_carried;
mod hub_shares;
mod hub_slots;
pub mod message;
mod orders;
mod registry;
mod roster;
mod session;
mod shares;
mod slot_ends;
mod slot_qp;
mod slots;

use crate::policy::{Below, Between, Mode, Policy};
use crate::protocol::{Peer, Rounds};
use crate::services::{Answer, Services};
use alarm::Alarm;
pub(crate) use calls::Calling;
pub(crate) use capacity::BYTES_PER_MOPS;
use capacity::Capacity;
pub(crate) use carried::Brought;
use carried::Carrying;
use catchment_control::drum::{Host, HostConfig, HostError};
use catchment_session::backoff::Backoff;
use catchment_session::host::Host as Identity;
use catchment_session::io::{
    Address, Arriving, BindError, ClientSecurity, Place, ServerSecurity, StreamListener,
};
use catchment_verbs::{Endpoint, Gid};
use hub::{Hub, Tells};
use message::{DEVICE_DIGITS, Hello, RemoteRegion, VERSION};
pub(crate) use orders::{Carry, Local, Make, Rate, SlotNews, Verdict};
use registry::Registry;
use ring::digest::{SHA256, digest};
use session::Context;
use shares::Shares;
use slot_ends::SlotEnds;
pub(crate) use slot_qp::SlotQp;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};
use tokio::sync::{mpsc, oneshot};

/// Connections that make their handshake at a time.
const HANDSHAKES: usize = 64;
/// Events that wait for the hub; sessions wait with them.
const EVENTS: usize = 256;
/// How long the last words to all peers may take.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Tries after which the pauses between them grow no more.
const MOST_TRIES: u32 = 16;

/// How sessions with other agents are protected: with certificates, or none on loopback.
#[derive(Debug, Clone, Default)]
pub struct PeerSecurity {
    /// Of those that this agent dials.
    pub client: ClientSecurity,
    /// Of those that dial it.
    pub server: ServerSecurity,
}

/// What the engine tells of applications, by its own numbers.
pub(crate) enum Change {
    Join {
        key: u64,
        weight: f64,
    },
    Leave {
        key: u64,
    },
    Weight(u64, f64),
    /// The most that it asks for; nothing: more than it gets.
    Demand {
        key: u64,
        bytes_per_s: Option<f64>,
    },
    /// What the device turns out to send: no more than the policy says.
    Working {
        bytes_per_s: u64,
    },
    AddQp {
        key: u64,
        queue_pair: u32,
        qpn: u32,
    },
    RemoveQp {
        key: u64,
        queue_pair: u32,
    },
    /// A queue pair leads to another, of the device with this address.
    Connect {
        key: u64,
        queue_pair: u32,
        gid: Gid,
        qpn: u32,
    },
    Disconnect {
        key: u64,
        queue_pair: u32,
    },
    /// What concerns shared queue pairs.
    Shared(Sharing),
    /// What became of slots for messages of the rounds.
    Slots(SlotNews),
    /// An application calls a service of another host.
    Call(Box<Calling>),
    /// A service here answers a caller of another host.
    Answered {
        host: u32,
        call: u64,
        answer: Answer,
    },
    /// How do other agents and the rounds with them stand?
    Status(Sender<(Vec<Peer>, Rounds)>),
}

/// What the engine, an application's thread and the maker of queue pairs tell of shared ones. A queue pair has its
/// number at the device here.
pub(crate) enum Sharing {
    /// It is to be connected: does it share?
    Share { at: Local, remote: Endpoint, reply: Sender<Option<u32>> },
    /// It will be reset, fail or end, if this is its life; `reply` is dropped when its peer gives nothing more to it.
    Unshare { qpn: u32, life: Option<u64>, reply: Sender<()> },
    /// It has nothing on shared ones any more, and waits to be on its own.
    Drained { qpn: u32, life: u64 },
    /// On its own, it receives.
    Receives { qpn: u32, life: u64 },
    /// Its receives are on its own: its peer may send over its own.
    Posted { qpn: u32, life: u64 },
    /// It needs a region of its peer.
    AskKey { qpn: u32, rkey: u32 },
    /// What its peer asked for.
    KeyAnswer { qpn: u32, rkey: u32, region: Option<RemoteRegion> },
    /// A region ends that a host knows; `reply` is dropped when nothing more comes for it from there.
    Revoke { host: u32, rkey: u32, reply: Sender<()> },
    /// Nothing of this host is on its way to a region that ends.
    Revoked { host: u32, rkey: u32 },
    /// An end of a shared one was made.
    Made { host: u32, number: u32, endpoint: String },
    /// One that was begun here is in use.
    Finished { host: u32, number: u32 },
    /// The end here of one is gone.
    Lost { host: u32, number: u32 },
}

/// Time of a round: hosts of one network are nearer.
const ROUND: Duration = Duration::from_millis(1);
/// Worth of completions, utility times Mops squared: so little that weights alone count. With 0.01, a completion rate
/// of 1 Mops was given 1.5 % more than its weight says.
const BETA: f64 = 1e-6;

/// The thread of the sessions cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// It cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// An address is none.
    #[error("a peer: {0}")]
    Address(String),
    /// The system refuses.
    #[error("sessions between agents: {0}")]
    Io(#[from] io::Error),
    /// The policy does not say what the device can do.
    #[error(
        "agents of several hosts agree on bytes a second: the policy's \"between\" needs \"send_bytes_per_s\" and \"completion_bytes_per_s\", what the device can send and take in"
    )]
    Capacity,
    /// A value is not possible.
    #[error("rates of several hosts: {0}")]
    Rates(#[from] HostError),
    /// Its applications have the device's queue pairs for themselves.
    #[error("in the mode \"raw\" there is nothing to agree on with other agents")]
    Raw,
    /// This host has no identity.
    #[error("a number for this host: {0}; give it one: \"host\" of the policy's \"between\"")]
    Host(String),
}

/// The sessions of an agent. They end when it is dropped.
pub(crate) struct Peers {
    local: Option<Address>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the first half of the digest of a device's address.
fn digest_of(gid: Gid) -> String {
    let mut text = hexadecimal(digest(&SHA256, &gid.0).as_ref());
    text.truncate(DEVICE_DIGITS);
    text
}

/// Returns a number for a host that was given none: others have it by chance in one of 2^32.
fn number_of(name: &str) -> Result<u32, PeerError> {
    let host = Identity::read().map_err(|error| PeerError::Host(error.to_string()))?;
    let text = format!("{} {} {name}", host.boot_id, host.netns);
    let hash = digest(&SHA256, text.as_bytes());
    let (number, _) = hash.as_ref().split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    Ok(u32::from_be_bytes(*number))
}

/// Returns the tenth of a second since 2026 in which a time lies.
fn tenth(now: SystemTime) -> u32 {
    const START_S: u64 = 1_767_225_600;
    let since = now.duration_since(UNIX_EPOCH + Duration::from_secs(START_S));
    u32::try_from(since.unwrap_or_default().as_millis() / 100).unwrap_or(u32::MAX - 1)
}

/// Returns the number of a life that begins now: the next tenth of a second, which it waits for, so that any later
/// life has a higher one.
fn begin_life() -> u32 {
    let epoch = tenth(SystemTime::now()) + 1;
    // A clock that was never set stays at 0 for years.
    let patience = Instant::now() + Duration::from_millis(100);
    while tenth(SystemTime::now()) < epoch && Instant::now() < patience {
        // The clock has no event.
        std::thread::sleep(Duration::from_millis(1));
    }
    epoch
}

/// What sessions are for.
pub(crate) struct Wiring {
    /// The address of the device.
    pub(crate) gid: Gid,
    pub(crate) changes: UnboundedReceiver<Change>,
    /// To tell of changes from within.
    pub(crate) back: WeakUnboundedSender<Change>,
    /// What applications here offer.
    pub(crate) services: Arc<Services>,
    /// What data bring.
    pub(crate) brought: Brought,
    /// Tells the engine.
    pub(crate) tell: Box<dyn Fn(Verdict) + Send>,
    /// Tells who makes queue pairs.
    pub(crate) make: Box<dyn Fn(Make) + Send>,
}

impl Peers {
    /// Listens and dials as the policy says, and agrees on rates.
    pub(crate) fn start(
        policy: &Policy,
        security: PeerSecurity,
        wiring: Wiring,
    ) -> Result<Self, PeerError> {
        let Wiring { gid, changes, back, services, brought, tell, make } = wiring;
        let between = &policy.between;
        if policy.mode == Mode::Raw {
            return Err(PeerError::Raw);
        }
        let dialed = between.peers.iter().map(|text| text.parse::<Address>());
        let dialed: Result<Vec<Address>, _> = dialed.collect();
        let dialed = dialed.map_err(|error| PeerError::Address(error.to_string()))?;
        let ours = Arc::new(Hello {
            version: VERSION,
            name: policy.name.clone(),
            host: between.host.map_or_else(|| number_of(&policy.name), Ok)?,
            epoch: begin_life(),
            device: digest_of(gid),
            alpha: policy.alpha,
            lease_ms: between.lease_ms,
            rates: policy.mode.decides(),
        });
        let capacity = Capacity::new(between, ours.rates)?;
        let host = Host::new(config(&capacity, &ours), 0)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let alarm = {
            let _within = runtime.enter();
            Alarm::new()?
        };
        let listener = listen(&runtime, between, security.server)?;
        let local = listener.as_ref().map(|listener| listener.local().clone());
        let registry = Arc::new(Registry::default());
        let (found, to_dial) = mpsc::unbounded_channel();
        let shares = Shares::new(ours.host, policy.ratio(), between.queue_pairs, policy.probes());
        let tells = Tells { tell, make };
        let (events, received) = mpsc::channel(EVENTS);
        let slots = SlotEnds::new(between.slots, events.clone());
        let carrying = Carrying { carries: between.in_data, brought, count: 0 };
        let mut hub = Hub::new(
            (host, capacity),
            Arc::clone(&ours),
            Arc::clone(&registry),
            tells,
            (shares, slots, carrying),
            (services, back),
        );
        // Where a device's address is that of its host, an agent there is at the same port as this one.
        if let (Below::Roce(_) | Below::Ibverbs(_), Some(Address::Tcp { port, .. })) =
            (&policy.device, &local)
        {
            hub.discover(*port, found);
        }
        let context =
            Context { ours, registry: Arc::clone(&registry), events, security: security.client };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("agent-peers".to_owned());
        let thread = thread.spawn(move || {
            let work = (dialed, to_dial, hub.run(alarm, changes, received));
            serve(&runtime, listener, work, context, stopped);
            // A name that is being looked up keeps nobody waiting.
            runtime.shutdown_background();
        })?;
        Ok(Self { local, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns where it listens, with the port that the system chose.
    pub(crate) const fn local(&self) -> Option<&Address> {
        self.local.as_ref()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.stop = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the sessions panicked");
        }
    }
}

fn config(capacity: &Capacity, ours: &Hello) -> HostConfig {
    let (send_capacity, completion_capacity) = capacity.shared_mops();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    HostConfig {
        host: ours.host,
        incarnation: ours.epoch,
        alpha: ours.alpha,
        beta: BETA,
        send_capacity,
        completion_capacity,
        round_ns: ns(ROUND),
        lease_ns: ns(Duration::from_millis(ours.lease_ms.into())),
        // What a former life granted led to queue pairs that ended with it.
        restarted: false,
    }
}

fn listen(
    runtime: &Runtime,
    between: &Between,
    security: ServerSecurity,
) -> Result<Option<StreamListener>, PeerError> {
    let Some(text) = &between.listen else { return Ok(None) };
    let address: Address = text.parse().map_err(|error| PeerError::Address(format!("{error}")))?;
    Ok(Some(runtime.block_on(StreamListener::bind(&address, security))?))
}

/// The thread: accepts, dials, and moves messages until it is told to stop.
fn serve(
    runtime: &Runtime,
    listener: Option<StreamListener>,
    (dialed, mut to_dial, hub): (
        Vec<Address>,
        UnboundedReceiver<Address>,
        impl Future<Output = ()>,
    ),
    context: Context,
    stopped: oneshot::Receiver<()>,
) {
    let registry = Arc::clone(&context.registry);
    runtime.block_on(async {
        if let Some(listener) = listener {
            tokio::spawn(accept_all(listener, context.clone()));
        }
        for address in dialed {
            tokio::spawn(keep_dialing(address, context.clone(), None));
        }
        tokio::spawn(async move {
            while let Some(address) = to_dial.recv().await {
                // Nobody said that there is an agent.
                tokio::spawn(keep_dialing(address, context.clone(), Some(MOST_TRIES)));
            }
        });
        tokio::select! {
            _ = stopped => {}
            () = hub => {}
        }
        registry.say_goodbye();
        let _ = tokio::time::timeout(LAST_WORDS, registry.wait_for_all_ends()).await;
    });
}

async fn accept_all(listener: StreamListener, context: Context) {
    let serve = |arriving: Arriving, place: Place| {
        let context = context.clone();
        async move {
            let peer = arriving.peer().clone();
            let made = context.accept(arriving).await;
            drop(place);
            match made {
                Ok(made) => drop(context.run(made).await),
                Err(reason) => tracing::info!(%peer, %reason, "agent refused"),
            }
        }
    };
    listener.serve_each(HANDSHAKES, serve).await;
}

/// Keeps a session with the agent at an address: dials it again whenever there is none; gives up after so many tries
/// that were in vain, if that is said.
async fn keep_dialing(address: Address, context: Context, most: Option<u32>) {
    let text = address.to_string();
    let backoff = Backoff::new(u64::from(context.ours.host) << 32 | u64::from(context.ours.epoch));
    let (mut tries, mut host) = (0, None);
    loop {
        if let Some(host) = host {
            context.registry.wait_for_end(host).await;
        }
        match context.dial(&address).await {
            Ok(made) => {
                (tries, host) = (0, Some(made.seat.host));
                context.registry.note_address(&text, None);
                context.run(made).await;
            }
            Err(not_made) => {
                host = not_made.host.or(host);
                tracing::debug!(peer = %text, reason = %not_made.reason, "no session");
                let reason = (!host.is_some_and(|host| context.registry.is_up(host)))
                    .then_some(not_made.reason);
                context.registry.note_address(&text, reason);
            }
        }
        if most.is_some_and(|most| tries >= most) {
            context.registry.note_address(&text, None);
            return;
        }
        tokio::time::sleep(backoff.delay(tries, Duration::ZERO)).await;
        tries = (tries + 1).min(MOST_TRIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_life_has_a_higher_number() {
        assert!(begin_life() < begin_life());
        assert_eq!(tenth(UNIX_EPOCH), 0, "a clock that was never set");
    }

    #[test]
    fn agents_of_one_host_have_numbers_of_their_own() {
        let [one, two] = ["one", "two"].map(|name| number_of(name).unwrap());
        assert_ne!(one, two);
        assert_eq!(one, number_of("one").unwrap());
    }
}
