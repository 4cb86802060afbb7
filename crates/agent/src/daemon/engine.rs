//! The thread that moves requests: from the applications' rings through the scheduler to the device, and
//! completions back.
use super::Port;
use super::connection::{Connection, Landed};
use crate::entry::{Event, Notice, Request, Work};
use crate::policy;
use crate::pool::{AgentEnd, SLOTS};
use crate::protocol::Account;
use crate::scheduler::{ApplicationId, Scheduler};
use catchment_verbs::{AsyncEvent, Completion, Cq, Qp, QpTransition, event};
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// Requests taken of one application at once, and chunks given to the device.
const BATCH: usize = 256;
/// How long the thread polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How long it sleeps at most, because the device's events wake nobody.
const NAP: Duration = Duration::from_millis(10);
const LONG_NAP: Duration = Duration::from_secs(1);

/// What the threads of the applications ask of the engine.
pub(super) enum Command {
    /// A new application.
    Join(Box<Newcomer>),
    /// The end of an application; answered when nothing of it is left here.
    Leave(u64, Sender<()>),
    /// A new queue pair: so many sends, receives, and chunks in the device's hands.
    AddQp(u64, Box<dyn Qp>, (u32, u32), u32, Sender<()>),
    /// Take a queue pair out, after all requests that were given before.
    Lend(u64, u32, Sender<Option<Box<dyn Qp>>>),
    /// Put it back; with the transition that it made.
    Return(u64, Box<dyn Qp>, Option<QpTransition>),
    /// The end of a queue pair, after all requests that were given before.
    RemoveQp(u64, u32, Sender<Option<Box<dyn Qp>>>),
    /// So much memory is registered now.
    Memory(u64, u64),
    /// The accounts of all.
    Status(Sender<Vec<Account>>),
    /// End.
    Stop,
}

/// What an application brings.
pub(super) struct Newcomer {
    pub(super) key: u64,
    pub(super) end: AgentEnd,
    pub(super) cq: Arc<dyn Cq>,
    /// To hang up.
    pub(super) socket: OwnedFd,
    pub(super) account: Account,
}

struct Application {
    id: ApplicationId,
    end: AgentEnd,
    cq: Arc<dyn Cq>,
    socket: OwnedFd,
    account: Account,
    connections: BTreeMap<u32, Connection>,
    /// The queue pair of each epoch.
    epochs: BTreeMap<u32, u32>,
    /// It got something since it was last woken.
    gave: bool,
}

impl Application {
    /// Ends the connection to an application at fault. Its thread notices, and cleans up.
    fn hang_up(&mut self, reason: &str) {
        let (name, process) = (&self.account.application, self.account.process);
        tracing::warn!(application = %name, process, reason, "application disconnected");
        self.account.refused += 1;
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    fn give(&mut self, qpn: u32, event: Event) {
        self.gave = true;
        if let Err(error) = self.end.give(&Notice { qpn, event }) {
            self.hang_up(&error.to_string());
        }
    }

    /// Wakes it if it got something and sleeps.
    fn wake(&mut self) {
        if std::mem::take(&mut self.gave) {
            self.end.wake();
        }
    }

    /// Notes what became of a chunk.
    fn land(&mut self, qpn: u32, landed: &Landed) {
        self.account.done += u64::from(landed.ended);
        if let Some(Event::Sent(done)) = landed.event {
            self.account.failed += u64::from(done.result.is_err());
        }
        if let Some(event) = landed.event {
            self.give(qpn, event);
        }
    }
}

/// See the module.
pub(super) struct Engine {
    port: Port,
    bell: Arc<OwnedFd>,
    commands: Receiver<Command>,
    alpha: f64,
    scheduler: Scheduler,
    applications: BTreeMap<u64, Application>,
    /// Of the applications: they are looked at in turn.
    keys: Vec<u64>,
    /// The application and queue pair of each connection of the scheduler.
    places: Vec<(u64, u32)>,
    epoch: u32,
    stopped: bool,
}

impl Engine {
    pub(super) fn new(
        port: Port,
        bell: Arc<OwnedFd>,
        commands: Receiver<Command>,
        policy: &policy::Policy,
    ) -> Self {
        Self {
            port,
            bell,
            commands,
            alpha: policy.alpha,
            scheduler: Scheduler::new(policy.chunk_bytes, policy.window_bytes),
            applications: BTreeMap::new(),
            keys: Vec::new(),
            places: Vec::new(),
            epoch: 0,
            stopped: false,
        }
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self) {
        let mut idle_since = None;
        let mut armed = false;
        while !self.stopped {
            if self.turn() {
                (idle_since, armed) = (None, false);
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() < SPIN {
                std::thread::yield_now();
            } else if !armed {
                self.arm();
                armed = true;
            } else {
                self.sleep();
                (idle_since, armed) = (None, false);
            }
        }
    }

    /// Does what there is to do; returns whether there was anything.
    fn turn(&mut self) -> bool {
        let mut busy = false;
        while let Ok(command) = self.commands.try_recv() {
            busy = true;
            self.command(command);
        }
        for at in 0..self.keys.len() {
            let key = self.keys[at];
            busy |= self.poll(key);
            busy |= self.take(key, BATCH);
        }
        busy |= self.dispatch();
        self.applications.values_mut().for_each(Application::wake);
        busy | self.take_events()
    }

    fn arm(&self) {
        for application in self.applications.values() {
            application.end.arm();
            application.cq.req_notify(false);
        }
    }

    fn sleep(&self) {
        let idle = self.applications.values().all(|known| known.connections.is_empty());
        let nap = if idle { LONG_NAP } else { NAP };
        let timeout = event::timespec(nap);
        let mut fds = [
            PollFd::new(&*self.bell, PollFlags::IN),
            PollFd::from_borrowed_fd(self.port.channel.as_fd(), PollFlags::IN),
        ];
        // An interruption only ends the sleep early.
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        event::take_rings(&*self.bell);
        let _ = self.port.channel.wait(Duration::ZERO);
    }

    /// Takes requests of an application; returns whether there were any.
    fn take(&mut self, key: u64, most: usize) -> bool {
        let mut taken = 0;
        while taken < most {
            let Some(application) = self.applications.get_mut(&key) else { break };
            if application.end.is_broken() {
                application.hang_up("a page of its request pool could not be had");
                break;
            }
            let Some(request) = application.end.take() else { break };
            taken += 1;
            let outcome = match request {
                Ok(request) => self.accept(key, request),
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = outcome
                && let Some(application) = self.applications.get_mut(&key)
            {
                application.hang_up(&reason);
                break;
            }
        }
        taken > 0
    }

    /// Takes one request.
    fn accept(&mut self, key: u64, request: Request) -> Result<(), String> {
        let Some(application) = self.applications.get_mut(&key) else { return Ok(()) };
        let Some(connection) = application.connections.get_mut(&request.qpn) else {
            return Err(format!("queue pair {} is not one of its own", request.qpn));
        };
        let too_many = |_| "more requests than its queue pair holds".to_owned();
        match request.work {
            Work::Receive => connection.post_receive(request).map_err(too_many),
            Work::Send { .. } => {
                application.account.requests += 1;
                if let Some((bytes, splits)) = connection.ask(&request).map_err(too_many)? {
                    self.scheduler.push(connection.id, bytes, splits);
                }
                Ok(())
            }
        }
    }

    /// Takes completions of the device for an application; returns whether there were any.
    fn poll(&mut self, key: u64) -> bool {
        let Some(application) = self.applications.get_mut(&key) else { return false };
        let mut out = [Completion::EMPTY; 64];
        let Ok(count) = application.cq.poll(&mut out) else {
            application.hang_up("its completion queue at the device failed");
            return false;
        };
        for done in &out[..count] {
            let epoch = Connection::epoch_of(done.wr_id);
            let Some(qpn) = application.epochs.get(&epoch).copied() else { continue };
            let Some(connection) = application.connections.get_mut(&qpn) else { continue };
            let Some(landed) = connection.complete(done) else { continue };
            if !Connection::is_receive(done.wr_id) {
                self.scheduler.done(connection.id, landed.bytes);
            }
            application.land(qpn, &landed);
        }
        count > 0
    }

    /// Gives chunks to the device; returns whether there were any.
    fn dispatch(&mut self) -> bool {
        for n in 0..BATCH {
            let Some(chunk) = self.scheduler.next_chunk() else { return n > 0 };
            let (key, qpn) = self.places[chunk.connection.index()];
            let Some(application) = self.applications.get_mut(&key) else { continue };
            let Some(connection) = application.connections.get_mut(&qpn) else { continue };
            if let Some(landed) = connection.post(&chunk) {
                self.scheduler.done(chunk.connection, landed.bytes);
                application.land(qpn, &landed);
            }
        }
        true
    }

    fn take_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.port.context.async_event() {
            any = true;
            if let AsyncEvent::QpFatal { qpn, .. } = event {
                self.tell_failed(qpn);
            }
        }
        any
    }

    fn tell_failed(&mut self, qpn: u32) {
        let mut all = self.applications.values_mut();
        if let Some(owner) = all.find(|known| known.connections.contains_key(&qpn)) {
            owner.give(qpn, Event::Failed);
            owner.wake();
        }
    }

    /// Fails the queue pairs of other applications that were connected with one that is gone.
    fn fail_peers(&mut self, gone: &Application) {
        let gid = self.port.context.gid();
        for (qpn, connection) in &gone.connections {
            let Some(peer) = connection.peer.filter(|peer| peer.gid == gid) else { continue };
            let mut all = self.applications.values_mut();
            let Some(other) = all.find_map(|known| known.connections.get_mut(&peer.qpn)) else {
                continue;
            };
            let knows_it = other.peer.is_some_and(|peer| peer.gid == gid && peer.qpn == *qpn);
            let Some(qp) = other.qp.as_mut().filter(|_| knows_it) else { continue };
            if qp.modify(QpTransition::ToErr).is_ok() {
                self.tell_failed(peer.qpn);
            }
        }
    }

    fn command(&mut self, command: Command) {
        // Who does not wait for an answer has died.
        match command {
            Command::Join(newcomer) => self.join(*newcomer),
            Command::Leave(key, reply) => {
                self.leave(key);
                let _ = reply.send(());
            }
            Command::AddQp(key, qp, most, places, reply) => {
                self.add_qp(key, qp, most, places);
                let _ = reply.send(());
            }
            Command::Lend(key, qpn, reply) => {
                let _ = reply.send(self.lend(key, qpn));
            }
            Command::Return(key, qp, transition) => self.take_back(key, qp, transition),
            Command::RemoveQp(key, qpn, reply) => {
                self.take(key, SLOTS as usize);
                let _ = reply.send(self.remove_qp(key, qpn));
            }
            Command::Memory(key, bytes) => {
                if let Some(application) = self.applications.get_mut(&key) {
                    application.account.memory_bytes = bytes;
                }
            }
            Command::Status(reply) => {
                let _ = reply.send(self.accounts());
            }
            Command::Stop => self.stopped = true,
        }
    }

    fn join(&mut self, newcomer: Newcomer) {
        let Newcomer { key, end, cq, socket, account } = newcomer;
        let id = self.scheduler.add_application();
        let (connections, epochs) = (BTreeMap::new(), BTreeMap::new());
        let application =
            Application { id, end, cq, socket, account, connections, epochs, gave: false };
        self.applications.insert(key, application);
        self.decide();
    }

    fn leave(&mut self, key: u64) {
        if let Some(application) = self.applications.remove(&key) {
            self.scheduler.remove_application(application.id);
            self.fail_peers(&application);
            self.decide();
        }
    }

    /// Takes note of who is connected, and decides their shares.
    fn decide(&mut self) {
        self.keys = self.applications.keys().copied().collect();
        let all = self.applications.values();
        let weights: Vec<f64> = all.map(|application| application.account.weight).collect();
        let shares = match policy::shares(&weights, self.alpha) {
            Ok(shares) => shares,
            Err(error) => {
                tracing::error!(%error, "no shares for these weights, the old ones stay");
                return;
            }
        };
        let mut rates = Vec::new();
        for (application, share) in self.applications.values_mut().zip(shares) {
            application.account.share = share;
            rates.push((application.id, share));
        }
        self.scheduler.set_shares(&rates);
    }

    fn next_epoch(&mut self) -> u32 {
        self.epoch = (self.epoch + 1) & (u32::MAX >> 1);
        self.epoch
    }

    fn add_qp(&mut self, key: u64, qp: Box<dyn Qp>, most: (u32, u32), places: u32) {
        let epoch = self.next_epoch();
        let Some(application) = self.applications.get_mut(&key) else { return };
        let qpn = qp.qpn();
        let id = self.scheduler.add_connection(application.id, places);
        if self.places.len() <= id.index() {
            self.places.resize(id.index() + 1, (0, 0));
        }
        self.places[id.index()] = (key, qpn);
        application.connections.insert(qpn, Connection::new(id, epoch, qp, most));
        application.epochs.insert(epoch, qpn);
        application.account.queue_pairs += 1;
    }

    fn lend(&mut self, key: u64, qpn: u32) -> Option<Box<dyn Qp>> {
        self.take(key, SLOTS as usize);
        let connection = self.applications.get_mut(&key)?.connections.get_mut(&qpn)?;
        self.scheduler.pause(connection.id);
        connection.qp.take()
    }

    fn take_back(&mut self, key: u64, qp: Box<dyn Qp>, transition: Option<QpTransition>) {
        let epoch = self.next_epoch();
        let qpn = qp.qpn();
        let Some(application) = self.applications.get_mut(&key) else { return };
        let Some(connection) = application.connections.get_mut(&qpn) else { return };
        connection.qp = Some(qp);
        match transition {
            Some(QpTransition::ToReset) => {
                let (bytes, places) = in_hands(connection);
                self.scheduler.clear(connection.id, bytes, places);
                connection.reset(epoch);
                connection.peer = None;
                application.epochs.retain(|_, known| *known != qpn);
                application.epochs.insert(epoch, qpn);
            }
            Some(QpTransition::ToSqd) => connection.holds = true,
            Some(QpTransition::ToRtr(attr)) => connection.peer = Some(attr.remote),
            Some(QpTransition::ToRts(_) | QpTransition::ToErr) => {
                for (bytes, splits) in connection.release() {
                    self.scheduler.push(connection.id, bytes, splits);
                }
            }
            Some(
                QpTransition::ToInit { .. }
                | QpTransition::ToInitUd { .. }
                | QpTransition::ToRtrUc(_)
                | QpTransition::ToRtrUd
                | QpTransition::ToRtsUnreliable,
            )
            | None => {}
        }
        connection.post_receives();
        self.scheduler.resume(connection.id);
    }

    fn remove_qp(&mut self, key: u64, qpn: u32) -> Option<Box<dyn Qp>> {
        let application = self.applications.get_mut(&key)?;
        let connection = application.connections.remove(&qpn)?;
        application.epochs.retain(|_, known| *known != qpn);
        application.account.queue_pairs -= 1;
        let (bytes, _) = in_hands(&connection);
        self.scheduler.remove_connection(connection.id, bytes);
        connection.qp
    }

    fn accounts(&self) -> Vec<Account> {
        let account = |application: &Application| {
            let served = self.scheduler.served(application.id);
            Account {
                chunks: served.chunks,
                bytes: served.bytes,
                emptied: served.emptied,
                waiting: self.scheduler.waiting(application.id),
                ..application.account.clone()
            }
        };
        self.applications.values().map(account).collect()
    }
}

/// Returns what a connection has in the device's hands: bytes as the scheduler counts them, and chunks.
fn in_hands(connection: &Connection) -> (u64, u32) {
    let flying = connection.flying();
    let count = flying.len() as u32;
    (flying.map(Scheduler::weight_bytes).sum(), count)
}
